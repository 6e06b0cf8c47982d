"""Inputs of linears that are kept for the backward pass."""

from __future__ import annotations

from planner.cost.params.trained import trains
from planner.specs.recipe import Recipe


def input_kept(recipe: Recipe, part: str, targets: tuple[str, ...], kept: float) -> float:
    """Bytes an element of a linear's input that the backward pass needs: kept for its own weight
    gradient, 2 for an adapter's, else none.

    Formula: kept where trained; 2 where one of targets has an adapter; 0 where frozen
    Source:  [transformer-engine] Linear saves its input for a weight gradient alone; [hu2021]
    Assumes: what another operation keeps of it is counted there.
    """
    if trains(recipe, part):
        return kept
    return 2.0 if recipe.lora and any(name in recipe.lora.targets for name in targets) else 0.0
