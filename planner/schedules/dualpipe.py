"""DualPipe: microbatches enter at both ends of the pipeline; each rank holds two full stages, one
of each direction.
"""

from __future__ import annotations

import numpy as np

from planner.action import Order, from_rows, two_way
from planner.numeric import Numeric
from planner.schedules import gpipe, limits
from planner.schedules.schedule import Schedule
from planner.schedules.two_directions import rank_rows

NAME = "dualpipe"
CHUNKS = (1, 1)


def legal(p: int, m: int, v: int = 1) -> None:
    """p and m even, m >= 2p (m counts both directions). Raises InputError. Source: [deepseek2024],
    its implementation's checks.
    """
    limits.sizes(NAME, p, m, v, CHUNKS)
    limits.even(NAME, "p", p)
    limits.even(NAME, "m", m)
    limits.at_least(NAME, m, 2 * p, "2p")


def order(p: int, m: int, v: int = 1) -> Order:
    """Stages 0..p-1 are one direction, p..2p-1 the other (stage p+s on rank p-1-s); microbatches
    count per direction.
    """
    legal(p, m, v)
    ranks = []
    for rank in range(p):
        down, other = rank, 2 * p - 1 - rank
        from_start = rank < p // 2
        ranks.append(
            rank_rows(
                p // 2,
                rank if from_start else p - 1 - rank,
                m // 2,
                (down, other) if from_start else (other, down),
            )
        )
    return from_rows(ranks, two_way(p))


def makespan(
    p: Numeric,
    m: Numeric,
    v: Numeric,
    forward: Numeric,
    input_grad: Numeric,
    weight_grad: Numeric,
    pair: Numeric | None = None,
) -> Numeric:
    """Time of a step; times are of one full 1/p of the model; pair: an overlapped forward and
    backward (None = their sum).

    Formula: m T + (p/2 - 1) (pair + b + w - 3 w), T = f + b + w
    Source:  [deepseek2024 table 2]
    Assumes: f = b = w; pair = T; no transfer time. With a shorter pair only the idle time of the
             busiest rank holds.
    """
    total = forward + input_grad + weight_grad
    overlapped = total if pair is None else pair
    return m * total + (p / 2 - 1) * (overlapped + input_grad - 2 * weight_grad)


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where the makespan holds (pair = T)."""
    return np.equal(forward, input_grad) & np.equal(input_grad, weight_grad) & (m >= 2 * p)


def peak_in_flight(p: Numeric, m: Numeric, v: Numeric, rank: Numeric) -> Numeric:
    """Activations held by a rank at the peak, in full stages; the parameters are held twice.

    Formula: p + 1
    Source:  [deepseek2024 table 2]
    Assumes: m >= 2p.
    """
    return p + 1 + 0 * rank


def exposed_transfer(p: Numeric, m: Numeric, v: Numeric, transfer: Numeric) -> Numeric:
    """What asynchronous transfers add to the makespan: a round trip for every p microbatches.

    Formula: (p - 1) (m / p + 1) c
    Source:  fitted to the simulator's timelines of the order of [deepseek2024]
    Assumes: f = b = w and pair = T; equal transfers, short beside a forward; p divides m. No bound:
             2 c low for p = 8, a fifth low for b > w.
    """
    return (p - 1) * (m / p + 1) * transfer


SCHEDULE = Schedule(
    name=NAME,
    year=2024,
    says=__doc__,
    chunks=CHUNKS,
    legal=legal,
    order=order,
    makespan=makespan,
    exact=exact,
    peak_in_flight=peak_in_flight,
    messages=gpipe.messages,
    exposed_transfer=exposed_transfer,
)
