"""DualPipeV: DualPipe cut in half; p ranks hold 2p stages placed as a V, so that parameters are
held once.
"""

from __future__ import annotations

import numpy as np

from planner.action import Order, from_rows, v_shaped
from planner.numeric import Numeric
from planner.schedules import limits, zbv
from planner.schedules.schedule import Schedule
from planner.schedules.two_directions import rank_rows

NAME = "dualpipev"
CHUNKS = (2, 2)


def legal(p: int, m: int, v: int = 2) -> None:
    """Exactly two stages a rank, m >= 2p. Raises InputError. Source: [torch-pipelining],
    [deepseek2024].
    """
    limits.sizes(NAME, p, m, v, CHUNKS)
    limits.at_least(NAME, m, 2 * p, "2p")


def order(p: int, m: int, v: int = 2) -> Order:
    """The way down the V is the first stream, the way up the second."""
    legal(p, m, v)
    return from_rows(
        [rank_rows(p, rank, m, (rank, 2 * p - 1 - rank)) for rank in range(p)], v_shaped(p)
    )


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

    Formula: m T + (p - 1) (pair + b + w - 3 w) / 2, T = f + b + w
    Source:  [deepseek2024 table 2], its repository's figure for DualPipeV
    Assumes: f = b = w; pair = T; no transfer time. With a shorter pair only the idle time of the
             busiest rank holds.
    """
    total = forward + input_grad + weight_grad
    overlapped = total if pair is None else pair
    return m * total + (p - 1) * (overlapped + input_grad - 2 * weight_grad) / 2


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where the makespan holds (pair = T)."""
    return np.equal(forward, input_grad) & np.equal(input_grad, weight_grad) & (m >= 2 * p)


def peak_in_flight(p: Numeric, m: Numeric, v: Numeric, rank: Numeric) -> Numeric:
    """Activations held by a rank at the peak, in chunks of half a stage.

    Formula: 2 p + 1
    Source:  [deepseek2024 table 2]
    Assumes: m >= 2p.
    """
    return 2 * p + 1 + 0 * rank


def exposed_transfer(p: Numeric, m: Numeric, v: Numeric, transfer: Numeric) -> Numeric:
    """What asynchronous transfers add to the makespan: a round trip of the V for every p
    microbatches.

    Formula: (2 (p - 1) (m / p + 1) - 2) c for p >= 2, none for p = 1
    Source:  fitted to the simulator's timelines of the order of [deepseek2024]
    Assumes: f = b = w and pair = T; equal transfers, short beside a chunk; p divides m. No bound:
             up to 30% low for b > w.
    """
    return (2 * (p - 1) * (m / p + 1) - 2) * transfer * (p > 1)


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
    messages=zbv.messages,
    exposed_transfer=exposed_transfer,
)
