"""A rule of legality: one entry is a mask for many layouts and a sentence for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.layout import Layout, Layouts, Mask, Numeric
from planner.specs.recipe import Recipe
from planner.specs.versions import Version

FIRST: Version = (0, 0)
NEVER: Version = (999, 0)


def _no_way_out(recipe: Recipe, layout: Layout) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Rule:
    """What must hold, for the framework versions from `since` up to, not including, `before`."""

    name: str
    holds: Callable[[Recipe, Layouts], Mask]
    """True or False, or a column of them when the layout holds columns; never raises, never divides
    by zero.
    """
    says: str
    """What must hold and what we got: a format over recipe, layout and knobs (the layout with names
    for codes).
    """
    way_out: Callable[[Recipe, Layout], str] = _no_way_out
    """The nearest change that would make it hold, for one layout; empty when there is none to
    offer.
    """
    since: Version = FIRST
    before: Version = NEVER


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that a layout breaks."""

    rule: str
    message: str


def divides(divisor: Numeric, number: Numeric) -> Mask:
    """Whether number is a multiple of divisor; a divisor below 1 counts as 1 (another rule removes
    it).
    """
    return number % np.maximum(divisor, 1) == 0


def quotient(number: Numeric, divisor: Numeric) -> Numeric:
    """Whole part of the division; a divisor below 1 counts as 1."""
    return number // np.maximum(divisor, 1)


def near_divisors(number: int, wanted: int) -> list[int]:
    """The divisors of number next to wanted: the one below and the one above, as far as there
    are.
    """
    below = next((d for d in range(min(wanted, number), 0, -1) if number % d == 0), None)
    above = (
        next((d for d in range(max(wanted, 1), number + 1) if number % d == 0), None)
        if number <= 1_000_000
        else None
    )
    return sorted({d for d in (below, above) if d is not None})


def try_knob(knob: str, number: int, wanted: int) -> str:
    """`try tp 4 or 8`: the nearest values of a knob that must divide number."""
    near = near_divisors(number, wanted)
    return f"try {knob} {' or '.join(map(str, near))}" if near else ""


def breach(rule: Rule, recipe: Recipe, layout: Layout) -> Breach:
    """The sentence for one layout that breaks the rule."""
    sentence = rule.says.format(recipe=recipe, layout=layout, knobs=layout.named())
    out = rule.way_out(recipe, layout)
    return Breach(rule.name, f"{sentence}; {out}" if out else sentence)
