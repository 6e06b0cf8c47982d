"""Parts that several JSON documents share. Numbers are SI or have the unit in the name; a missing
value is None.
"""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from typing import Any

from planner.cost.goodput import Goodput
from planner.rules.rule import Breach
from planner.specs.recipe import Recipe


def question(recipe: Recipe) -> dict[str, Any]:
    """The question as it was understood, defaults filled in."""
    return {
        "model": recipe.model.name,
        "cluster": recipe.hardware.name,
        "gpus": recipe.gpus,
        "seq_length": recipe.seq_length,
        "global_batch_size": recipe.global_batch_size,
        "precision": recipe.precision,
        "framework": recipe.framework,
        "framework_version": recipe.framework_version,
        "stack": recipe.stack.name,
        "attention": recipe.attention,
        "optimizer": recipe.optimizer,
        "lora_rank": recipe.lora.rank if recipe.lora else None,
        "lora_targets": list(recipe.lora.targets) if recipe.lora else None,
        "lora_base": recipe.lora.base if recipe.lora else None,
        "frozen": list(recipe.frozen),
        "packing": recipe.packing,
        "mean_length": recipe.mean_length,
        "assumed": list(recipe.assumed),
    }


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


def breaches(breaches: tuple[Breach, ...]) -> list[dict[str, str]]:
    return [{"rule": breach.rule, "message": breach.message} for breach in breaches]
