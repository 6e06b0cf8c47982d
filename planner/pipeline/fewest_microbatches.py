"""The inverse: how many micro-batches bring a schedule's bubble under a share."""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import InputError
from planner.pipeline.timelines import (
    MAX_COMPARED,
    SimulatedSchedule,
    StageWork,
    check_legal,
    check_sizes,
    check_work,
    chunks,
    is_automatic,
    simulate_schedule,
)
from planner.views import Views

NEAR = 1e-9
"""A bubble of exactly the share asked for, up to rounding, is not under it."""


@dataclass(frozen=True, slots=True, repr=False)
class FewestMicrobatches(Views):
    """The smallest m with a bubble under the share asked for; none with the reason."""

    schedule: str
    pp: int
    v: int
    bubble: float
    m: int | None
    simulated: SimulatedSchedule | None
    reason: str = ""


def smallest_m(
    name: str,
    pp: int,
    bubble: float,
    v: int | None = None,
    group: int | None = None,
    work: StageWork | None = None,
) -> FewestMicrobatches:
    """The fewest micro-batches that the schedule accepts and whose bubble (idle time over makespan)
    is under `bubble`.

    Doubles m until the bubble is under it, halves the gap, then looks at the 2 p counts below one
    by one, as what a schedule accepts and leaves idle may depend on remainders (automatic schedules
    take any m: there the gap is halved to the end). Raises InputError.
    """
    work = work or StageWork()
    check_sizes(pp, 1, v, group)
    check_work(work)
    if not 0 < bubble < 1:
        raise InputError(
            f"bubble must be a share between 0 and 1, such as 0.1 for 10%, but got {bubble}"
        )
    question = _Question(name, pp, chunks(name, v), group, work)
    best, seen = _first_under(question, bubble)
    if best is None:
        return FewestMicrobatches(
            name, pp, question.v, bubble, None, None, _why_not(question, seen)
        )
    best = _last_under(question, bubble, best)
    if not is_automatic(name):
        for m in range(max(best.m - 2 * pp - 1, 1), best.m):
            simulated = _try(question, m)
            if simulated is not None and _under(simulated, bubble):
                best = simulated
                break
    return FewestMicrobatches(name, pp, question.v, bubble, best.m, best)


@dataclass(frozen=True, slots=True)
class _Question:
    name: str
    pp: int
    v: int
    group: int | None
    work: StageWork

    @property
    def most(self) -> int:
        """Micro-batches at most."""
        return max(MAX_COMPARED // (3 * self.pp * self.v), 1)


def _under(simulated: SimulatedSchedule, bubble: float) -> bool:
    return simulated.timeline.bubble_share < bubble * (1 - NEAR)


def _first_under(
    question: _Question, bubble: float
) -> tuple[SimulatedSchedule | None, SimulatedSchedule | None]:
    """(the first of doubling counts whose bubble is under the share, the last one looked at)."""
    m, seen = 1, None
    while m <= question.most:
        simulated = _at_or_above(question, m, question.most + 1)
        if simulated is None:
            break
        seen = simulated
        if _under(simulated, bubble):
            return simulated, seen
        m = 2 * simulated.m
    return None, seen


def _last_under(question: _Question, bubble: float, best: SimulatedSchedule) -> SimulatedSchedule:
    """Halves the counts between the best and half of it, taking the bubble to fall with m."""
    low = best.m // 2
    while best.m - low > 1:
        middle = (low + best.m) // 2
        simulated = _at_or_above(question, middle, best.m)
        if simulated is not None and _under(simulated, bubble):
            best = simulated
        else:
            low = middle
    return best


def _at_or_above(question: _Question, m: int, end: int) -> SimulatedSchedule | None:
    """The timeline of the first accepted count from m on, below `end`, among as many as remainders
    can rule out.
    """
    counts = range(m, min(end, m + 2 * question.pp + (question.group or 0) + 1))
    for count in counts:
        simulated = _try(question, count)
        if simulated is not None:
            return simulated
    return None


def _try(question: _Question, m: int) -> SimulatedSchedule | None:
    try:
        check_legal(question.name, question.pp, m, question.v, question.group)
    except InputError:
        return None
    return simulate_schedule(
        question.name, question.pp, m, question.v, question.group, question.work
    )


def _why_not(question: _Question, seen: SimulatedSchedule | None) -> str:
    """The bubble that more micro-batches do not mend. Raises InputError when the schedule accepts
    no count at all.
    """
    if seen is None:
        check_legal(question.name, question.pp, question.most, question.v, question.group)
        raise InputError(
            f"{question.name} accepts no number of micro-batches up to {question.most:,} with"
            f" pp={question.pp}, v={question.v}"
        )
    if seen.m < question.most // 4:
        return (
            f"at m={seen.m:,} the bubble is {seen.timeline.bubble_share:.2%}, and {question.name}"
            " takes no more micro-batches"
        )
    return (
        f"at m={seen.m:,} the bubble is still {seen.timeline.bubble_share:.2%}: what is left comes"
        " from transfers, unequal stages or the schedule itself, and more micro-batches do not"
        " remove it"
    )
