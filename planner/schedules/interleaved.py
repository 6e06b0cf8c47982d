"""Interleaved 1F1B of Megatron-LM: v chunks a rank, microbatches in groups
(microbatch_group_size_per_virtual_pipeline_stage).
"""

from __future__ import annotations

import numpy as np

from planner.action import Order, looped
from planner.errors import InputError
from planner.numeric import Numeric
from planner.schedules import limits, unequal
from planner.schedules.schedule import Schedule, Transfers
from planner.schedules.weave import alternate, on_rank, rounds

NAME = "interleaved"
CHUNKS = (2, None)


def legal(p: int, m: int, v: int = 2, group: int = 0) -> None:
    """Group g (0 = p) with p <= g <= m, and m mod g either 0 or >= p; at least two ranks. Raises
    InputError.

    Source: [megatron-core], its checks before the interleaved schedule runs.
    """
    limits.sizes(NAME, p, m, v, CHUNKS)
    if p < 2:
        raise InputError(
            f"{NAME} needs at least two pipeline ranks, but got p={p}; use gpipe or 1f1b for one"
            " rank"
        )
    size = group or p
    if not p <= size <= m:
        raise InputError(
            f"{NAME} needs p <= group <= m, but got p={p}, group={size}, m={m}; {_way_out(p, m)}"
        )
    if 0 < m % size < p:
        raise InputError(
            f"{NAME} needs m mod group to be 0 or at least p, but got {m} mod {size} = {m % size},"
            f" p={p}; {_way_out(p, m)}"
        )


def _way_out(p: int, m: int) -> str:
    groups = [size for size in range(p, m + 1) if m % size == 0 or m % size >= p]
    return f"use group={groups[0]}" if groups else f"use m={p} or more"


def order(p: int, m: int, v: int = 2, group: int = 0) -> Order:
    """Rank i fills with (v-1) group + 2 (p-1-i) forwards of chunks."""
    legal(p, m, v, group)
    return in_rounds(p, m, v, group or p, 2)


def in_rounds(p: int, m: int, v: int, group: int, per_hop: int) -> Order:
    """The fused order for any group: `per_hop` more chunk forwards in the fill for each rank
    further from the last.
    """
    table = rounds(m, v, group)
    fills = [(v - 1) * group + per_hop * (p - 1 - rank) for rank in range(p)]
    actions = tuple(
        alternate(on_rank(table, rank, p), on_rank(table, rank, p, v), fill)
        for rank, fill in enumerate(fills)
    )
    return Order(actions, *looped(p, v))


def makespan(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Time of a step; times are of one full 1/p of the model.

    Formula: m T + (p - 1) T / v, T = forward + input_grad + weight_grad
    Source:  [narayanan2021 sec. 2.2]
    Assumes: equal chunks; no transfer time; any group that Megatron accepts.
    """
    return (m + (p - 1) / v) * (forward + input_grad + weight_grad)


def exact(
    p: Numeric, m: Numeric, v: Numeric, forward: Numeric, input_grad: Numeric, weight_grad: Numeric
) -> Numeric:
    """Where the makespan holds."""
    return (m >= p) & (v >= 1)


def bubble_share(p: Numeric, m: Numeric, v: Numeric = 1) -> Numeric:
    """Idle time as a share of the makespan, averaged over ranks.

    Formula: (p - 1) / (v m + p - 1)
    Source:  [narayanan2021 sec. 2.2], whose own figure is idle / busy, (p - 1) / (v m)
    Assumes: equal chunks; no transfer time.
    """
    return (p - 1) / (v * m + p - 1)


def peak_in_flight(
    p: Numeric, m: Numeric, v: Numeric, rank: Numeric, group: Numeric = 0
) -> Numeric:
    """Activations held by a rank (from 0) at the peak, in chunks; group 0 = p.

    Formula: min(m v, (v - 1) g + 2 (p - 1 - rank) + 1)
    Source:  [korthikanti2022 sec. 4.2.3], whose factor 1 + (p - 1) / (p v) is rank 0 with g = p
    Assumes: nothing beyond the order; v >= 2 (Megatron runs v = 1 as plain 1F1B).
    """
    size = np.where(np.equal(group, 0), p, group)
    return np.minimum(m * v, (v - 1) * size + 2 * (p - 1 - rank) + 1)


def messages(p: Numeric, m: Numeric, v: Numeric) -> Numeric:
    """Tensors that cross ranks in a step, forward and backward; the wrap from the last rank to the
    first included.

    Formula: 2 m (p v - 1), none when p = 1
    Source:  [narayanan2021 sec. 2.2]
    Assumes: nothing beyond the order.
    """
    return 2 * m * (p * v - 1) * (p > 1)


def exposed_transfer(p: Numeric, m: Numeric, v: Numeric, transfer: Numeric) -> Numeric:
    """What asynchronous transfers add to the makespan.

    Formula: 2 (p v - 1) c
    Source:  [narayanan2021 sec. 2.2], derived from the order and compared with the simulator
    Assumes: equal chunks and transfers; group p divides m; c <= min(forward, input_grad +
             weight_grad) / v: beyond, it grows with m.
    """
    return 2 * (p * v - 1) * transfer * (p > 1)


def blocking_transfer(
    p: Numeric, m: Numeric, v: Numeric, transfer: Numeric, slack: Numeric = 0.0
) -> Numeric:
    """What blocking transfers add to the makespan: the sender waits too, as in Megatron without
    overlap of p2p communication.

    Formula: c (m (2 v - 1) + 2 p - 3) for p >= 2, none for p = 1
    Source:  [megatron-core], derived from the order and compared with the simulator
    Assumes: equal chunks and transfers, short beside a chunk; group p divides m.
    """
    return transfer * (m * (2 * v - 1) + 2 * p - 3) * (p > 1)


SCHEDULE = Schedule(
    name=NAME,
    year=2021,
    says=__doc__,
    chunks=CHUNKS,
    legal=legal,
    order=order,
    knobs=("group",),
    transfers=Transfers.BY_STACK,
    makespan=makespan,
    exact=exact,
    unequal=unequal.interleaved,
    bubble_share=bubble_share,
    peak_in_flight=peak_in_flight,
    messages=messages,
    exposed_transfer=exposed_transfer,
    blocking_transfer=blocking_transfer,
)
