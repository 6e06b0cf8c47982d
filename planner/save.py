"""The text of plan.yaml."""

from __future__ import annotations

from typing import Any

import yaml

from planner import __version__
from planner.cost.named import named
from planner.cost.terms import Estimate
from planner.layout import Layout
from planner.specs.plan import SavedPlan
from planner.specs.question import Question
from planner.specs.recipe import Recipe

_HEAD = """# A plan of ppplan: `ppplan explain THIS` prints every term, `ppplan emit THIS` writes the launch files.
# Times in seconds, memory in GiB, per GPU.
"""


def plan_text(asked: Question, recipe: Recipe, layout: Layout, estimate: Estimate) -> str:
    """A plan as YAML; figures rounded to six digits."""
    import numpy

    saved = SavedPlan(
        question=_plain(asked.model_dump(exclude_none=True, exclude_defaults=True)),
        layout=layout.named(),
        estimate=_plain(named(estimate)),
        assumed=tuple(dict.fromkeys((*recipe.assumed, *estimate.assumed))),
        versions={"ppplan": __version__, recipe.framework: recipe.framework_version, "numpy": numpy.__version__},
        profile={"name": recipe.hardware.name, "source": recipe.hardware.gpu.source, "set": list(asked.set)},
    )
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return _HEAD + yaml.dump(_plain(saved.model_dump()), Dumper=dumper, sort_keys=False, width=120)


def _plain(value: Any) -> Any:
    """Tuples as lists, floats to six significant digits: what a person wants to read in a file."""
    if isinstance(value, dict):
        return {key: _plain(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(x) for x in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
