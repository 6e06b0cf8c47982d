"""What a search answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from planner.cost.named import named
from planner.cost.terms import Estimate
from planner.layout import Layout
from planner.search.branch import Computed, Counts
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Switches


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """A layout with its estimate and rank."""

    rank: int
    layout: Layout
    estimate: Estimate
    why: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    """What it is shown for: best, fastest, roomiest, simplest, conservative, other family."""
    switches: Switches = field(default_factory=dict)
    """That it has at other values than the answer's recipe."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: names in place of codes, memory in GiB."""
        return {
            "rank": self.rank,
            "roles": list(self.roles),
            "layout": self.layout.named(),
            "estimate": named(self.estimate),
            "switches": dict(self.switches),
            "why": list(self.why),
        }

    def __str__(self) -> str:
        return f"{self.rank}: {self.layout}: {self.estimate.step_s:.3f} s a step"

    def __repr__(self) -> str:
        return f"<Plan {self}>"


COSTS = ("nothing", "fewer GPUs", "other numbers", "more GPUs")
"""What a change of the question costs, cheapest first; other numbers: the run computes with fewer
bits or drops tokens.
"""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the question that would let a layout fit."""

    change: str
    layout: Layout
    estimate: Estimate
    costs: str
    """One of COSTS."""


def cheapest_first(changes: Iterable[Change]) -> tuple[Change, ...]:
    """By what they cost, more GPUs by how many; what costs the same stays in its order."""

    def cost(change: Change) -> tuple[int, int]:
        gpus = change.layout.gpus if change.costs == "more GPUs" else 0
        return COSTS.index(change.costs), gpus

    return tuple(sorted(changes, key=cost))


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer, and what was looked at on the way."""

    recipe: Recipe
    """With the switches of the best plan."""
    counts: Counts
    seconds: float
    plans: tuple[Plan, ...]
    simulated: int = 0
    """Layouts whose pipeline was simulated."""
    proved: bool = False
    """Whether no other combination of the menus is faster than the fastest plan by the model."""
    turned: Switches | None = None
    """What the search of the switches turned for the fastest plan; None: they were not searched."""
    legal: bool = True
    """Whether any layout is legal."""
    nearest: tuple[Change, ...] | None = None
    min_gpus: int | None = None
    limits: str = ""
    """Where the best plan's time goes beyond the model's products; where no layout is legal, what
    refuses the one that is nearest to it.
    """
    computed: Computed | None = None
    """Layouts by closed form: what a picture of the search shows."""

    @property
    def fastest(self) -> Plan:
        return min(self.plans, key=lambda plan: plan.estimate.step_s)
