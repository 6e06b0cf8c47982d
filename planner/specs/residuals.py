"""Residuals: how far published runs lie from their predictions, by stack; what the ranges of an estimate come from."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from planner.specs.recipe import Recipe


@cache
def _table() -> dict[str, dict[str, float]]:
    import yaml

    text = Path(__file__).with_name("residuals.yaml").read_text(encoding="utf-8")
    table: dict[str, dict[str, float]] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["stacks"]
    return table


def residual_range(recipe: Recipe) -> tuple[float, float]:
    """Measured over predicted time, the 10% and the 90% quantile of runs of this stack; wider for rates that are assumed."""
    near = _table().get(recipe.stack.name, _table()["default"])
    wider = _table()["default"] if recipe.hardware.kernels.assumed else near
    return min(near["low"], wider["low"]), max(near["high"], wider["high"])
