"""How gradients are summed over data-parallel ranks: in which messages, and what comes too late to
hide.
"""

from __future__ import annotations

import numpy as np

from planner.cost.network import collectives
from planner.cost.params.frozen import whole
from planner.cost.params.layer import layer_params
from planner.cost.params.stages import Split
from planner.cost.params.trained import trained_embedding, trained_ends, trained_layers
from planner.layout import Layouts, Numeric
from planner.specs.recipe import Recipe
from planner.units import MIB

TENSORS = 6
"""Parameter tensors of a layer: four linears, two norms."""


def gradient_reduction_s(
    recipe: Recipe, layout: Layouts, members: collectives.Group, params: Numeric
) -> Numeric:
    """Sum of so many parameters' gradients over the group, once.

    Formula: n collectives of 1/n of the bytes, reduce-scatters with sharding unless the stack
             all-reduces, else all-reduces; n = bytes / reduce_mib beside the backward pass, 1 after
             it
    Source:  [rajbhandari2020]; [nanotron] sync_gradients_across_dp, and torch's
             DistributedDataParallel with its buckets without sharding
    Assumes: messages alike.
    """
    stack, sharded = recipe.stack, layout.sharded(1)
    moved = params * stack.grad_reduce_bytes
    buckets = np.maximum(moved / (stack.reduce_mib * MIB), 1.0) if stack.reduce_mib else 1.0
    messages = np.where(sharded & stack.sharded_at_end, 1.0, buckets)
    whole = messages * collectives.all_reduce_s(recipe.hardware, members, moved / messages)
    scattered = messages * collectives.gather_s(recipe.hardware, members, moved / messages)
    return np.where(sharded & (not stack.gradients_all_reduced), scattered, whole)


def late_share(recipe: Recipe, layout: Layouts, layers: Split) -> Numeric:
    """Share of the first rank's parameters whose gradients come last, after which no backward pass
    is left to hide their reduction.

    Formula: (layer + embedding) / (layers layer + embedding, and head without a pipeline)
    Source:  [megatron-core] --overlap-grad-reduce; [nanotron] DistributedDataParallel: buckets in
             the order of the backward pass
    Assumes: a dense layer stands for the first one; a tied table's gradient is whole with the
             embedding's.
    """
    each = (
        layer_params(recipe.model, layout.tp)
        if whole(recipe)
        else trained_layers(recipe, layout, 1)[0]
    )
    total = np.maximum(layers.first * each + trained_ends(recipe, layout), 1.0)
    return np.minimum(each + trained_embedding(recipe, layout), total) / total
