"""List scheduling of pipeline work: time runs forward; a rank that is free asks its picker what to
do next.

Knows the dependencies and the memory of a rank; what is best it leaves to the picker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush, heappushpop

from planner.action import F, I, W

NEVER = float("inf")
WAIT = -1
"""In place of a kind: do nothing until a time."""

ROUNDING = 1 + 1e-11
"""More than sums of an attempt's times differ when they are added in another order."""

Event = tuple[float, int]
Row = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done: one chain of stages, placed on ranks."""

    p: int
    m: int
    rank_of_stage: tuple[int, ...]
    forward: tuple[float, ...]
    """(S,) time of one microbatch; likewise the next two."""
    gradient: tuple[float, ...]
    weight: tuple[float, ...]
    forward_hop: tuple[float, ...]
    """(S,) time of a transfer from the stage before to this one; 0 on the same rank."""
    gradient_hop: tuple[float, ...]
    """(S,) time of a transfer from the stage after to this one."""
    limit: float
    """Activations of one stage that a rank may hold."""
    retained: float
    """Share of an activation that stays from the end of the input gradient to the end of the weight
    gradient.
    """


@dataclass(frozen=True, slots=True)
class Running:
    """A half-built timeline. Lists by stage or by rank."""

    forwards: list[int]
    """(S,) forwards started; likewise input and weight gradients."""
    gradients: list[int]
    weights: list[int]
    forward_ready: list[list[float]]
    """(S,) when the input of each microbatch is there, as far as known: its producer has started.
    """
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


@dataclass(frozen=True, slots=True)
class Most:
    """What a timeline must not exceed to be of use, and what none can fall below."""

    length: float
    makespan: float
    """The shortest there can be; likewise the span."""
    span: float
    tails: list[float]
    """(p,) from the end of all of a rank's work to the end of the first rank's, at least, while the
    rank has input gradients to do.
    """


Pick = Callable[[int, float], tuple[int, int, float]]
"""(rank, now) -> (kind or WAIT, stage, time to wait for)."""
Picker = Callable[[Work, Running], Pick]


def length(built: Built) -> float:
    """What is minimised: the makespan, and half as much the span, which is what counts where steps
    may overlap at their ends.
    """
    return built.makespan + built.span / 2


def slack_of(work: Work) -> float:
    """Times closer than this are the same time: rounding must not decide."""
    return 1e-9 * (
        max(work.forward) + max(work.gradient) + max(work.weight) + max(work.forward_hop)
    )


def run(work: Work, picker: Picker, most: Most | None = None) -> Built | None:
    """The timeline that a picker makes; None once it is certain to be longer than `most`, so that
    no time is lost on it.

    Raises RuntimeError if the picker leaves work undone (a fault of the picker).
    """
    state = _blank(work)
    events: list[Event] = [(0.0, rank) for rank in range(1, work.p)]
    pick, place = picker(work, state), _placing(work, state, events)
    slack, free, left = slack_of(work), state.free, _work_left(work)
    latest = [NEVER if most is None else -1.0] * work.p
    now, rank = 0.0, 0
    while True:
        if free[rank] <= now + slack:
            kind, stage, until = pick(rank, now)
            if kind != WAIT:
                if (
                    now + left[rank] > latest[rank]
                    and most is not None
                    and _hopeless(work, state, most, rank, latest, now + left[rank])
                ):
                    return None
                end = place[kind](rank, stage, now)
                left[rank] -= end - now
                now, rank = heappushpop(events, (end, rank))
                continue
            if now + slack < until < NEVER:
                now, rank = heappushpop(events, (until, rank))
                continue
        if not events:
            return _finished(work, state)
        now, rank = heappop(events)


def _work_left(work: Work) -> list[float]:
    """Of each rank, the time of all it has to do."""
    left = [0.0] * work.p
    for stage, rank in enumerate(work.rank_of_stage):
        left[rank] += work.m * (work.forward[stage] + work.gradient[stage] + work.weight[stage])
    return left


def _latest(most: Most, first: float) -> float:
    """When a rank whose first input came at `first` must have ended its work for a timeline that
    may still be short enough.
    """
    room = most.length * ROUNDING
    return min(room - most.span / 2, (room + first / 2) / 1.5, 2 * (room - most.makespan) + first)


def _hopeless(
    work: Work, state: Running, most: Most, rank: int, latest: list[float], end: float
) -> bool:
    """Whether a rank that will end its work at `end` at the earliest ends too late; sets how late
    is too late from now on.

    That changes with the rank's first action and with its last input gradient, after which the
    first rank is no longer held up by it.
    """
    stages = _stages(work, rank)
    first = min(state.forward_ready[stage][0] for stage in stages if state.forward_ready[stage])
    latest[rank] = _latest(most, first)
    if any(state.gradients[stage] < work.m for stage in stages):
        latest[rank] = min(latest[rank], _latest(most, 0.0) - most.tails[rank])
    return end > latest[rank]


def _blank(work: Work) -> Running:
    stages = len(work.rank_of_stage)
    return Running(
        forwards=[0] * stages,
        gradients=[0] * stages,
        weights=[0] * stages,
        forward_ready=[[0.0] * work.m, *([] for _ in range(stages - 1))],
        gradient_ready=[[] for _ in range(stages)],
        pending=[deque() for _ in range(work.p)],
        held=[0.0] * work.p,
        open=[0] * work.p,
        free=[0.0] * work.p,
        rows=[[] for _ in range(work.p)],
    )


Place = Callable[[int, int, float], float]
"""(rank, stage, now) -> end: the stage's next action of a kind is placed. Closures below, as
looking names up costs time here.
"""


def _placing(work: Work, state: Running, events: list[Event]) -> dict[int, Place]:
    return {
        F: _forward(work, state, events),
        I: _gradient(work, state, events),
        W: _weight(work, state),
    }


def _forward(work: Work, state: Running, events: list[Event]) -> Place:
    rows, free, held, waiting, done = state.rows, state.free, state.held, state.open, state.forwards
    took, hop, ready, last = (
        work.forward,
        work.forward_hop,
        state.forward_ready,
        len(work.rank_of_stage) - 1,
    )

    def place(rank: int, stage: int, now: float) -> float:
        end = free[rank] = now + took[stage]
        rows[rank].append((stage, F, done[stage]))
        done[stage] += 1
        held[rank] += 1
        waiting[rank] += 1
        if stage == last:
            state.gradient_ready[stage].append(end)
        else:
            ready[stage + 1].append(end + hop[stage + 1])
            _tell(work, free, events, stage + 1, now)
        return end

    return place


def _gradient(work: Work, state: Running, events: list[Event]) -> Place:
    rows, free, held, waiting, done = (
        state.rows,
        state.free,
        state.held,
        state.open,
        state.gradients,
    )
    took, hop, ready, pending, released = (
        work.gradient,
        work.gradient_hop,
        state.gradient_ready,
        state.pending,
        1 - work.retained,
    )

    def place(rank: int, stage: int, now: float) -> float:
        end = free[rank] = now + took[stage]
        rows[rank].append((stage, I, done[stage]))
        done[stage] += 1
        held[rank] -= released
        waiting[rank] -= 1
        pending[rank].append(stage)
        if stage:
            ready[stage - 1].append(end + hop[stage - 1])
            _tell(work, free, events, stage - 1, now)
        return end

    return place


def _weight(work: Work, state: Running) -> Place:
    rows, free, held, done = state.rows, state.free, state.held, state.weights
    took, pending, kept = work.weight, state.pending, work.retained

    def place(rank: int, stage: int, now: float) -> float:
        end = free[rank] = now + took[stage]
        pending[rank].popleft()
        rows[rank].append((stage, W, done[stage]))
        done[stage] += 1
        held[rank] -= kept
        return end

    return place


def _tell(work: Work, free: list[float], events: list[Event], stage: int, now: float) -> None:
    """A receiver that idles hears at once when its input will come, so that it can plan the gap
    before it.
    """
    receiver = work.rank_of_stage[stage]
    if free[receiver] <= now:
        heappush(events, (now, receiver))


def _finished(work: Work, state: Running) -> Built:
    undone = [stage for stage, count in enumerate(state.weights) if count < work.m]
    if undone:
        raise RuntimeError(f"a picker left stages {undone} undone")
    first = [
        min(state.forward_ready[stage][0] for stage in _stages(work, rank))
        for rank in range(work.p)
    ]
    span = max(end - start for end, start in zip(state.free, first, strict=True))
    return Built(state.rows, max(state.free), span)


def _stages(work: Work, rank: int) -> list[int]:
    return [stage for stage, there in enumerate(work.rank_of_stage) if there == rank]
