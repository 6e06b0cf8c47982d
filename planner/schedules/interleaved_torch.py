"""Interleaved 1F1B of torch: rounds of m / max(1, m // p) microbatches, so that m need not be a
multiple of p.

With v = 1 it is not 1F1B: it fills with 2 (p-1-i) forwards, holds more activations, and hides
transfers better.
"""

from __future__ import annotations

import numpy as np

from planner.action import Order
from planner.errors import InputError
from planner.numeric import Numeric
from planner.schedules import interleaved, limits
from planner.schedules.schedule import Schedule

NAME = "interleaved-torch"
CHUNKS = (1, None)


def legal(p: int, m: int, v: int = 2) -> None:
    """The number of rounds, max(1, m // p), divides m. Raises InputError. Source:
    [torch-pipelining].
    """
    limits.sizes(NAME, p, m, v, CHUNKS)
    whole_rounds(NAME, p, m)


def whole_rounds(name: str, p: int, m: int) -> None:
    """torch's condition on m, shared with its interleaved zero bubble schedule."""
    count = max(1, m // p)
    if m % count:
        fits = [n for n in range(1, m + 2 * p) if n % max(1, n // p) == 0]
        below, above = max(n for n in fits if n < m), min(n for n in fits if n > m)
        got = (
            f"{name} needs m to be a multiple of its {count} rounds (m // p), but got m={m}, p={p}"
        )
        raise InputError(f"{got}; use m={below} or m={above}")


def round_size(p: Numeric, m: Numeric) -> Numeric:
    """Microbatches a round."""
    return m // np.maximum(1, m // p)


def order(p: int, m: int, v: int = 2) -> Order:
    """Megatron's order with the round size as the group."""
    legal(p, m, v)
    return interleaved.in_rounds(p, m, v, int(round_size(p, m)), 2)


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where the makespan holds."""
    return m >= p


def peak_in_flight(p: Numeric, m: Numeric, v: Numeric, rank: Numeric) -> Numeric:
    """Activations held by a rank (from 0) at the peak, in chunks.

    Formula: min(m v, (v - 1) m / rounds + 2 (p - 1 - rank) + 1)
    Source:  [torch-pipelining], its fill
    Assumes: nothing beyond the order.
    """
    return np.minimum(m * v, (v - 1) * round_size(p, m) + 2 * (p - 1 - rank) + 1)


SCHEDULE = Schedule(
    name=NAME,
    year=2021,
    says=__doc__,
    chunks=CHUNKS,
    legal=legal,
    order=order,
    makespan=interleaved.makespan,
    exact=exact,
    bubble_share=interleaved.bubble_share,
    peak_in_flight=peak_in_flight,
    messages=interleaved.messages,
    exposed_transfer=interleaved.exposed_transfer,
    blocking_transfer=interleaved.blocking_transfer,
)
