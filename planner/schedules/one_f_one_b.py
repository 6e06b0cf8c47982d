"""1F1B (PipeDream-Flush): fill, alternate, drain. The same order in Megatron-LM, DeepSpeed and
torch (torch asks for m >= p).
"""

from __future__ import annotations

import numpy as np

from planner.action import Order, looped
from planner.numeric import Numeric
from planner.schedules import gpipe, limits, unequal
from planner.schedules.schedule import Schedule, Transfers
from planner.schedules.weave import alternate, counted

NAME = "1f1b"
CHUNKS = (1, 1)


def legal(p: int, m: int, v: int = 1) -> None:
    """Any p and m. Raises InputError."""
    limits.sizes(NAME, p, m, v, CHUNKS)


def order(p: int, m: int, v: int = 1) -> Order:
    """Rank i fills with p-1-i forwards."""
    legal(p, m, v)
    turns = [counted(rank, m) for rank in range(p)]
    return Order(
        tuple(alternate(turn, turn, p - 1 - rank) for rank, turn in enumerate(turns)), *looped(p)
    )


def peak_in_flight(p: Numeric, m: Numeric, v: Numeric, rank: Numeric) -> Numeric:
    """Activations held by a rank (from 0) at the peak, in chunks.

    Formula: min(m, p - rank)
    Source:  [narayanan2021 sec. 2.2]
    Assumes: nothing beyond the order.
    """
    return np.minimum(m, p - rank)


def exposed_transfer(p: Numeric, m: Numeric, v: Numeric, transfer: Numeric) -> Numeric:
    """What asynchronous transfers add to the makespan: about 2 c (p-1)/p a microbatch, as p - rank
    in flight is one round trip.

    Formula: 2 c (p - 1 + (m - 2) - floor((m - 2) / p)) for m >= 2; 2 c (p - 1) for m = 1
    Source:  [narayanan2021 sec. 2.2], derived from the order and compared with the simulator
    Assumes: equal stages and transfers c; links do not contend.
    """
    later = np.maximum(m - 2, 0)
    return np.where(p > 1, 2 * transfer * (p - 1 + later - later // p), 0.0)


def blocking_transfer(
    p: Numeric, m: Numeric, v: Numeric, transfer: Numeric, slack: Numeric = 0.0
) -> Numeric:
    """What blocking transfers add to the makespan: the sender waits too, as in Megatron's 1F1B
    without interleaving.

    slack: by how much longer than a middle rank (than the other one of two) the slowest end rank
    works in a step; an end sends half as often.

    Formula: max(c (2 (p - 1) + 2 m - 3) - slack, c (2 (p - 1) + m - 1)) for p >= 3; c (m + 1) for
             p = 2; 2 c (p - 1) for m = 1; none for p = 1
    Source:  [megatron-core], derived from the order (by hand for p = 2 and 4) and compared with the
             simulator
    Assumes: equal transfers, any c; stages equal but for one slower end.
    """
    at_end = 2 * (p - 1) + m - 1
    between = np.where(np.equal(p, 2), 0, 2 * (p - 1) + np.maximum(2 * m - 3, 0))
    return np.maximum(transfer * between - slack, transfer * at_end) * (p > 1)


SCHEDULE = Schedule(
    name=NAME,
    year=2021,
    says=__doc__,
    chunks=CHUNKS,
    legal=legal,
    order=order,
    transfers=Transfers.BLOCKING,
    makespan=gpipe.makespan,
    exact=gpipe.exact,
    unequal=unequal.one_f_one_b,
    bubble_share=gpipe.bubble_share,
    peak_in_flight=peak_in_flight,
    messages=gpipe.messages,
    exposed_transfer=exposed_transfer,
    blocking_transfer=blocking_transfer,
)
