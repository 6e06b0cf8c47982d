"""Pickers of V-shaped schedules: they follow the turns of a stable pattern, and run ahead of it
where there is room.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.action import F, I, W
from planner.schedules.automatic.list_scheduling import (
    NEVER,
    WAIT,
    Pick,
    Picker,
    Running,
    Work,
    slack_of,
)
from planner.schedules.automatic.v_patterns import Lane


@dataclass(frozen=True, slots=True)
class Taste:
    """How a rank fills the time until the action that is due."""

    weight_push: float
    """Share of a weight gradient by which it may delay the action that is due; 0 = it must fit the
    gap.
    """
    ahead_push: float
    """The same for an action taken ahead of its turn."""
    weight_first: bool
    """Fill with weight gradients before actions ahead of their turn."""
    reach: int
    """Turns that an action may be ahead of what is due."""


def follow(turns: list[list[Lane]], taste: Taste) -> Picker:
    """Each rank does what is due in its turn; while that is not ready, weight gradients, or what is
    ready ahead of its turn.

    A forward goes ahead of its turn only if what is due before it still finds room, so a pattern
    that fits the memory never blocks.
    """

    def picker(work: Work, state: Running) -> Pick:
        rows = [_row(work, state, row) for row in turns]
        slack, room, pending, held = slack_of(work), work.limit + 1e-9, state.pending, state.held

        def pick(rank: int, now: float) -> tuple[int, int, float]:
            soon, waiting, row = now + slack, pending[rank], rows[rank]
            first, due, kind, stage = _due(row)
            if stage < 0:
                return (W, waiting[0], now) if waiting else (WAIT, 0, NEVER)
            if due <= soon:
                full = kind == F and held[rank] + 1 > room
                return (W, waiting[0], now) if full else (kind, stage, now)
            took = work.weight[waiting[0]] if waiting else 0.0
            weight = bool(waiting) and now + took <= due + taste.weight_push * took + slack
            if weight and taste.weight_first:
                return W, waiting[0], now
            ready, wake = _ahead(row, first, soon, taste.reach)
            for place, kind, stage, took in ready:
                fits = now + took <= due + taste.ahead_push * took + slack
                if fits and (
                    kind == I
                    or (held[rank] + 1 <= room and _room(row, first, place, state.open[rank], room))
                ):
                    return kind, stage, now
            if weight:
                return W, waiting[0], now
            return WAIT, 0, min(due, wake)

        return pick

    return picker


@dataclass(slots=True)
class _Row:
    """The turns of one rank."""

    next: int
    """No turn before this one is left."""
    turns: list[tuple[int, int]]
    """Lane and microbatch of each turn."""
    lanes: list[tuple[list[int], int, list[float], list[int], int, float]]
    """Of each lane: the counts that hold how many are done, its stage, when its inputs are there,
    its turns, its kind, its time.
    """


def _row(work: Work, state: Running, turns: list[Lane]) -> _Row:
    places: dict[Lane, list[int]] = {lane: [] for lane in sorted(set(turns))}
    numbers = {lane: number for number, lane in enumerate(places)}
    numbered = []
    for place, lane in enumerate(turns):
        numbered.append((numbers[lane], len(places[lane])))
        places[lane].append(place)
    lanes = []
    for (stage, kind), there in places.items():
        done, ready, took = (
            (state.forwards, state.forward_ready, work.forward)
            if kind == F
            else (state.gradients, state.gradient_ready, work.gradient)
        )
        lanes.append((done, stage, ready[stage], there, kind, took[stage]))
    return _Row(0, numbered, lanes)


def _due(row: _Row) -> tuple[int, float, int, int]:
    """The first turn that is left: its place, when its input is there, its kind and stage (-1: none
    is left).
    """
    turns, lanes = row.turns, row.lanes
    for place in range(row.next, len(turns)):
        lane, number = turns[place]
        done, stage, ready, _, kind, _ = lanes[lane]
        if number >= done[stage]:
            row.next = place
            return place, ready[number] if number < len(ready) else NEVER, kind, stage
    row.next = len(turns)
    return row.next, NEVER, I, -1


def _ahead(
    row: _Row, first: int, soon: float, reach: int
) -> tuple[list[tuple[int, int, int, float]], float]:
    """What is ready ahead of its turn (place, kind, stage, time), by turn; and when the next of the
    others will be ready.
    """
    candidates, wake = [], NEVER
    for done, stage, ready, places, kind, took in row.lanes:
        at = done[stage]
        if at < len(ready) and first < places[at] <= first + reach:
            if ready[at] <= soon:
                candidates.append((places[at], kind, stage, took))
            elif ready[at] < wake:
                wake = ready[at]
    candidates.sort()
    return candidates, wake


def _room(row: _Row, first: int, place: int, level: int, room: float) -> bool:
    """Whether the forward at a later turn may go now: every forward before it must still find room
    once weight gradients are flushed.
    """
    level += 1
    counts = [done[stage] for done, stage, *_ in row.lanes]
    forward = [kind == F for *_, kind, _ in row.lanes]
    for lane, number in row.turns[first:place]:
        if number < counts[lane]:
            continue
        level += 1 if forward[lane] else -1
        if level > room:
            return False
    return True
