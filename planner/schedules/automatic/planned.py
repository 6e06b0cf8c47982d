"""The automatic schedules: orders planned for the durations, within a limit of activation memory.

They differ in their placement, in the limit and in the planner; the order depends on durations,
transfers and memory, so the simulator answers. For the search, which cannot simulate every layout,
each names the fixed schedule whose closed forms come closest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from planner.action import Order
from planner.numeric import Numeric
from planner.schedules import interleaved, limits, one_f_one_b, zb_h1, zb_h2, zbv
from planner.schedules.automatic.eager import one_chunk_order
from planner.schedules.automatic.v_search import v_order
from planner.schedules.schedule import Schedule
from planner.simulator import Floats

NO_CLOSED_FORM = (
    "No closed form: the order depends on durations, transfers and memory; the simulator answers."
)


def as_one_f_one_b(p: Numeric) -> Numeric:
    """Activations that a rank may hold by default, in full stages: what 1F1B holds on its first.

    Formula: p
    Source:  [qi2023 sec. 3]
    Assumes: nothing beyond the schedule's name.
    """
    return 1.0 * p


def twice_one_f_one_b(p: Numeric) -> Numeric:
    """Activations that a rank may hold by default, in full stages: enough for the forwards that
    fill the whole warm-up.

    Formula: 2 p
    Source:  [qi2023 sec. 3]
    Assumes: nothing beyond the schedule's name.
    """
    return 2.0 * p


def half(p: Numeric) -> Numeric:
    """Activations that a rank may hold by default, in full stages: what V-Half's stable pattern
    holds.

    Formula: p // 2 + 1
    Source:  [qi2024 sec. 3]
    Assumes: nothing beyond the schedule's name.
    """
    return p // 2 + 1.0


def third(p: Numeric) -> Numeric:
    """Activations that a rank may hold by default, in full stages: what V-Min's stable pattern
    holds.

    Formula: (p + 1) // 3 + 1
    Source:  [qi2024 sec. 3]
    Assumes: nothing beyond the schedule's name.
    """
    return (p + 1) // 3 + 1.0


def order(
    schedule: str,
    chunks: int,
    planner: Callable[..., Order],
    default_limit: Callable[[Numeric], Numeric],
    p: int,
    m: int,
    v: int | None = None,
    durations: Floats | None = None,
    transfer: float | Floats = 0.0,
    memory_limit: float | None = None,
    weight_retained: float = 1.0,
) -> Order:
    """The order planned for durations (S, 4) and transfer, as simulate takes them; None = equal
    kinds.

    memory_limit: activations a rank may hold at any time, in full stages, at least 1; until the end
    of the weight gradient, of which weight_retained is the share that stays after the input
    gradient. Raises InputError.
    """
    limits.sizes(schedule, p, m, chunks if v is None else v, (chunks, chunks))
    limit = float(default_limit(p)) if memory_limit is None else memory_limit
    return planner(p, m, durations, transfer, limit, weight_retained)


def legal(schedule: str, chunks: int, p: int, m: int, v: int | None = None) -> None:
    """The schedule's number of stages a rank; any m. Raises InputError."""
    limits.sizes(schedule, p, m, chunks if v is None else v, (chunks, chunks))


def within_limit(
    limit: Callable[[Numeric], Numeric],
    p: Numeric,
    m: Numeric,
    v: Numeric,
    rank: Numeric,
) -> Numeric:
    """Activations held by a rank at the peak, in chunks.

    Formula: v min(m, limit), the default limit of the schedule
    Source:  [qi2023 sec. 3]
    Assumes: a planned order uses what it may; weight_retained = 1.
    """
    return v * np.minimum(m, limit(p)) + 0 * rank


def _planned(
    name: str,
    year: int,
    says: str,
    chunks: int,
    limit: Callable[[Numeric], Numeric],
    closest: Schedule,
) -> Schedule:
    planner = one_chunk_order if chunks == 1 else v_order
    return Schedule(
        name=name,
        year=year,
        says=f"{says} {NO_CLOSED_FORM}",
        chunks=(chunks, chunks),
        legal=partial(legal, name, chunks),
        order=partial(order, name, chunks, planner, limit),
        knobs=("durations", "transfer", "memory_limit", "weight_retained"),
        default_limit=limit,
        makespan=closest.makespan,
        span=closest.span,
        peak_in_flight=partial(within_limit, limit),
        messages=zbv.messages if chunks == 2 else closest.messages,
        exposed_transfer=zbv.exposed_transfer if chunks == 2 else closest.exposed_transfer,
    )


ZB_1P = _planned(
    "zb-1p",
    2023,
    "ZB1P: zero bubble with the order planned for the durations, at the activation memory of 1F1B.",
    1,
    as_one_f_one_b,
    zb_h1.SCHEDULE,
)
ZB_2P = _planned(
    "zb-2p",
    2023,
    "ZB2P: zero bubble with the order planned for the durations, at twice the activation memory of"
    " 1F1B.",
    1,
    twice_one_f_one_b,
    zb_h2.SCHEDULE,
)
ZBV_AUTO = _planned(
    "zbv-auto",
    2023,
    "ZBV planned for the durations: two chunks a rank placed as a V, at the activation memory of"
    " 1F1B.",
    2,
    as_one_f_one_b,
    zbv.SCHEDULE,
)
V_HALF = _planned(
    "v-half",
    2024,
    "V-Half: two chunks a rank placed as a V, at about half the activation memory of 1F1B on every"
    " rank.",
    2,
    half,
    interleaved.SCHEDULE,
)
V_MIN = _planned(
    "v-min",
    2024,
    "V-Min: two chunks a rank placed as a V, at about a third of the activation memory of 1F1B on"
    " every rank.",
    2,
    third,
    one_f_one_b.SCHEDULE,
)
