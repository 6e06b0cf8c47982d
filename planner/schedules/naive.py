"""Naive model parallelism: the whole batch as one microbatch, one rank at work at a time."""

from __future__ import annotations

from planner.action import Order
from planner.errors import InputError
from planner.numeric import Numeric
from planner.schedules import gpipe, limits, unequal
from planner.schedules.schedule import Schedule, Transfers

NAME = "naive"
CHUNKS = (1, 1)


def legal(p: int, m: int, v: int = 1) -> None:
    """m = 1: the batch is not split. Raises InputError."""
    limits.sizes(NAME, p, m, v, CHUNKS)
    if m != 1:
        raise InputError(
            f"{NAME} runs the batch as one microbatch, but got m={m}; use m=1, or gpipe for several"
        )


def order(p: int, m: int, v: int = 1) -> Order:
    """Forward through all ranks, then backward."""
    legal(p, m, v)
    return gpipe.order(p, m)


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where the makespan holds."""
    return (m == 1) & (v == 1)


SCHEDULE = Schedule(
    name=NAME,
    year=0,
    says=__doc__,
    chunks=CHUNKS,
    legal=legal,
    order=order,
    transfers=Transfers.BLOCKING,
    makespan=gpipe.makespan,
    exact=exact,
    unequal=unequal.one_at_a_time,
    peak_in_flight=gpipe.peak_in_flight,
    messages=gpipe.messages,
    exposed_transfer=gpipe.exposed_transfer,
    blocking_transfer=gpipe.blocking_transfer,
)
