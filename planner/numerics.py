"""What would be faster and changes the numbers that a run computes: 16-bit gradients or moments,
dropped tokens, quantized exchanges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.errors import InputError
from planner.estimate import closed_form
from planner.layout import Layout, Layouts
from planner.reasons import describe
from planner.rules.table import mask
from planner.specs import resolve
from planner.specs.question import changed
from planner.specs.recipe import Recipe
from planner.specs.switches.alternatives import alternatives
from planner.specs.switches.lossy import LOSSY, MOMENT, in_force
from planner.specs.switches.numbers import MOMENTS, STATES
from planner.specs.switches.precision import PRECISE
from planner.specs.switches.switch import Switches
from planner.specs.switches.table import is_guess, parse, restated, settings_of, shown
from planner.specs.words import Question

PAYS = 0.001
"""Of a step: less is not worth a word."""
LOOKED_AT = 4096
"""Layouts that are timed with each: the fastest that fit, and of those that are faster and do not
fit the ones that lack least.
"""
NARROW_MOMENTS = "precision-aware"
"""The optimizer whose moments have 16 bits."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One thing that changes the numbers, and the fastest layout with it."""

    name: str
    value: str
    settings: Switches
    """The switches that take it, with what they require."""
    words: dict[str, Any]
    """Other words of the question that take it."""
    layout: Layout
    step_s: float
    """In closed form."""
    saved_s: float | None
    """Less than the fastest layout without it; None where none fits without it."""
    gates: bool
    """Whether the layout fits with it alone."""
    guessed: bool
    """Whether the effect is a guess, by its source."""

    def taken(self, question: Question) -> Question:
        """The question with it."""
        return _with(question, self.settings, self.words)

    def __str__(self) -> str:
        gain = "" if self.saved_s is None else f"{self.saved_s:.2g} s"
        fits = f"{describe(self.layout)} fits then" * self.gates
        says = ", ".join(filter(None, (gain, "a guess" * self.guessed, fits)))
        return f"{self.name} {self.value} ({says})"

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "step_s": self.step_s,
            "saved_s": self.saved_s,
            "layout": self.layout.named(),
            "fits_without": not self.gates,
            "guessed": self.guessed,
        }


def offers(
    question: Question,
    recipe: Recipe,
    legal: Layouts,
    figures: tuple[np.ndarray, np.ndarray, np.ndarray],
    fixed: Collection[str],
) -> tuple[Offer, ...]:
    """What would be faster than the fastest of the legal layouts, the most first; of each switch
    its best value. figures: seconds, bytes and whether it fits, of each layout; fixed: switches
    that stay as the question has them.
    """
    step_s, memory_bytes, fits = figures
    best_s = float(step_s[fits].min()) if fits.any() else float("inf")
    others = np.flatnonzero(~fits & (step_s < best_s))
    others = others[np.argsort(memory_bytes[others], kind="stable")[:LOOKED_AT]]
    fitting = np.flatnonzero(fits)
    fitting = fitting[np.argsort(step_s[fitting], kind="stable")[:LOOKED_AT]]
    looked_at = np.concatenate((fitting, others))
    found = []
    for name, value, settings, words in _lossy(question, recipe, fixed):
        try:
            other = resolve.recipe(_with(question, settings, words))
        except InputError:  # it contradicts another word, or the version lacks it
            continue
        holds, _ = mask(other, legal[looked_at])
        rows = looked_at[holds]
        if not len(rows):
            continue
        estimate = closed_form(other, legal[rows])
        seconds = np.where(estimate.fits, estimate.step_s, np.inf)
        if not np.isfinite(seconds).any() or seconds.min() > best_s * (1 - PAYS):
            continue
        row = int(np.argmin(seconds))
        saved = best_s - float(seconds[row]) if fits.any() else None
        gates = not bool(fits[rows[row]])
        layout = legal[int(rows[row])]
        guessed = is_guess(recipe.framework, name)
        figures_of = (float(seconds[row]), saved, gates, guessed)
        found.append(Offer(name, value, settings, words, layout, *figures_of))
    by_name: dict[str, Offer] = {}
    for offer in sorted(found, key=lambda offer: offer.step_s):
        by_name.setdefault(offer.name, offer)
    return tuple(by_name.values())


def all_taken(question: Question, recipe: Recipe) -> Question:
    """The question with everything that changes the numbers: what the fewest GPUs need."""
    fixed = parse(question.switch, recipe.framework)
    for _, _, settings, words in _lossy(question, recipe, fixed):
        try:
            other = _with(question, settings, words)
            resolve.recipe(other)
        except InputError:
            continue
        question = other
    return question


def _with(question: Question, settings: Switches, words: dict[str, Any]) -> Question:
    return changed(question, {**words, "switch": restated(question.switch, settings)})


def _lossy(
    question: Question, recipe: Recipe, fixed: Collection[str]
) -> Iterator[tuple[str, str, Switches, dict[str, Any]]]:
    """Name, value, and the switches and other words that take it; what is fixed is left alone."""
    now = settings_of(recipe.software)
    for other in alternatives(recipe, fixed):
        switch = other.switch
        lossy_now = switch.arithmetic_of(now[switch.name]) == LOSSY
        if switch.name in STATES or lossy_now or other.arithmetic != LOSSY:
            continue
        yield switch.name, shown(other.value), other.settings, {}
    whole = all(now.get(name) == "fp32" for name in MOMENTS) and not {*fixed} & {PRECISE, *STATES}
    if recipe.framework == "megatron" and whole and question.optimizer is None:
        yield MOMENT, "bf16", {}, {"optimizer": NARROW_MOMENTS}


@dataclass(frozen=True, slots=True)
class Held:
    """One thing of a plan that changes the numbers, and who decided on it."""

    name: str
    value: str
    by: str

    def __str__(self) -> str:
        return f"{self.name} {self.value} ({self.by})"


def held(
    question: Question, recipe: Recipe, layout: Layout, taken: tuple[Offer, ...] = ()
) -> tuple[Held, ...]:
    """What of a layout's run changes the numbers: stated by the question, the software's own, or
    taken because the question allows it.
    """
    stated = parse(question.switch, recipe.framework)
    allowed = {offer.name for offer in taken}
    out = []
    for name, value in in_force(recipe, layout).items():
        by = f"{recipe.software.name}'s own"
        if name in allowed:
            by = "--allow-numerics"
        elif name in stated or (name == MOMENT and stated.keys() & {*MOMENTS}):
            by = "--switch"
        elif name == MOMENT and question.optimizer:
            by = "--optimizer"
        out.append(Held(name, value, by))
    return tuple(out)
