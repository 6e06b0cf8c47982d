"""Residuals: how far published runs lie from their predictions; what the range of an estimate comes
from.

The document residuals.yaml is written by planner.accuracy.maintain.residuals.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from planner.layout import Numeric
from planner.specs.recipe import Recipe
from planner.units import TERA

REGIMES = (0.15, 0.35)
"""Bounds of the predicted model FLOP utilisation (of the dense bf16 peak) between runs that mostly
wait and runs that mostly compute.
"""
UNKNOWN = 1.3
"""How much wider, as a power, a range becomes for a GPU whose kernels were not measured, and for a
software that another stands in for."""


@cache
def _ranges() -> tuple[dict[str, Any], ...]:
    import yaml

    text = Path(__file__).with_name("residuals.yaml").read_text(encoding="utf-8")
    return tuple(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["ranges"])


def is_measured(software: str) -> bool:
    """Whether published runs of a software stand behind its ranges."""
    return any(entry["stack"] == software for entry in _ranges())


def regime(recipe: Recipe, flops_per_s_per_gpu: Numeric) -> Numeric:
    """The class of runs that is compared with this one, by predicted utilisation: 0, 1 or 2."""
    peaks = recipe.hardware.gpu.peak_tflops
    share = flops_per_s_per_gpu / (peaks.get("bf16", peaks.get("fp16", 1.0)) * TERA)
    return np.searchsorted(REGIMES, share, side="right")


def _nearest(recipe: Recipe, index: int) -> tuple[float, float]:
    software, gpu = recipe.software, recipe.hardware.gpu.name
    for names in (
        (software.name, gpu),
        (software.name, ""),
        (software.document, gpu),
        (software.document, ""),
        ("", gpu),
        ("", ""),
    ):
        for entry in _ranges():
            if (entry["stack"], entry["gpu"], entry["regime"]) == (*names, index):
                return entry["low"], entry["high"]
    return 0.5, 2.0


def residual_range(recipe: Recipe, flops_per_s_per_gpu: Numeric) -> tuple[Numeric, Numeric]:
    """10% and 90% quantiles of measured over predicted time, of published runs with the same stack
    and GPU; where there are none, with the same stack, the same software, the same GPU, or of all
    runs.
    """
    at = regime(recipe, flops_per_s_per_gpu)
    power = UNKNOWN if recipe.hardware.kernels.assumed else 1.0
    if recipe.software.stands_in_for:
        power *= UNKNOWN
    bounds = np.array([_nearest(recipe, index) for index in range(len(REGIMES) + 1)]) ** power
    low, high = bounds[np.asarray(at)].T
    return low, high
