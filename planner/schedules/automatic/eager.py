"""Automatic schedules with one chunk a rank (ZB1P, ZB2P): pickers that differ in how eager they
are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from planner.action import F, I, Order, W, looped
from planner.schedules.automatic.attempts import best, order_of, prepared
from planner.schedules.automatic.list_scheduling import (
    NEVER,
    WAIT,
    Pick,
    Picker,
    Running,
    Work,
    slack_of,
)
from planner.simulator import Floats


@dataclass(frozen=True, slots=True)
class Taste:
    """How a rank chooses when it is free."""

    weight_push: float
    """Share of a weight gradient by which it may delay the next action that is known to come; 0 =
    it must fit the gap.
    """
    forward_push: float
    """The same for a forward before an input gradient that is known to come."""
    forward_first: bool
    """When both are ready: the forward (feeds the ranks after) before the input gradient (feeds
    those before).
    """


TASTES = (
    Taste(0.0, 1.0, False),
    Taste(0.0, 1.0, True),
    Taste(0.0, 0.0, False),
    Taste(0.0, 0.0, True),
    Taste(1.0, 1.0, False),
    Taste(0.5, 0.5, False),
    Taste(1.0, 0.0, True),
    Taste(0.5, 1.0, False),
    Taste(0.5, 0.5, True),
    Taste(1.0, 0.5, False),
)


def one_chunk_order(
    p: int,
    m: int,
    durations: Floats | None,
    transfer: float | Floats,
    memory_limit: float,
    weight_retained: float,
) -> Order:
    """The best order found; one stage a rank, at most memory_limit activations held on each."""
    return _order(prepared(looped(p), m, durations, transfer, memory_limit, weight_retained))


@lru_cache(maxsize=64)
def _order(work: Work) -> Order:
    """Layouts that differ in their number of microbatches alone are simulated over the same few:
    their work is equal.
    """
    return order_of(best(work, _attempts(work)), looped(work.p))


def _attempts(work: Work) -> Iterator[Picker]:
    for caps in _caps(work):
        for taste in TASTES:
            yield eager(taste, caps)


def _caps(work: Work) -> list[list[int]]:
    """How many forwards each rank may be ahead of its input gradients, a few ways.

    The ranks before the last need one more each to cover the way to the end and back; a memory of
    2p lets them have two more each.
    """
    room = min(2.0, max(1.0, work.limit / work.p))
    slopes = dict.fromkeys((room, 1.0, 2.0, 1.5, 1.25, 0.75))
    caps = dict.fromkeys(
        tuple(
            min(int(work.limit), int(slope * (work.p - 1 - rank)) + 1 + extra)
            for rank in range(work.p)
        )
        for slope in slopes
        for extra in (0, 1)
    )
    return [list(cap) for cap in caps]


def eager(taste: Taste, caps: list[int]) -> Picker:
    """Input gradients and forwards as soon as they are there, weight gradients in the gaps or when
    memory forces them.
    """

    def picker(work: Work, state: Running) -> Pick:
        slack, room = slack_of(work), work.limit + 1e-9
        forwards, gradients, pending, held = (
            state.forwards,
            state.gradients,
            state.pending,
            state.held,
        )
        forward_ready, gradient_ready, forward, weight = (
            state.forward_ready,
            state.gradient_ready,
            work.forward,
            work.weight,
        )
        forward_first, forward_push, weight_push = (
            taste.forward_first,
            taste.forward_push,
            taste.weight_push,
        )

        def pick(rank: int, now: float) -> tuple[int, int, float]:
            soon = now + slack
            done, going = gradients[rank], forwards[rank]
            ready, coming = gradient_ready[rank], forward_ready[rank]
            back = ready[done] if done < len(ready) else NEVER
            if back <= soon and not forward_first:
                return I, rank, now
            ahead = (
                coming[going]
                if going < len(coming) and going - done < caps[rank] and held[rank] + 1 <= room
                else NEVER
            )
            if ahead <= soon:
                took = forward[rank]
                if back <= soon or now + took <= back + forward_push * took + slack:
                    return F, rank, now
                ahead = NEVER
            elif back <= soon:
                return I, rank, now
            following = back if back < ahead else ahead
            took = weight[rank]
            if pending[rank] and now + took <= following + weight_push * took + slack:
                return W, rank, now
            return WAIT, rank, following

        return pick

    return picker
