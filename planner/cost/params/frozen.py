"""What of a model is trained, as the recipe says it."""

from __future__ import annotations

from planner.specs.recipe import Recipe


def whole(recipe: Recipe) -> bool:
    """Whether every weight is trained."""
    return not (recipe.lora or recipe.frozen)


def trains(recipe: Recipe, part: str) -> bool:
    """Whether the weights of a part (workload.FROZEN) get gradients; with adapters none do."""
    return recipe.lora is None and part not in recipe.frozen


def goes_back(recipe: Recipe) -> bool:
    """Whether the backward pass enters the layers: something in them, or before them, is
    trained.
    """
    return recipe.lora is not None or any(
        trains(recipe, part) for part in ("embedding", "attention", "mlp", "norms")
    )
