"""1F1B (PipeDream-Flush): fill, alternate, drain. The same order in Megatron-LM, DeepSpeed and
torch (torch asks for m >= p).
"""

from __future__ import annotations

import numpy as np

from planner.action import Order, looped
from planner.layout import Numeric
from planner.schedules import gpipe, limits
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


def makespan(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Time of a step; times are of one full 1/p of the model.

    Formula: (m + p - 1) T, T = forward + input_grad + weight_grad
    Source:  [narayanan2021 sec. 2.2]
    Assumes: equal stages; no transfer time. Any m, also below p.
    """
    return gpipe.makespan(p, m, v, forward, input_grad, weight_grad)


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where the makespan holds."""
    return (m >= 1) & (v == 1)


def bubble_share(p: Numeric, m: Numeric, v: Numeric = 1) -> Numeric:
    """Idle time as a share of the makespan, averaged over ranks.

    Formula: (p - 1) / (m + p - 1)
    Source:  [narayanan2021 sec. 2.2], whose own figure is idle / busy, (p - 1) / m
    Assumes: equal stages; no transfer time.
    """
    return gpipe.bubble_share(p, m)


def peak_in_flight(p: Numeric, m: Numeric, v: Numeric, rank: Numeric) -> Numeric:
    """Activations held by a rank (from 0) at the peak, in chunks.

    Formula: min(m, p - rank)
    Source:  [narayanan2021 sec. 2.2]
    Assumes: nothing beyond the order.
    """
    return np.minimum(m, p - rank)


def messages(p: Numeric, m: Numeric, v: Numeric = 1) -> Numeric:
    """Tensors that cross ranks in a step, forward and backward.

    Formula: 2 m (p - 1)
    Source:  [narayanan2021 sec. 2.2]
    Assumes: nothing beyond the order.
    """
    return 2 * m * (p - 1)


def exposed_transfer(p: Numeric, m: Numeric, v: Numeric, transfer: Numeric) -> Numeric:
    """What asynchronous transfers add to the makespan: about 2 c (p-1)/p a microbatch, as p - rank
    in flight is one round trip.

    Formula: 2 c (p - 1 + (m - 2) - floor((m - 2) / p)) for m >= 2; 2 c (p - 1) for m = 1
    Source:  [narayanan2021 sec. 2.2], derived from the order and compared with the simulator
    Assumes: equal stages and transfers c; links do not contend.
    """
    later = np.maximum(m - 2, 0)
    return np.where(p > 1, 2 * transfer * (p - 1 + later - later // p), 0.0)


def blocking_transfer(p: Numeric, m: Numeric, v: Numeric, transfer: Numeric) -> Numeric:
    """What blocking transfers add to the makespan: the sender waits too, as in Megatron's 1F1B
    without interleaving.

    Formula: c (2 (p - 1) + 2 m - 3) for m >= 2; c (p - 1 + m) for p = 2; 2 c (p - 1) for m = 1;
             none for p = 1
    Source:  [megatron-core], derived from the order (by hand for p = 2 and 4) and compared with the
             simulator
    Assumes: equal stages and transfers; any c.
    """
    sends = np.where(np.equal(p, 2), m + 1, 2 * (p - 1) + np.maximum(2 * m - 3, 0))
    return np.where(p > 1, transfer * sends, 0.0)
