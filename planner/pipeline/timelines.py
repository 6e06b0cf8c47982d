"""Schedules on the simulator: one, or all that are legal. Times in the unit of the durations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.action import PAIR, Order, looped, v_shaped
from planner.errors import InputError
from planner.schedules.durations import pair_durations, stage_durations
from planner.schedules.table import SCHEDULES, schedule
from planner.schedules.table import order as order_of
from planner.simulator import Timeline, simulate
from planner.views import Views

MAX_RANKS = 4096
MAX_ACTIONS = 4_000_000
"""Of one schedule: a few seconds of simulation."""
MAX_COMPARED = 400_000
"""Of each schedule when all are compared."""
LONGEST = 1e12
"""Any longer time is a slip of the pen; sums of these stay far from overflow."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Times of every stage of an order."""

    stages: np.ndarray
    """(S, 4): forward, fused backward, input gradient, weight gradient."""
    pairs: np.ndarray | None
    """(S,): an overlapped forward and backward; none = their sum."""
    transfer: float


@dataclass(frozen=True, slots=True)
class StageWork:
    """What the stages have to do: times of one full 1/p of the model, of which a chunk takes
    1/v.
    """

    forward: float = 1.0
    input_grad: float = 1.0
    weight_grad: float = 1.0
    pair: float | None = None
    """An overlapped forward and backward; none: their sum."""
    transfer: float = 0.0
    blocking: bool = False
    """The sender is busy while it sends."""
    stage_scale: tuple[float, ...] | None = None
    """A factor a rank, or one a virtual stage."""
    head_extra: float = 0.0
    """Head and loss, in full 1/p of the model, on the last stage of every chain."""
    weight_retained: float = 1.0
    """Share of an activation that stays from the input gradient to the weight gradient."""
    memory_limit: float | None = None
    """Of automatic schedules: activations of full stages on a rank."""
    measured: Callable[[Order, int], Durations] | None = None
    """(order, v) -> the durations, in place of the times above: the cost model's."""
    unit: str = ""
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class SimulatedSchedule(Views):
    """A schedule, its order and what the simulator says of it."""

    schedule: str
    pp: int
    m: int
    v: int
    order: Order
    timeline: Timeline
    unit: str = ""
    """s when the cost model gave the durations; nothing when they are numbers without a unit."""
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ScheduleComparison(Views):
    """Every schedule that is legal for one question, fastest first, and why the others are not."""

    schedules: tuple[SimulatedSchedule, ...]
    refused: tuple[tuple[str, str], ...]


def simulate_schedule(
    name: str,
    pp: int,
    m: int,
    v: int | None = None,
    group: int | None = None,
    work: StageWork | None = None,
) -> SimulatedSchedule:
    """The timeline of a named schedule; v none: the fewest virtual stages that the schedule takes.
    Raises InputError.
    """
    work = work or StageWork()
    check_sizes(pp, m, v, group)
    check_work(work)
    known = schedule(name).knobs
    for knob, value in (("group", group), ("memory_limit", work.memory_limit)):
        if value is not None and knob not in known:
            others = ", ".join(
                other for other, candidate in SCHEDULES.items() if knob in candidate.knobs
            )
            raise InputError(
                f"{knob.replace('_', '-')} is a word of {others or 'no schedule'}, but the schedule"
                f" is {name}; leave it out"
            )
    ran = _run(name, pp, m, chunks(name, v), group, work)
    if work.pair is not None and not any(rows[:, PAIR].any() for rows in ran.order.actions):
        raise InputError(
            f"pair is the time of a forward and a backward that overlap, but the order of {name}"
            " has none; leave it out"
        )
    return ran


def compare_schedules(
    pp: int, m: int, v: int | None = None, group: int | None = None, work: StageWork | None = None
) -> ScheduleComparison:
    """Every legal schedule: v (none: 2) virtual stages where a schedule has a choice, its own
    number where not.
    """
    work = work or StageWork()
    check_sizes(pp, m, v, group)
    check_work(work)
    check_count(pp, m, 1, MAX_COMPARED)
    done: list[SimulatedSchedule] = []
    refused: list[tuple[str, str]] = []
    for name in SCHEDULES:
        try:
            done.append(_run(name, pp, m, _choice(name, v), group, work, compared=True))
        except InputError as reason:
            refused.append((name, str(reason)))
    return ScheduleComparison(tuple(sorted(done, key=_rank)), tuple(refused))


def _rank(simulated: SimulatedSchedule) -> tuple[float, float, int]:
    """Fastest first; as fast to nine digits, then fewer activations, then fewer messages."""
    return (
        float(f"{simulated.timeline.makespan:.9g}"),
        float(simulated.timeline.peak_in_flight.max()) / simulated.v,
        simulated.timeline.messages,
    )


def chunks(name: str, v: int | None) -> int:
    """The virtual stages asked for, or the fewest that the schedule takes."""
    least: int = schedule(name).chunks[0]
    return least if v is None else v


def is_automatic(name: str) -> bool:
    """Whether the schedule plans its order for the durations."""
    return schedule(name).automatic


def check_legal(name: str, pp: int, m: int, v: int, group: int | None = None) -> None:
    """Raises InputError where the implementation does not accept the sizes."""
    chosen = schedule(name)
    if group and "group" in chosen.knobs:
        chosen.legal(pp, m, v, group=group)
    else:
        chosen.legal(pp, m, v)


def check_sizes(pp: int, m: int, v: int | None = None, group: int | None = None) -> None:
    """Whole positive numbers, few enough ranks. Raises InputError."""
    for word, value in (("pp", pp), ("microbatches", m), ("v", v), ("group", group)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or value < 1
        ):
            raise InputError(f"{word} must be a whole number of at least 1, but got {value!r}")
    if pp > MAX_RANKS:
        raise InputError(f"pp must be at most {MAX_RANKS:,} ranks, but got {pp:,}")


def check_count(pp: int, m: int, v: int, most: int) -> None:
    """Few enough actions: forward, input gradient and weight gradient of every chunk. Raises
    InputError.
    """
    if 3 * pp * m * v > most:
        raise InputError(
            f"pp x microbatches x v must be at most {most // 3:,}, but got {pp:,} x {m:,} x {v:,}"
        )


def check_work(work: StageWork) -> None:
    """Finite times, none negative, and some work at all. Raises InputError naming the word."""
    words = ("forward", "input_grad", "weight_grad", "pair", "transfer", "head_extra")
    for word in words:
        value = getattr(work, word)
        if value is not None and not 0 <= value <= LONGEST:
            raise InputError(
                f"{word.replace('_', '-')} must be a finite time from 0 to {LONGEST:g}, but got"
                f" {value}"
            )
    for scale in work.stage_scale or ():
        if not 0 < scale <= LONGEST:
            raise InputError(
                f"stage-scale must be finite factors above 0, at most {LONGEST:g}, but got {scale}"
            )
    if work.measured is None and work.forward + work.input_grad + work.weight_grad <= 0:
        raise InputError("forward and backward must take some time together, but both are 0")
    if not 0 <= work.weight_retained <= 1:
        raise InputError(
            f"weight-retained must be a share between 0 and 1, but got {work.weight_retained}"
        )
    if work.memory_limit is not None and not (
        math.isfinite(work.memory_limit) and work.memory_limit > 0
    ):
        raise InputError(
            f"memory-limit must be a finite number of stages above 0, but got {work.memory_limit}"
        )


def _choice(name: str, v: int | None) -> int:
    least, most = schedule(name).chunks
    return int(least if least == most else (2 if v is None else v))


def _run(
    name: str, pp: int, m: int, v: int, group: int | None, work: StageWork, compared: bool = False
) -> SimulatedSchedule:
    check_count(pp, m, v, MAX_COMPARED if compared else MAX_ACTIONS)
    check_legal(name, pp, m, v, group)
    order = _order(name, pp, m, v, group, work)
    spent = durations(order, v, work)
    timeline = simulate(
        order, spent.stages, spent.transfer, work.blocking, work.weight_retained, spent.pairs
    )
    return SimulatedSchedule(name, pp, m, v, order, timeline, work.unit, work.assumed)


def _order(name: str, pp: int, m: int, v: int, group: int | None, work: StageWork) -> Order:
    """The order; automatic schedules plan theirs for the durations, on stages placed as a V when a
    rank has two.
    """
    if not is_automatic(name):
        return order_of(name, pp, m, v, group=group or 0)
    placement = v_shaped(pp) if v == 2 else looped(pp, v)
    spent = durations(Order((np.empty((0, 4), np.int32),) * pp, *placement), v, work)
    return order_of(
        name,
        pp,
        m,
        v,
        durations=spent.stages,
        transfer=spent.transfer,
        weight_retained=work.weight_retained,
        memory_limit=work.memory_limit,
    )


def durations(order: Order, v: int, work: StageWork) -> Durations:
    """Times of every stage: the cost model's, or those of the words."""
    if work.measured is not None:
        return work.measured(order, v)
    times = (work.forward, work.input_grad, work.weight_grad)
    stages = stage_durations(order, v, *times, work.stage_scale, work.head_extra)
    pairs = (
        None
        if work.pair is None
        else pair_durations(order, v, work.pair, work.stage_scale, work.head_extra)
    )
    return Durations(stages, pairs, work.transfer)
