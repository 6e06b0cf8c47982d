"""Parts that several JSON documents share. Numbers are SI or have the unit in the name; a missing
value is None.
"""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from typing import Any

from planner.cost.goodput import Goodput
from planner.estimate import kinds_of_layers
from planner.layout import Layout
from planner.rules.rule import Breach
from planner.schedule_options import ScheduleOption, pays_up_to, verdict
from planner.specs.named_software import spelled
from planner.specs.recipe import Recipe
from planner.specs.words import Question, declared


def question(recipe: Recipe) -> dict[str, Any]:
    """The question as it was understood, defaults filled in: every word that a recipe holds, by its
    name in words.py.
    """
    lora = recipe.lora
    named: dict[str, Any] = {
        "model": recipe.model.name,
        "cluster": recipe.hardware.name,
        "software": spelled(recipe),
        "stack": recipe.software.name,
        "container": recipe.versions.known_container,
        "lora_rank": lora.rank if lora else None,
        "lora_targets": lora.targets if lora else None,
        "lora_base": lora.base if lora else None,
    }
    document: dict[str, Any] = {}
    for word in declared(Question):
        if word in named:
            document[word] = named[word]
        elif word == "framework" or word in Recipe.model_fields:
            document[word] = getattr(recipe, word)
    document["assumed"] = recipe.assumed
    for word, value in document.items():
        if isinstance(value, tuple):
            document[word] = list(value)
    return document


def goodput(goodput: Goodput | None) -> dict[str, Any] | None:
    """Plain numbers; None when the question states no failures, and for the days of a run that
    never ends.
    """
    if goodput is None:
        return None
    document: dict[str, Any] = {}
    for name, value in asdict(goodput).items():
        number = value.item() if hasattr(value, "item") else value
        document[name] = None if number == inf else number
    return document


def schedules(options: tuple[ScheduleOption, ...]) -> dict[str, Any] | None:
    """What each schedule would give; None without a pipeline."""
    if not options:
        return None
    enough = pays_up_to(options)
    return {
        "options": [option.to_dict() for option in options],
        "v_pays_up_to": None if enough is None else enough.v,
        "says": verdict(options) or None,
    }


def breaches(breaches: tuple[Breach, ...]) -> list[dict[str, str]]:
    return [{"rule": breach.rule, "message": breach.message} for breach in breaches]


def kinds(recipe: Recipe, layout: Layout) -> list[dict[str, Any]]:
    """What one layer of each kind costs."""
    return [asdict(kind) for kind in kinds_of_layers(recipe, layout)]
