"""What each layout's own schedule says in closed form: idle time, exposed transfers, activations in
flight, messages.

The formulas are those of planner.schedules, where tests compare them with the simulator. A batch
may mix schedules: each formula sees the rows of its schedule.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.layout import SCHEDULES, Layouts
from planner.numeric import Numeric
from planner.schedules.schedule import Schedule, Transfers
from planner.schedules.table import SCHEDULES as TABLE
from planner.schedules.unequal import Chunks
from planner.specs.software import Software


def by_schedule(layout: Layouts, formula: Callable[..., Numeric], *arguments: Numeric) -> Numeric:
    """formula(schedule, *arguments) with the schedule of each row and the arguments' rows."""
    codes = layout.schedule
    if not isinstance(codes, np.ndarray):
        return formula(TABLE[SCHEDULES[int(codes)]], *arguments)
    present = np.flatnonzero(np.bincount(codes))
    if len(present) == 1:
        return formula(TABLE[SCHEDULES[present[0]]], *arguments)
    column = np.empty(len(codes))
    for code in present:
        rows = np.flatnonzero(codes == code)
        taken = (_rows(argument, rows) for argument in arguments)
        column[rows] = formula(TABLE[SCHEDULES[code]], *taken)
    return column


def _rows(argument: Numeric, rows: np.ndarray) -> Numeric:
    return argument[rows] if isinstance(argument, np.ndarray) and argument.ndim else argument


def blocking(schedule: Schedule, software: Software) -> bool:
    """Whether transfers hold up the sender under this training software."""
    if schedule.transfers is Transfers.BY_STACK:
        return not software.overlap.p2p
    return schedule.transfers is Transfers.BLOCKING


def in_flight(layout: Layouts, rank: Numeric) -> Numeric:
    """Activations held at the peak by a pipeline rank (from 0), in whole stages.

    Formula: peak_in_flight() of the schedule / v
    Source:  planner.schedules
    Assumes: chunks of a rank alike.
    """

    def peak(
        schedule: Schedule, p: Numeric, m: Numeric, v: Numeric, rank: Numeric, group: Numeric
    ) -> Numeric:
        own = {"group": group} if "group" in schedule.knobs else {}
        return schedule.peak_in_flight(p, m, v, rank, **own) / v

    return by_schedule(layout, peak, layout.pp, layout.m, layout.v, rank, layout.group)


def messages(layout: Layouts) -> Numeric:
    """Activation and gradient tensors that cross ranks in a step of one pipeline."""
    return by_schedule(
        layout, lambda schedule, p, m, v: schedule.messages(p, m, v), layout.pp, layout.m, layout.v
    )


def exposed_transfer_s(
    software: Software, layout: Layouts, transfer_s: Numeric, work: Chunks
) -> Numeric:
    """Seconds that transfers between stages add to a step.

    work: one micro-batch, forward and backward, on the first, a middle and the last rank.

    Formula: blocking_transfer() of the schedule where the sender waits; else exposed_transfer(),
             and 2 m v (c - chunk) where a transfer c outlasts a chunk, T / (2 v)
    Source:  planner.schedules; [megatron-core] exchanges in blocking pairs unless interleaved and
             overlapped
    Assumes: transfers alike; T of the slowest rank; the other ranks alike.
    """

    def exposed(
        schedule: Schedule,
        p: Numeric,
        m: Numeric,
        v: Numeric,
        c: Numeric,
        slowest: Numeric,
        others: Numeric,
    ) -> Numeric:
        if schedule.blocking_transfer is not None and blocking(schedule, software):
            return schedule.blocking_transfer(p, m, v, c, m * (slowest - others))
        longer = np.maximum(c - slowest / (2 * v), 0.0)
        return schedule.exposed_transfer(p, m, v, c) + 2 * m * v * longer

    others = np.where(np.greater(layout.pp, 2), work.middle, np.minimum(work.first, work.last))
    times = (transfer_s, work.slowest(layout.pp), others)
    return by_schedule(layout, exposed, layout.pp, layout.m, layout.v, *times)


def idle_s(
    software: Software, layout: Layouts, forward: Chunks, backward: Chunks, weight_s: Numeric
) -> Numeric:
    """Seconds of a step that the slowest rank waits for others, without transfers.

    forward, backward: one micro-batch on the first, a middle and the last rank, all chunks of a
    rank together. weight_s: the weight gradient in that, mean of the ranks.

    Formula: unequal() of the schedule - m max T; where it has none makespan() - m T for the mean
             rank, span() with post-validation
    Source:  planner.schedules; [qi2023] sec. 4 for post-validation
    Assumes: middle ranks alike; without unequal(), ranks alike.
    """

    def idle(
        schedule: Schedule,
        p: Numeric,
        m: Numeric,
        v: Numeric,
        f_first: Numeric,
        f_middle: Numeric,
        f_last: Numeric,
        b_first: Numeric,
        b_middle: Numeric,
        b_last: Numeric,
        weight: Numeric,
    ) -> Numeric:
        forward, backward = Chunks(f_first, f_middle, f_last), Chunks(b_first, b_middle, b_last)
        if schedule.unequal is not None:
            busy = m * (forward + backward).slowest(p)
            if schedule.chunks != (1, 1):
                forward, backward = forward.divided(v), backward.divided(v)
            waits = schedule.unequal(p, m, v, forward, backward) - busy
        else:
            f, b = forward.through(p) / p, backward.through(p) / p
            length = schedule.makespan
            if software.quirks.post_validation and schedule.span is not None:
                length = schedule.span
            waits = length(p, m, v, f, b - weight, weight) - m * (f + b)
        return np.maximum(waits, 0.0) * (p > 1)

    times = (*forward.columns, *backward.columns, weight_s)
    return by_schedule(layout, idle, layout.pp, layout.m, layout.v, *times)
