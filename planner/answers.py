"""What the verbs return: plain values that reports draw and other programs read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.cost.goodput import Goodput
from planner.cost.terms import Estimate
from planner.estimate import KindOfLayer
from planner.layout import Layout
from planner.numerics import Held, Offer
from planner.rules.rule import Breach
from planner.schedule_options import ScheduleOption
from planner.search import Plan, SearchResult
from planner.specs.recipe import Recipe
from planner.specs.words import Question
from planner.switch_gains import SwitchGain
from planner.views import TableViews, Views


@dataclass(frozen=True, slots=True, repr=False)
class Recommendation(TableViews):
    """The best layouts for a question, or the nearest changes that would let one fit."""

    question: Question
    recipe: Recipe
    search: SearchResult | None
    """None when the smallest GPU count was asked for and there is none."""
    min_gpus: int | None = None
    """The smallest number of GPUs on which some layout fits; filled when asked for or when nothing
    fits.
    """
    files: tuple[str, ...] = ()
    refused: str = ""
    """Why launch files were not written beside plan.yaml."""
    switches: tuple[SwitchGain, ...] = ()
    """What other values of the switches would give to the first plan."""
    offers: tuple[Offer, ...] = ()
    """What was left off because it changes the numbers, and would be faster or let a layout fit."""
    held: tuple[Held, ...] = ()
    """What of the first plan changes the numbers."""
    goodput: Goodput | None = None
    """Of the first plan, with failures and checkpoints, when the question states some."""
    schedules: tuple[ScheduleOption, ...] = ()
    """What each schedule would give for the first plan; none without a pipeline."""

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The best layout that fits, then others by role, or by speed; none where nothing fits."""
        return self.search.plans if self.search is not None else ()

    @property
    def best(self) -> Plan | None:
        """The first plan."""
        return self.plans[0] if self.plans else None


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(TableViews):
    """One layout: what the cost model says of it and which rules it breaks."""

    question: Question
    recipe: Recipe
    layout: Layout
    estimate: Estimate
    breaches: tuple[Breach, ...] = ()
    schedules: tuple[ScheduleOption, ...] = ()
    """What each schedule would give; none without a pipeline."""
    held: tuple[Held, ...] = ()
    """What of it changes the numbers."""
    goodput: Goodput | None = None
    """With failures and checkpoints, when the question states some."""
    switches: tuple[SwitchGain, ...] = ()
    """What other values of the switches would give."""
    kinds: tuple[KindOfLayer, ...] = ()
    """What a layer of each kind costs."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One point of a sweep; layout and estimate are None where the words state no layout, and a
    breach says why.
    """

    words: dict[str, int | str]
    layout: Layout | None
    estimate: Estimate | None
    breaches: tuple[Breach, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Sweep(TableViews):
    """One layout with one or more words swept: the last word varies fastest."""

    question: Question
    recipe: Recipe
    rows: tuple[SweepRow, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Emitted(Views):
    """Launch files of a plan: their texts by name, and the paths where they were written."""

    texts: dict[str, str]
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Known(Views):
    """Documents of one kind that are known by name, as plain values with their sources."""

    kind: str
    """models, clusters, schedules, stacks or switches."""
    documents: tuple[dict[str, Any], ...]
    by_name: bool
    """Whether one was asked for by name."""
