"""DeepSpeed's ways to run a layout: its engine alone, its PipelineModule, or Megatron-DeepSpeed
with its own model code.
"""

from __future__ import annotations

import numpy as np

from planner.layout import SCHEDULE_CODE, Layouts, Mask
from planner.specs.recipe import Recipe
from planner.specs.versions import version_of

PARTITION_RULES = (0, 18)
"""Since then AutoTP takes rules for a model of one's own; before, it reads Hugging Face models
alone.
"""


def in_megatron(recipe: Recipe, layout: Layouts) -> Mask:
    """Whether Megatron-DeepSpeed runs it: tensor parallelism in a pipeline, the ZB-H1 schedule,
    tensor parallelism before AutoTP's rules.
    """
    early = version_of("deepspeed", recipe.framework_version) < PARTITION_RULES
    zero_bubble = layout.schedule == SCHEDULE_CODE["zb-h1"]
    return (layout.tensor_split & (layout.pipelined | early)) | zero_bubble


def with_autotp(recipe: Recipe, layout: Layouts) -> Mask:
    """Whether DeepSpeed's own tensor parallelism splits the model."""
    return layout.tensor_split & np.logical_not(in_megatron(recipe, layout))


def all_reduces(recipe: Recipe, layout: Layouts) -> Mask:
    """Whether each rank gets all of the summed gradients although they are sharded: as the switches
    say, and in DeepSpeed's pipelines whatever they say, which scatter nothing. Source: [deepspeed]
    runtime/zero/stage_1_and_2.py reduce_gradients, runtime/pipe/engine.py.
    """
    whole = np.asarray(recipe.software.sharding.gradients_all_reduced)
    return whole | layout.pipelined if recipe.framework == "deepspeed" else whole
