"""GPipe: all forwards, then all backwards in the same microbatch order (as torch runs it)."""

from __future__ import annotations

import numpy as np

from planner.action import Order, looped
from planner.numeric import Numeric
from planner.schedules import limits, unequal
from planner.schedules.schedule import Schedule, Transfers
from planner.schedules.weave import alternate, counted

NAME = "gpipe"
CHUNKS = (1, 1)


def legal(p: int, m: int, v: int = 1) -> None:
    """Any p and m. Raises InputError."""
    limits.sizes(NAME, p, m, v, CHUNKS)


def order(p: int, m: int, v: int = 1) -> Order:
    """Fill with all m forwards, then drain."""
    legal(p, m, v)
    turns = [counted(rank, m) for rank in range(p)]
    return Order(tuple(alternate(turn, turn, m) for turn in turns), *looped(p))


def makespan(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Time of a step; times are of one full 1/p of the model.

    Formula: (m + p - 1) T, T = forward + input_grad + weight_grad
    Source:  [huang2019 sec. 2.3]
    Assumes: equal stages; no transfer time.
    """
    return (m + p - 1) * (forward + input_grad + weight_grad)


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where the makespan holds."""
    return (m >= 1) & (v == 1)


def bubble_share(p: Numeric, m: Numeric, v: Numeric = 1) -> Numeric:
    """Idle time as a share of the makespan, averaged over ranks.

    Formula: (p - 1) / (m + p - 1)
    Source:  [huang2019 sec. 2.3]
    Assumes: equal stages; no transfer time.
    """
    return (p - 1) / (m + p - 1)


def peak_in_flight(p: Numeric, m: Numeric, v: Numeric, rank: Numeric) -> Numeric:
    """Activations held by a rank at the peak, in chunks.

    Formula: m
    Source:  [huang2019 sec. 2.3]
    Assumes: nothing beyond the order.
    """
    return m + 0 * rank


def messages(p: Numeric, m: Numeric, v: Numeric = 1) -> Numeric:
    """Tensors that cross ranks in a step, forward and backward.

    Formula: 2 m (p - 1)
    Source:  [huang2019 sec. 2.3]
    Assumes: nothing beyond the order.
    """
    return 2 * m * (p - 1)


def exposed_transfer(p: Numeric, m: Numeric, v: Numeric, transfer: Numeric) -> Numeric:
    """What asynchronous transfers add to the makespan.

    Formula: 2 (p - 1) c
    Source:  [huang2019 sec. 2.3], fill and drain of the microbatch pipeline
    Assumes: equal stages and transfers c; links do not contend.
    """
    return 2 * (p - 1) * transfer


def blocking_transfer(
    p: Numeric, m: Numeric, v: Numeric, transfer: Numeric, slack: Numeric = 0.0
) -> Numeric:
    """What blocking transfers add to the makespan: the sender waits too.

    slack: by how much longer than a middle rank (than the other one of two) the slowest end rank
    works in a step; an end sends half as often.

    Formula: max(2 c (p + m - 2) - slack, c (2 (p - 1) + m - 1)) for p >= 2, none for p = 1
    Source:  [huang2019 sec. 2.3], derived from the order and compared with the simulator
    Assumes: equal transfers, any c; stages equal but for one slower end.
    """
    at_end = transfer * (2 * (p - 1) + m - 1)
    return np.maximum(2 * transfer * (p + m - 2) - slack, at_end) * (p > 1)


SCHEDULE = Schedule(
    name=NAME,
    year=2019,
    says=__doc__,
    chunks=CHUNKS,
    legal=legal,
    order=order,
    transfers=Transfers.BLOCKING,
    makespan=makespan,
    exact=exact,
    unequal=unequal.gpipe,
    bubble_share=bubble_share,
    peak_in_flight=peak_in_flight,
    messages=messages,
    exposed_transfer=exposed_transfer,
    blocking_transfer=blocking_transfer,
)
