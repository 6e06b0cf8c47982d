"""Naive model parallelism: the whole batch as one microbatch, one rank at work at a time."""

from __future__ import annotations

from planner.action import Order
from planner.errors import InputError
from planner.layout import Numeric
from planner.schedules import gpipe, limits

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


def makespan(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Time of the one microbatch through all ranks.

    Formula: p T, T = forward + input_grad + weight_grad
    Source:  [huang2019 sec. 2.3]
    Assumes: equal stages; no transfer time; m = 1.
    """
    return gpipe.makespan(p, m, v, forward, input_grad, weight_grad)


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where the makespan holds."""
    return (m == 1) & (v == 1)


def peak_in_flight(p: Numeric, m: Numeric, v: Numeric, rank: Numeric) -> Numeric:
    """Activations held by a rank at the peak, in chunks.

    Formula: m = 1
    Source:  [huang2019 sec. 2.3]
    Assumes: nothing beyond the order.
    """
    return gpipe.peak_in_flight(p, m, v, rank)


def messages(p: Numeric, m: Numeric, v: Numeric = 1) -> Numeric:
    """Tensors that cross ranks in a step.

    Formula: 2 m (p - 1)
    Source:  [huang2019 sec. 2.3]
    Assumes: nothing beyond the order.
    """
    return gpipe.messages(p, m, v)


def exposed_transfer(p: Numeric, m: Numeric, v: Numeric, transfer: Numeric) -> Numeric:
    """What asynchronous transfers add to the makespan.

    Formula: 2 (p - 1) c
    Source:  [huang2019 sec. 2.3]
    Assumes: equal transfers c; links do not contend.
    """
    return gpipe.exposed_transfer(p, m, v, transfer)
