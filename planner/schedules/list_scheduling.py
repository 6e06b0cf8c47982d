"""List scheduling of pipeline work: time runs forward; a rank that is free asks its picker what to do next.

Knows the dependencies and the memory of a rank; what is best it leaves to the picker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from planner.action import F, I, W

NEVER = float("inf")
WAIT = -1
"""In place of a kind: do nothing until a time."""

Event = tuple[float, int]
Row = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done: one chain of stages, placed on ranks."""

    p: int
    m: int
    rank_of_stage: list[int]
    forward: list[float]
    """(S,) time of one microbatch; likewise the next two."""
    gradient: list[float]
    weight: list[float]
    forward_hop: list[float]
    """(S,) time of a transfer from the stage before to this one; 0 on the same rank."""
    gradient_hop: list[float]
    """(S,) time of a transfer from the stage after to this one."""
    limit: float
    """Activations of one stage that a rank may hold."""
    retained: float
    """Share of an activation that stays from the end of the input gradient to the end of the weight gradient."""


@dataclass(frozen=True, slots=True)
class Running:
    """A half-built timeline. Lists by stage or by rank."""

    forwards: list[int]
    """(S,) forwards started; likewise input and weight gradients."""
    gradients: list[int]
    weights: list[int]
    forward_ready: list[list[float]]
    """(S,) when the input of each microbatch is there, as far as known: its producer has started."""
    gradient_ready: list[list[float]]
    pending: list[deque[int]]
    """(p,) stages whose weight gradient waits, oldest first."""
    held: list[float]
    """(p,) activations held."""
    open: list[int]
    """(p,) forwards without their input gradient."""
    free: list[float]
    """(p,) end of the last action."""
    rows: list[list[Row]]
    """(p,) stage, kind, microbatch."""


@dataclass(frozen=True, slots=True)
class Built:
    """A whole timeline: its order, and how long it takes."""

    rows: list[list[Row]]
    makespan: float
    span: float


Pick = Callable[[int, float], tuple[int, int, float]]
"""(rank, now) -> (kind or WAIT, stage, time to wait for)."""
Picker = Callable[[Work, Running], Pick]


def slack_of(work: Work) -> float:
    """Times closer than this are the same time: rounding must not decide."""
    return 1e-9 * (max(work.forward) + max(work.gradient) + max(work.weight) + max(work.forward_hop))


def run(work: Work, picker: Picker) -> Built:
    """The timeline that a picker makes. Raises RuntimeError if the picker leaves work undone (a fault of the picker)."""
    state = _blank(work)
    pick = picker(work, state)
    slack, free = slack_of(work), state.free
    events: list[Event] = [(0.0, rank) for rank in range(work.p)]
    while events:
        now, rank = heappop(events)
        if free[rank] > now + slack:
            continue
        kind, stage, until = pick(rank, now)
        if kind != WAIT:
            _PLACE[kind](work, state, events, stage, now)
        elif now + slack < until < NEVER:
            heappush(events, (until, rank))
    return _finished(work, state)


def _blank(work: Work) -> Running:
    stages = len(work.rank_of_stage)
    return Running(
        forwards=[0] * stages, gradients=[0] * stages, weights=[0] * stages,
        forward_ready=[[0.0] * work.m, *([] for _ in range(stages - 1))], gradient_ready=[[] for _ in range(stages)],
        pending=[deque() for _ in range(work.p)], held=[0.0] * work.p, open=[0] * work.p, free=[0.0] * work.p,
        rows=[[] for _ in range(work.p)],
    )  # fmt: skip


def _forward(work: Work, state: Running, events: list[Event], stage: int, now: float) -> None:
    rank = work.rank_of_stage[stage]
    end = now + work.forward[stage]
    state.rows[rank].append((stage, F, state.forwards[stage]))
    state.forwards[stage] += 1
    state.held[rank] += 1
    state.open[rank] += 1
    state.free[rank] = end
    heappush(events, (end, rank))
    if stage + 1 == len(work.rank_of_stage):
        state.gradient_ready[stage].append(end)
    else:
        state.forward_ready[stage + 1].append(end + work.forward_hop[stage + 1])
        _tell(work, state, events, stage + 1, now)


def _gradient(work: Work, state: Running, events: list[Event], stage: int, now: float) -> None:
    rank = work.rank_of_stage[stage]
    end = now + work.gradient[stage]
    state.rows[rank].append((stage, I, state.gradients[stage]))
    state.gradients[stage] += 1
    state.held[rank] -= 1 - work.retained
    state.open[rank] -= 1
    state.pending[rank].append(stage)
    state.free[rank] = end
    heappush(events, (end, rank))
    if stage:
        state.gradient_ready[stage - 1].append(end + work.gradient_hop[stage - 1])
        _tell(work, state, events, stage - 1, now)


def _weight(work: Work, state: Running, events: list[Event], stage: int, now: float) -> None:
    rank = work.rank_of_stage[stage]
    state.pending[rank].popleft()
    state.rows[rank].append((stage, W, state.weights[stage]))
    state.weights[stage] += 1
    state.held[rank] -= work.retained
    state.free[rank] = now + work.weight[stage]
    heappush(events, (state.free[rank], rank))


def _tell(work: Work, state: Running, events: list[Event], stage: int, now: float) -> None:
    """A receiver that idles hears at once when its input will come, so that it can plan the gap before it."""
    receiver = work.rank_of_stage[stage]
    if state.free[receiver] <= now:
        heappush(events, (now, receiver))


_PLACE = {F: _forward, I: _gradient, W: _weight}


def _finished(work: Work, state: Running) -> Built:
    undone = [stage for stage, count in enumerate(state.weights) if count < work.m]
    if undone:
        raise RuntimeError(f"a picker left stages {undone} undone")
    first = [min(state.forward_ready[stage][0] for stage in _stages(work, rank)) for rank in range(work.p)]
    span = max(end - start for end, start in zip(state.free, first, strict=True))
    return Built(state.rows, max(state.free), span)


def _stages(work: Work, rank: int) -> list[int]:
    return [stage for stage, there in enumerate(work.rank_of_stage) if there == rank]
