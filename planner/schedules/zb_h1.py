"""ZB-H1: 1F1B with the backward split; weight gradients fill the drain at the activation memory of
1F1B.
"""

from __future__ import annotations

import numpy as np

from planner.action import Order, looped
from planner.numeric import Numeric
from planner.schedules import gpipe, limits
from planner.schedules.schedule import Schedule
from planner.schedules.weave import alternate_split, counted

NAME = "zb-h1"
CHUNKS = (1, 1)


def legal(p: int, m: int, v: int = 1) -> None:
    """m >= p: below, nothing is left to fill the drain with. Raises InputError.

    The authors' generator asks for m >= 2p; torch's InterleavedZeroBubble with one stage a rank
    gives the same order for m >= p.
    """
    limits.sizes(NAME, p, m, v, CHUNKS)
    limits.at_least(NAME, m, p, "p")


def order(p: int, m: int, v: int = 1) -> Order:
    """Rank i fills with p-1-i forwards; its weight gradients come i places after their input
    gradients.
    """
    limits.sizes(NAME, p, m, v, CHUNKS)
    turns = [counted(rank, m) for rank in range(p)]
    return Order(
        tuple(alternate_split(turn, turn, p - 1 - rank, rank) for rank, turn in enumerate(turns)),
        *looped(p),
    )


def makespan(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Time of a step; times are of one full 1/p of the model.

    Formula: m (f + b + w) + (p - 1) max(f, b, f + b - w)
    Source:  [qi2023 sec. 2.2], generalised to unequal times and compared with the simulator
    Assumes: equal stages; no transfer time; m >= p.
    """
    gap = np.maximum(np.maximum(forward, input_grad), forward + input_grad - weight_grad)
    return m * (forward + input_grad + weight_grad) + (p - 1) * gap


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where the makespan holds."""
    return m >= p


def peak_in_flight(p: Numeric, m: Numeric, v: Numeric, rank: Numeric) -> Numeric:
    """Activations held by a rank at the peak, in chunks, until the weight gradient's end.

    Formula: min(m, p)
    Source:  [qi2023 sec. 2.2]
    Assumes: weight_retained = 1; with 0, min(m, p - rank).
    """
    return np.minimum(m, p) + 0 * rank


def exposed_transfer(p: Numeric, m: Numeric, v: Numeric, transfer: Numeric) -> Numeric:
    """What asynchronous transfers add to the makespan.

    Formula: 4 (p - 1) c
    Source:  [qi2023 sec. 2.2], derived from the order and compared with the simulator
    Assumes: equal stages and transfers; c <= w / 2, w <= min(f, b), m >= 2p.
    """
    return 4 * (p - 1) * transfer


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
    messages=gpipe.messages,
    exposed_transfer=exposed_transfer,
)
