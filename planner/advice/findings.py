"""Findings: what is wrong with a launch, or slow, or not what its author thinks; each with the
rule, the values and the way out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from planner.cost.terms import Estimate
from planner.interpret.interpret import Launch
from planner.layout import Layout
from planner.schedule_options import ScheduleOption
from planner.specs.recipe import Recipe
from planner.views import Views

Severity = Literal["error", "warning", "hint"]
"""The run stops or cannot fit; it does something else than it says; it could be better."""
Verdict = Literal["invalid", "oom", "marginal", "fits"]


@dataclass(frozen=True, slots=True)
class Way:
    """A way out: values to change by the names of Reading.values, None to remove one."""

    values: dict[str, Any]
    says: str = ""
    """What it gives, in words: `fits with 61.2 GiB`, `a step of 4.10 s instead of 5.02 s`."""
    step_s: float | None = None
    memory_gib: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about a launch."""

    severity: Severity
    rule: str
    message: str
    ways: tuple[Way, ...] = ()
    """The cheapest first; --fix takes it."""
    gain: dict[str, Any] | None = None
    """Of the first way: seconds and share of a step that it saves, GiB that it frees."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best layout for the same question."""

    layout: Layout
    estimate: Estimate


@dataclass(frozen=True, slots=True, repr=False)
class Checked(Views):
    """What `check` answers."""

    file: str
    launch: Launch
    verdict: Verdict
    findings: tuple[Finding, ...]
    estimate: Estimate | None
    best: Best | None
    measured: dict[str, Any] | None = None
    """From a log: what it measured beside what was predicted."""
    oom: dict[str, Any] | None = None
    """Matches of the message of an out-of-memory error."""
    fixed: tuple[str, ...] = ()
    """Files written by --fix."""
    switches: str = ""
    """What of the software's switches is on, in a line."""
    schedules: tuple[ScheduleOption, ...] = ()
    """What each schedule would give for a launch that runs; none without a pipeline."""
    diff: str = ""
    edits: dict[str, Any] = field(default_factory=dict)
    """What --fix changed, as flags."""
    guessed: bool = False
    """Of a log that states no layout: nothing of it is predicted, and the layout of `launch` is
    nobody's word.
    """

    @property
    def recipe(self) -> Recipe:
        return self.launch.recipe

    @property
    def ran_out(self) -> bool:
        """Whether a log or a proof says that memory ran out."""
        return bool(self.measured and self.measured["out_of_memory"])

    @property
    def oom_probability(self) -> float | None:
        """By what was measured, else as predicted; None where neither is known."""
        if self.measured and "oom_probability" in self.measured:
            return float(self.measured["oom_probability"])
        return None if self.estimate is None else float(self.estimate.oom_probability)


def caught(launch: Launch, judges: Iterable[Callable[[Launch], Finding | None]]) -> list[Finding]:
    """What the judges find wrong with a launch, each one thing or nothing."""
    findings = [judge(launch) for judge in judges]
    return [finding for finding in findings if finding is not None]
