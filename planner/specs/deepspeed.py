"""DeepSpeed's ways to run a layout: its engine alone, its PipelineModule, or Megatron-DeepSpeed
with its own model code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.layout import SCHEDULE_CODE, Layout
from planner.specs.recipe import Recipe
from planner.specs.versions import version_of

PARTITION_RULES = (0, 18)
"""Since then AutoTP takes rules for a model of one's own; before, it reads Hugging Face models
alone.
"""


def in_megatron(recipe: Recipe, layout: Layout) -> Any:
    """Whether Megatron-DeepSpeed runs it: tensor parallelism in a pipeline, the ZB-H1 schedule,
    tensor parallelism before AutoTP's rules.

    A column when the layout holds columns.
    """
    early = version_of("deepspeed", recipe.framework_version) < PARTITION_RULES
    zero_bubble = layout.schedule == SCHEDULE_CODE["zb-h1"]
    return zero_bubble | ((layout.tp > 1) & ((layout.pp > 1) | early))


def with_autotp(recipe: Recipe, layout: Layout) -> Any:
    """Whether DeepSpeed's own tensor parallelism splits the model."""
    return (layout.tp > 1) & ~_flag(in_megatron(recipe, layout))


def _flag(value: Any) -> Any:
    """So that ~ negates a plain bool too."""
    return np.asarray(value)
