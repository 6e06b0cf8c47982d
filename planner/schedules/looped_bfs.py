"""Breadth-first pipeline: every chunk runs all its microbatches before the next; backwards in
reverse, chunks and microbatches.
"""

from __future__ import annotations

import numpy as np

from planner.action import Order, looped
from planner.numeric import Numeric
from planner.schedules import interleaved, limits
from planner.schedules.schedule import Schedule
from planner.schedules.weave import alternate, on_rank, rounds

NAME = "looped-bfs"
CHUNKS = (1, None)


def legal(p: int, m: int, v: int = 2) -> None:
    """Any p, m and v. Raises InputError."""
    limits.sizes(NAME, p, m, v, CHUNKS)


def order(p: int, m: int, v: int = 2) -> Order:
    """All forwards chunk by chunk, then exactly the reverse."""
    legal(p, m, v)
    table = rounds(m, v, m)
    turns = [on_rank(table, rank, p) for rank in range(p)]
    return Order(tuple(alternate(turn, turn[::-1], m * v) for turn in turns), *looped(p, v))


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where the makespan holds."""
    return m >= p


def peak_in_flight(p: Numeric, m: Numeric, v: Numeric, rank: Numeric) -> Numeric:
    """Activations held by a rank at the peak, in chunks.

    Formula: m v
    Source:  [lamypoirier2023 sec. 4]
    Assumes: nothing beyond the order.
    """
    return np.multiply(m, v) + 0 * rank


def exposed_transfer(p: Numeric, m: Numeric, v: Numeric, transfer: Numeric) -> Numeric:
    """What asynchronous transfers add to the makespan: beyond p micro-batches a chunk's activations
    arrive before its turn.

    Formula: 2 (p - 1) c for m > p; 2 (p v - 1) c for m <= p
    Source:  [lamypoirier2023 sec. 4], derived from the order and compared with the simulator
    Assumes: equal chunks and transfers; p c at most m - p chunks' forwards.
    """
    chunks = np.where(np.greater(m, p), 1, v)
    return 2 * (p * chunks - 1) * transfer * (p > 1)


SCHEDULE = Schedule(
    name=NAME,
    year=2023,
    says=__doc__,
    chunks=CHUNKS,
    legal=legal,
    order=order,
    makespan=interleaved.makespan,
    exact=exact,
    bubble_share=interleaved.bubble_share,
    peak_in_flight=peak_in_flight,
    messages=interleaved.messages,
    exposed_transfer=exposed_transfer,
)
