"""Automatic V-shaped schedules (ZBV, V-Half, V-Min): which stable pattern, followed in which taste,
suits the durations and the memory.
"""

from __future__ import annotations

from dataclasses import replace

from planner.action import F, I, Order, v_shaped
from planner.schedules.automatic.attempts import best, bounds, order_of, prepared, shorter, tails
from planner.schedules.automatic.list_scheduling import Built, Most, Picker, Work, length, run
from planner.schedules.automatic.v_follow import Taste, follow
from planner.schedules.automatic.v_patterns import PERIOD, Pattern, fitting, lanes
from planner.simulator import Floats

FAR = 1_000_000
TASTES = (
    Taste(0.5, 0.5, False, 4),
    Taste(1.0, 1.0, False, 2),
    Taste(0.0, 0.0, False, 4),
    Taste(1.0, 1.0, False, FAR),
    Taste(0.5, 0.5, False, FAR),
    Taste(0.5, 0.5, True, FAR),
    Taste(0.25, 0.25, False, 4),
    Taste(0.5, 0.5, False, 2),
    Taste(0.0, 0.0, True, FAR),
)
"""Those that a search over all pushes and reaches on random questions could not do without, the
most useful first.
"""
QUICK, THOROUGH = (4, 4, 1.5), (8, 10, 1.5)
"""Patterns tried in every taste on few microbatches, at least; pattern and taste tried on all; the
few, as a share of the ranks.

Thorough where transfers take time: there a pattern that is good for few microbatches tells less of
many.
"""
ROUNDS = 3
"""How often the best order is followed once more as if it were a pattern, while that helps."""
FOLLOWED_AGAIN = 250_000
"""Actions that each of these rounds may place."""
TASTED = 25_000
"""Actions that patterns in every taste may place, where that is more than the least."""
SCREENING = 200_000
"""Actions that each round on few microbatches may place."""
SMALL = 800
"""Actions below which few microbatches means all."""


def v_order(
    p: int,
    m: int,
    durations: Floats | None,
    transfer: float | Floats,
    memory_limit: float,
    weight_retained: float,
) -> Order:
    """The best order found; stages s and 2p-1-s on a rank, at most memory_limit stages of
    activations held on each.
    """
    placement = v_shaped(p)
    work = prepared(placement, m, durations, transfer, memory_limit, weight_retained)
    least, whole, share = THOROUGH if _hop(work) else QUICK
    chosen = _screened(work, least, whole, share)
    kept = best(work, (_picker(work, *each) for each in chosen))
    tastes, rounds = (TASTES, ROUNDS) if _hop(work) else (TASTES[:4], 1)
    for _ in range(rounds):
        again = best(work, (follow(_turns(kept), taste) for taste in tastes), FOLLOWED_AGAIN)
        if shorter(kept, again) is kept:
            break
        kept = again
    return order_of(kept, placement)


def _picker(work: Work, pattern: Pattern, taste: Taste) -> Picker:
    return follow(lanes(pattern, work.m), taste)


def _screened(work: Work, least: int, whole: int, share: float) -> list[tuple[Pattern, Taste]]:
    """Pattern and taste, those that do best on few microbatches first: all patterns in one taste,
    then the best in all.
    """
    few = replace(
        work, m=work.m if 6 * work.p * work.m <= SMALL else min(work.m, max(8, int(share * work.p)))
    )
    most = max(least, TASTED // (len(TASTES) * 6 * few.p * few.m))
    first = _ranked(
        few,
        [(pattern, TASTES[0]) for pattern in fitting(work.p, work.m, work.limit, _hop(work))],
        most,
    )
    return _ranked(few, [(pattern, taste) for pattern, _ in first for taste in TASTES], whole)


def _ranked(
    work: Work, tried: list[tuple[Pattern, Taste]], count: int
) -> list[tuple[Pattern, Taste]]:
    """The best of as many as the effort allows, shortest first; what is certain not to be among
    them is given up on the way.
    """
    tried = tried[: max(3, SCREENING // (6 * work.p * work.m))]
    floors, after = bounds(work), tails(work)
    fastest: list[tuple[float, int]] = []
    for at, each in enumerate(tried):
        built = run(
            work,
            _picker(work, *each),
            Most(fastest[-1][0], *floors, after) if len(fastest) == count else None,
        )
        if built is not None:
            fastest = sorted((*fastest, (length(built), at)))[:count]
    return [tried[at] for _, at in fastest]


def _hop(work: Work) -> float:
    """Slots that a transfer takes, the mean over the chain."""
    slot = (sum(work.forward) + sum(work.gradient) + sum(work.weight)) / work.p / PERIOD
    return sum(work.forward_hop) / max(1, len(work.forward_hop) - 2) / slot if slot else 0.0


def _turns(built: Built) -> list[list[tuple[int, int]]]:
    """The forwards and input gradients of an order, as turns to be followed again: it may be run
    ahead of once more.
    """
    return [[(stage, kind) for stage, kind, _ in row if kind in (F, I)] for row in built.rows]
