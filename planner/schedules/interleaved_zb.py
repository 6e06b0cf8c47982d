"""Interleaved zero bubble of torch (InterleavedZeroBubble): ZB-H1's idea with v chunks a rank and
torch's rounds.
"""

from __future__ import annotations

import numpy as np

from planner.action import Order, looped
from planner.numeric import Numeric
from planner.schedules import interleaved, limits, zb_h1
from planner.schedules.interleaved_torch import round_size, whole_rounds
from planner.schedules.schedule import Schedule
from planner.schedules.weave import alternate_split, on_rank, rounds

NAME = "interleaved-zb"
CHUNKS = (1, None)


def legal(p: int, m: int, v: int = 2) -> None:
    """The number of rounds, max(1, m // p), divides m. Raises InputError. Source:
    [torch-pipelining].
    """
    limits.sizes(NAME, p, m, v, CHUNKS)
    whole_rounds(NAME, p, m)


def order(p: int, m: int, v: int = 2) -> Order:
    """Rank i fills with (v-1) round + (p-1-i) forwards; weight gradients come i places after their
    input gradients.
    """
    legal(p, m, v)
    size = int(round_size(p, m))
    table = rounds(m, v, size)
    actions = tuple(
        alternate_split(
            on_rank(table, rank, p), on_rank(table, rank, p, v), (v - 1) * size + p - 1 - rank, rank
        )
        for rank in range(p)
    )
    return Order(actions, *looped(p, v))


def makespan(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Time of a step; times are of one full 1/p of the model.

    Formula: m (f + b + w) + (p - 1) max(f, b, f + b - w) / v
    Source:  [qi2023 sec. 2.2], with chunks of 1/v; compared with the simulator
    Assumes: equal chunks; no transfer time; m >= p.
    """
    ideal = m * (forward + input_grad + weight_grad)
    return ideal + (zb_h1.makespan(p, m, 1, forward, input_grad, weight_grad) - ideal) / v


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where the makespan holds."""
    return m >= p


def peak_in_flight(p: Numeric, m: Numeric, v: Numeric, rank: Numeric) -> Numeric:
    """Activations held by a rank at the peak, in chunks, until the weight gradient's end.

    Formula: min(m v, (v - 1) m / rounds + p); p v when p divides m
    Source:  [torch-pipelining], its fill
    Assumes: weight_retained = 1; with 0, rank less.
    """
    return np.minimum(m * v, (v - 1) * round_size(p, m) + p) + 0 * rank


def exposed_transfer(p: Numeric, m: Numeric, v: Numeric, transfer: Numeric) -> Numeric:
    """What asynchronous transfers add to the makespan.

    Formula: ((v + 3) p - 4) c for p >= 2, none for p = 1
    Source:  fitted to the simulator's timelines of the order of [torch-pipelining]
    Assumes: equal chunks and transfers, short beside a chunk; m >= 2p; b >= w, else an upper bound.
    """
    return ((v + 3) * p - 4) * transfer * (p > 1)


SCHEDULE = Schedule(
    name=NAME,
    year=2023,
    says=__doc__,
    chunks=CHUNKS,
    legal=legal,
    order=order,
    makespan=makespan,
    exact=exact,
    peak_in_flight=peak_in_flight,
    messages=interleaved.messages,
    exposed_transfer=exposed_transfer,
)
