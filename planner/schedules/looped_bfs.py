"""Breadth-first pipeline: every chunk runs all its microbatches before the next; backwards in
reverse, chunks and microbatches.
"""

from __future__ import annotations

import numpy as np

from planner.action import Order, looped
from planner.layout import Numeric
from planner.schedules import interleaved, limits
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


def makespan(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Time of a step; times are of one full 1/p of the model.

    Formula: m T + (p - 1) T / v, T = forward + input_grad + weight_grad
    Source:  [lamypoirier2023 sec. 4]
    Assumes: equal chunks; no transfer time; m >= p.
    """
    return interleaved.makespan(p, m, v, forward, input_grad, weight_grad)


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where the makespan holds."""
    return m >= p


def bubble_share(p: Numeric, m: Numeric, v: Numeric = 1) -> Numeric:
    """Idle time as a share of the makespan, averaged over ranks.

    Formula: (p - 1) / (v m + p - 1)
    Source:  [lamypoirier2023 sec. 4]
    Assumes: equal chunks; no transfer time; m >= p.
    """
    return interleaved.bubble_share(p, m, v)


def peak_in_flight(p: Numeric, m: Numeric, v: Numeric, rank: Numeric) -> Numeric:
    """Activations held by a rank at the peak, in chunks.

    Formula: m v
    Source:  [lamypoirier2023 sec. 4]
    Assumes: nothing beyond the order.
    """
    return np.multiply(m, v) + 0 * rank


def messages(p: Numeric, m: Numeric, v: Numeric) -> Numeric:
    """Tensors that cross ranks in a step, forward and backward.

    Formula: 2 m (p v - 1), none when p = 1
    Source:  [lamypoirier2023 sec. 4]
    Assumes: nothing beyond the order.
    """
    return interleaved.messages(p, m, v)
