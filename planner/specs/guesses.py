"""Guesses: switches whose effect nobody has measured, and how much wider the ranges of an estimate
become that rests on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from planner.errors import InputError
from planner.layout import Numeric
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.residuals import is_measured
from planner.specs.switches.switch import Switches, Value
from planner.specs.switches.table import BY_FRAMEWORK, is_guess, settings_of, shown, with_switches

FACTOR = 2.0
"""How many times as much, or as little, an effect that is a guess may be worth: the ends of a range
that holds 80%.
"""
PAYS = 0.001
"""Of a step: less is not worth a word."""
NORMAL_90 = 1.2816
"""Deviations from the mean to the end of that range, where it is normal."""


@lru_cache(maxsize=256)
def _own(name: str) -> Switches:
    """What the published runs of a software had turned on, which its residuals hold already."""
    if not is_measured(name):
        return {}
    try:
        return settings_of(library.stack(name))
    except InputError:  # a document of somebody's own
        return {}


def guessed(recipe: Recipe) -> dict[str, Value]:
    """The switches that are on, whose effect is a guess, with their values."""
    own, now = _own(recipe.software.name), settings_of(recipe.software)
    found: dict[str, Value] = {}
    for name, switch in BY_FRAMEWORK[recipe.framework].items():
        if not is_guess(recipe.framework, name) or not switch.values:
            continue
        if now[name] not in (switch.values[0], own.get(name)):
            found[name] = now[name]
    return found


def without(recipe: Recipe, name: str) -> Recipe:
    """The recipe with one of its switches off."""
    off = {name: BY_FRAMEWORK[recipe.framework][name].values[0]}
    return recipe.model_copy(update={"software": with_switches(recipe.software, off)})


def widened(
    low: Numeric, high: Numeric, step_s: Numeric, off_s: Sequence[Numeric]
) -> tuple[Numeric, Numeric]:
    """Ends of a step's range over the step, where it rests on guesses. off_s: the step with each of
    those switches off.

    Formula: a switch that makes the step d = ln(off / step) shorter may make it FACTOR d or
             d / FACTOR shorter: ends (FACTOR - 1) d below, (1 - 1 / FACTOR) d above, in logarithms,
             each joined with the residuals' own by the root of the sum of squares
    Source:  planner.specs.residuals; FACTOR set by hand
    Assumes: guesses err independently of one another and of the rest.
    """
    below, above = np.minimum(np.log(low), 0.0) ** 2, np.maximum(np.log(high), 0.0) ** 2
    wider, longer = below, above
    for off in off_s:
        worth = np.log(off / step_s)
        more, less = (FACTOR - 1) * worth, (1 - 1 / FACTOR) * worth
        wider = wider + np.maximum(more, -less) ** 2
        longer = longer + np.maximum(less, -more) ** 2
    return (
        low * np.exp(np.sqrt(below) - np.sqrt(wider)),
        high * np.exp(np.sqrt(longer) - np.sqrt(above)),
    )


def deviation_bytes(taken_bytes: Sequence[Numeric]) -> Numeric:
    """Standard deviation of memory of which each guess takes so many bytes.

    Formula: ln FACTOR / 1.2816 of each, joined by the root of the sum of squares
    Source:  FACTOR set by hand
    Assumes: as widened().
    """
    squares: Numeric = 0.0
    for taken in taken_bytes:
        squares = squares + (taken * (np.log(FACTOR) / NORMAL_90)) ** 2
    return np.sqrt(squares)


def says(name: str, value: Value, worth_s: float) -> str:
    """For the assumptions of an estimate: `cuda_graph layers: ...`."""
    return (
        f"{name} {shown(value)}: what it is worth, {worth_s:.2g} s of a step, is a guess, which the"
        " range counts halved and doubled"
    )
