"""ZB-H2: the fill takes twice as many forwards, so that no rank waits once it has begun; about
twice the activations of 1F1B.
"""

from __future__ import annotations

import numpy as np

from planner.action import Order, looped
from planner.numeric import Numeric
from planner.schedules import gpipe, limits
from planner.schedules.schedule import Schedule
from planner.schedules.weave import alternate_split, counted

NAME = "zb-h2"
CHUNKS = (1, 1)


def legal(p: int, m: int, v: int = 1) -> None:
    """m >= 2p, as the authors' generator. Raises InputError."""
    limits.sizes(NAME, p, m, v, CHUNKS)
    limits.at_least(NAME, m, 2 * p, "2p")


def order(p: int, m: int, v: int = 1) -> Order:
    """Rank i fills with 2 (p-1-i) forwards; its weight gradients come 2i places after their input
    gradients.
    """
    limits.sizes(NAME, p, m, v, CHUNKS)
    turns = [counted(rank, m) for rank in range(p)]
    return Order(
        tuple(
            alternate_split(turn, turn, 2 * (p - 1 - rank), 2 * rank)
            for rank, turn in enumerate(turns)
        ),
        *looped(p),
    )


def span(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """The longest time between a rank's own first start and last end.

    Formula: m (f + b + w) + (p - 1) max(0, b - f, f + b - 2w)
    Source:  [qi2023 sec. 2.3], generalised to unequal times and compared with the simulator
    Assumes: equal stages; no transfer time; m >= 2p.
    """
    gap = np.maximum(np.maximum(0, input_grad - forward), forward + input_grad - 2 * weight_grad)
    return m * (forward + input_grad + weight_grad) + (p - 1) * gap


def makespan(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Time of a step; times are of one full 1/p of the model. Zero bubble holds for the span only:
    the stagger (p-1) f stays.

    Formula: m (f + b + w) + (p - 1) max(f, b - f, f + b - 2w)
    Source:  [qi2023 sec. 2.3], generalised to unequal times and compared with the simulator
    Assumes: equal stages; no transfer time; m >= 2p.
    """
    gap = np.maximum(
        np.maximum(forward, input_grad - forward), forward + input_grad - 2 * weight_grad
    )
    return m * (forward + input_grad + weight_grad) + (p - 1) * gap


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where makespan and span hold."""
    return m >= 2 * p


def peak_in_flight(p: Numeric, m: Numeric, v: Numeric, rank: Numeric) -> Numeric:
    """Activations held by a rank at the peak, in chunks, until the weight gradient's end.

    Formula: min(m, 2 p - 1)
    Source:  [qi2023 sec. 2.3]
    Assumes: weight_retained = 1; with 0, min(m, 2 (p - rank) - 1).
    """
    return np.minimum(m, 2 * p - 1) + 0 * rank


def exposed_transfer(p: Numeric, m: Numeric, v: Numeric, transfer: Numeric) -> Numeric:
    """What asynchronous transfers add to the makespan.

    Formula: 2 (p - 1) c
    Source:  fitted to the simulator's timelines of the order of [qi2023 sec. 2.3]: fill and drain
    Assumes: equal stages and transfers, short beside a forward; an upper bound, twice what there is
             where f = b = w; m >= 2p.
    """
    return 2 * (p - 1) * transfer


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
    messages=gpipe.messages,
    exposed_transfer=exposed_transfer,
)
