"""The best plans of a question, with or without what changes the numbers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from planner import numerics, search
from planner.estimate import closed_form
from planner.numerics import Offer
from planner.search import Change, SearchResult
from planner.specs import resolve
from planner.specs.distributions import named
from planner.specs.question import changed
from planner.specs.recipe import Recipe
from planner.specs.switches.table import parse, restated
from planner.specs.words import Question

NEAREST = 5
"""Of what changes the numbers, as many as an answer names where nothing fits."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A question as it was answered."""

    question: Question
    """With the words that --allow-numerics took."""
    recipe: Recipe
    result: SearchResult
    offers: tuple[Offer, ...]
    """What was left off because it changes the numbers."""
    taken: tuple[Offer, ...]
    """What --allow-numerics took for it, the first first."""


def best_plans(question: Question, top: int | None = None, launched_by: str = "") -> Answered:
    """The fastest plans that keep the numbers; where the question allows others, one lossy setting
    after another is taken, as long as the fastest plan gains.

    launched_by: other software that must be able to express them; Recipe.launched_by.
    """
    taken: list[Offer] = []
    stated = set(parse(question.switch, resolve.recipe(question).framework))
    distribution = named(question.stack) if question.stack else None
    stated |= set(distribution.switches) if distribution else set()
    while True:
        recipe = resolve.recipe(question).model_copy(update={"launched_by": launched_by})
        fixed = {*stated, *(name for offer in taken for name in offer.settings)}
        result = search.search(recipe, top, None if question.own_switches else fixed)
        turned = search.differing(result.recipe, recipe)
        answered = changed(question, {"switch": restated(question.switch, turned)})
        offers = _offers(answered, result, fixed)
        if not question.allow_numerics or not offers:
            break
        taken.append(offers[0])
        question = offers[0].taken(question)
    if taken and result.plans:
        says = f"changes the numbers, as allowed: {', '.join(map(str, taken))}"
        first, *others = result.plans
        result = replace(result, plans=(replace(first, why=(*first.why, says)), *others))
    if offers and not result.plans:
        changes = (*_changes(answered, offers), *(result.nearest or ()))
        result = replace(result, nearest=search.cheapest_first(changes))
    return Answered(answered, result.recipe, result, offers, tuple(taken))


def _offers(question: Question, result: SearchResult, fixed: Collection[str]) -> tuple[Offer, ...]:
    computed, recipe = result.computed, result.recipe
    if computed is None or not result.legal:
        return ()
    if not result.plans:
        computed = search.legal_sample(recipe)
    figures = (computed.step_s, computed.memory_bytes, computed.fits)
    return numerics.offers(question, recipe, computed.layout, figures, fixed)


def _changes(question: Question, offers: tuple[Offer, ...]) -> list[Change]:
    """What would let a layout fit, among the changes that an answer names where nothing does."""
    changes = []
    for offer in offers[:NEAREST]:
        other = resolve.recipe(offer.taken(question))
        says = f"{offer.name} {offer.value}, which changes the numbers (--allow-numerics)"
        estimate = closed_form(other, offer.layout)
        changes.append(Change(says, offer.layout, estimate, "other numbers"))
    return changes
