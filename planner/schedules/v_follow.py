"""Automatic V-shaped schedules (ZBV, V-Half, V-Min): pickers that follow a stable pattern, and run ahead of it where there is room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from planner.action import F, I, Order, W, v_shaped
from planner.schedules.automatic import best, order_of, prepared
from planner.schedules.list_scheduling import NEVER, WAIT, Pick, Picker, Running, Work, as_written, run, slack_of
from planner.schedules.v_patterns import Lane, Pattern, fitting, lanes
from planner.simulator import Floats


@dataclass(frozen=True, slots=True)
class Taste:
    """How a rank fills the time until the action that is due."""

    weight_push: float
    """Share of a weight gradient by which it may delay the action that is due; 0 = it must fit the gap."""
    ahead_push: float
    """The same for an action taken ahead of its turn."""
    weight_first: bool
    """Fill with weight gradients before actions ahead of their turn."""


TASTES = (Taste(0.5, 0.5, False), Taste(0.0, 0.0, True), Taste(0.0, 0.0, False), Taste(1.0, 1.0, False), Taste(0.5, 0.5, True))
SCREENED = 12
"""Patterns tried on few microbatches."""
FOLLOWED = 3
"""Patterns tried on all of them."""


def v_order(p: int, m: int, durations: Floats | None, transfer: float | Floats, memory_limit: float, weight_retained: float) -> Order:
    """The best order found; stages s and 2p-1-s on a rank, at most memory_limit stages of activations held on each."""
    placement = v_shaped(p)
    work = prepared(placement, m, durations, transfer, memory_limit, weight_retained)
    return order_of(best(work, _attempts(work)), placement)


def _attempts(work: Work) -> Iterator[Picker]:
    chosen = _screened(work)
    for taste in TASTES:
        for pattern in chosen[:FOLLOWED]:
            yield follow(lanes(pattern, work.m), taste)
    yield from _even(work, chosen)


def _screened(work: Work) -> list[Pattern]:
    """The patterns that do best on few microbatches first."""
    patterns = fitting(work.p, work.m, work.limit)[:SCREENED]
    few = replace(work, m=min(work.m, 2 * work.p))
    spans = [run(few, follow(lanes(each, few.m), TASTES[0])).makespan for each in patterns]
    return [each for _, _, each in sorted(zip(spans, range(len(patterns)), patterns, strict=True))]


def _even(work: Work, patterns: Iterable[Pattern]) -> Iterator[Picker]:
    """Orders planned as if every action took one slot and transfers none: robust where true durations lead the lookahead astray."""
    stages = len(work.rank_of_stage)
    ones, zeros = [1.0] * stages, [0.0] * stages
    even = replace(work, forward=ones, gradient=ones, weight=ones, forward_hop=zeros, gradient_hop=zeros)
    for pattern in patterns:
        for taste in TASTES[:2]:
            yield as_written(run(even, follow(lanes(pattern, work.m), taste)).rows)


def follow(turns: list[list[Lane]], taste: Taste) -> Picker:
    """Each rank does what is due in its turn; while that is not ready, weight gradients, or what is ready ahead of its turn.

    A forward goes ahead of its turn only if what is due before it still finds room, so a pattern that fits the memory never blocks.
    """

    def picker(work: Work, state: Running) -> Pick:
        plan = _Plan(work, state, turns, *_positions(turns))
        slack, room = slack_of(work), work.limit + 1e-9

        def pick(rank: int, now: float) -> tuple[int, int, float]:
            soon = now + slack
            coming = _coming(plan, rank)
            if not coming:
                return (W, state.pending[rank][0], now) if state.pending[rank] else (WAIT, 0, NEVER)
            _, due, kind, stage = coming[0]
            if due <= soon:
                full = kind == F and state.held[rank] + 1 > room
                return (W, state.pending[rank][0], now) if full else (kind, stage, now)
            weight = _fits(work, state, rank, now, due + slack, taste)
            if weight and taste.weight_first:
                return W, state.pending[rank][0], now
            for place, ready, kind, stage in coming[1:]:
                took = work.forward[stage] if kind == F else work.gradient[stage]
                if ready <= soon and now + took <= due + taste.ahead_push * took + slack and (kind == I or _room(plan, rank, place)):
                    return kind, stage, now
            if weight:
                return W, state.pending[rank][0], now
            later = [ready for _, ready, _, _ in coming if ready > soon]
            return WAIT, 0, min(later, default=NEVER)

        return pick

    return picker


@dataclass(frozen=True, slots=True)
class _Plan:
    work: Work
    state: Running
    turns: list[list[Lane]]
    ordinals: list[list[int]]
    """(p,) of each turn, its microbatch."""
    places: list[dict[Lane, list[int]]]
    """(p,) of each lane, the turn of every microbatch."""


def _positions(turns: list[list[Lane]]) -> tuple[list[list[int]], list[dict[Lane, list[int]]]]:
    ordinals, places = [], []
    for row in turns:
        there: dict[Lane, list[int]] = {lane: [] for lane in sorted(set(row))}
        numbers = []
        for place, lane in enumerate(row):
            numbers.append(len(there[lane]))
            there[lane].append(place)
        ordinals.append(numbers)
        places.append(there)
    return ordinals, places


def _coming(plan: _Plan, rank: int) -> list[tuple[int, float, int, int]]:
    """The next turn of each lane, by turn: (place, when its input is there, kind, stage)."""
    state, coming = plan.state, []
    for (stage, kind), places in plan.places[rank].items():
        done, ready = (state.forwards, state.forward_ready) if kind == F else (state.gradients, state.gradient_ready)
        at = done[stage]
        if at < len(places):
            times = ready[stage]
            coming.append((places[at], times[at] if at < len(times) else NEVER, kind, stage))
    coming.sort()
    return coming


def _fits(work: Work, state: Running, rank: int, now: float, due: float, taste: Taste) -> bool:
    if not state.pending[rank]:
        return False
    took = work.weight[state.pending[rank][0]]
    return now + took <= due + taste.weight_push * took


def _room(plan: _Plan, rank: int, place: int) -> bool:
    """Whether the forward at a later turn may go now: every forward before it must still find room once weight gradients are flushed."""
    state, room = plan.state, plan.work.limit + 1e-9
    if state.held[rank] + 1 > room:
        return False
    level = state.open[rank] + 1
    turns, ordinals = plan.turns[rank], plan.ordinals[rank]
    first = min(places[done] for done, places in _undone(plan, rank))
    for at in range(first, place):
        stage, kind = turns[at]
        if kind == F and ordinals[at] >= state.forwards[stage]:
            level += 1
            if level > room:
                return False
        elif kind == I and ordinals[at] >= state.gradients[stage]:
            level -= 1
    return True


def _undone(plan: _Plan, rank: int) -> list[tuple[int, list[int]]]:
    state = plan.state
    counts = [(state.forwards[s] if k == F else state.gradients[s], places) for (s, k), places in plan.places[rank].items()]
    return [(done, places) for done, places in counts if done < len(places)]
