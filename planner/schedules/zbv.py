"""ZBV as torch's table (ZBVZeroBubble): two chunks a rank placed as a V, for equal forward, input
gradient and weight gradient.

Zero bubble in the span sense only, and only for equal times; the automatic variant adapts to
others.
"""

from __future__ import annotations

import numpy as np

from planner.action import F, I, Order, W, from_rows, v_shaped
from planner.numeric import Numeric
from planner.schedules import limits
from planner.schedules.schedule import Schedule

NAME = "zbv"
CHUNKS = (2, 2)

Row = tuple[int, int, int]


def legal(p: int, m: int, v: int = 2) -> None:
    """Exactly two stages a rank; any m (below 2p-1 the table of 2p-1 is cut). Raises InputError.
    Source: [torch-pipelining].
    """
    limits.sizes(NAME, p, m, v, CHUNKS)


def order(p: int, m: int, v: int = 2) -> Order:
    """Fill down the V and back, then F I W of one chunk and of the other in turn, then drain."""
    legal(p, m, v)
    full = max(2 * p - 1, m)
    ranks = [[row for row in _rank(p, full, rank) if row[2] < m] for rank in range(p)]
    return from_rows(ranks, v_shaped(p))


def _rank(p: int, m: int, rank: int) -> list[Row]:
    down, up = rank, 2 * p - 1 - rank
    fill = 2 * (p - rank) - 1
    rows: list[Row] = [(down, F, j) for j in range(fill)]
    for j in range(rank):
        rows += [(up, F, j), (down, F, fill + j)]
    for j in range(p - rank):
        rows += [(up, F, rank + j), *_both(up, j)]
    ahead, steady = (
        fill + rank,
        m - p,
    )  # forwards done on the way down; turns until the way up has all of its own
    for j in range(steady):
        rows += [(down, F, ahead + j)] if ahead + j < m else []
        rows += [*_both(down, j), (up, F, p + j), *_both(up, p - rank + j)]
    return rows + _drain(p, m, rank, steady)


def _both(stage: int, j: int) -> list[Row]:
    return [(stage, I, j), (stage, W, j)]


def _drain(p: int, m: int, rank: int, steady: int) -> list[Row]:
    """Input gradients of both chunks in turn, then those of the first chunk with its waiting weight
    gradients, then what is left.
    """
    down, up = rank, 2 * p - 1 - rank
    rows: list[Row] = []
    for j in range(rank):
        rows += [(down, I, steady + j), (up, I, m - rank + j)]
    for j in range(p - rank):
        rows += [(down, I, steady + rank + j), (down, W, steady + j)]
    rows += [(up, W, j) for j in range(m - rank, m)]
    return rows + [(down, W, j) for j in range(m - rank, m)]


def span(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """The longest time between a rank's own first start and last end.

    Formula: m (f + b + w)
    Source:  [qi2023 sec. 6]
    Assumes: f = b = w; no transfer time; m >= 2p - 1.
    """
    return m * (forward + input_grad + weight_grad) + 0 * p


def makespan(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Time of a step; times are of one full 1/p of the model.

    Formula: m (f + b + w) + (p - 1) f / 2
    Source:  [qi2023 sec. 6]
    Assumes: f = b = w; no transfer time; m >= 2p - 1. Otherwise simulate.
    """
    return m * (forward + input_grad + weight_grad) + (p - 1) * forward / 2


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where makespan and span hold."""
    return np.equal(forward, input_grad) & np.equal(input_grad, weight_grad) & (m >= 2 * p - 1)


def peak_in_flight(p: Numeric, m: Numeric, v: Numeric, rank: Numeric) -> Numeric:
    """Activations held by a rank at the peak, in chunks of half a stage.

    Formula: min(2 p, 2 m, m + 1 + rank); 2 p when m >= 2p - 1
    Source:  [qi2023 sec. 6]
    Assumes: weight_retained = 1.
    """
    return np.minimum(np.minimum(2 * p, 2 * m), m + 1 + rank)


def messages(p: Numeric, m: Numeric, v: Numeric = 2) -> Numeric:
    """Tensors that cross ranks in a step, forward and backward; the turn of the V stays on the last
    rank.

    Formula: 4 m (p - 1)
    Source:  [qi2023 sec. 6]
    Assumes: nothing beyond the order.
    """
    return 4 * m * (p - 1)


def exposed_transfer(p: Numeric, m: Numeric, v: Numeric, transfer: Numeric) -> Numeric:
    """What asynchronous transfers add to the makespan.

    Formula: (5 p - 7) c for p >= 2, none for p = 1
    Source:  fitted to the simulator's timelines of the order of [qi2023 sec. 6]
    Assumes: f = b = w; equal transfers, short beside a chunk; m >= 2p. Elsewhere no bound: 25% low
             for b = 3 w, too high for b < w.
    """
    return (5 * p - 7) * transfer * (p > 1)


SCHEDULE = Schedule(
    name=NAME,
    year=2023,
    says=__doc__,
    chunks=CHUNKS,
    legal=legal,
    order=order,
    makespan=makespan,
    exact=exact,
    span=span,
    peak_in_flight=peak_in_flight,
    messages=messages,
    exposed_transfer=exposed_transfer,
)
