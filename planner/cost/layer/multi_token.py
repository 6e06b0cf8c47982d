"""Multi-token prediction: what its layers add to the last stage."""

from __future__ import annotations

from planner.cost.layer.embedding_and_head import EndsTime
from planner.cost.layer.gemms import Product, products_s
from planner.cost.layer.layer import LayerTime
from planner.cost.params.stages import Layers
from planner.layout import Layouts
from planner.specs.layers import mtp_counts
from planner.specs.recipe import Recipe


def with_mtp(
    recipe: Recipe, layout: Layouts, ends: EndsTime, kinds: tuple[LayerTime, ...]
) -> EndsTime:
    """Embedding and head with the layers of multi-token prediction before each further head.

    Formula: mtp_layers (layers of mtp_pattern, or one like the last, + projection h from 2h / tp +
             embedding look-up + head) on the last stage; kinds: a layer of each kind
    Source:  [deepseek2024] sec. 2.2; [megatron-core] MultiTokenPredictionLayer
    Assumes: nothing of a depth runs beside another.
    """
    depth, h = recipe.model.mtp_layers, recipe.model.hidden_size
    if not depth:
        return ends
    count, layers = recipe.tokens_per_rank(layout), Layers(mtp_counts(recipe.model))
    layers_forward = layers.times(layer.forward_s for layer in kinds)
    layers_backward = layers.times(layer.backward_s for layer in kinds)
    layers_weight = layers.times(layer.gemm_weight_s for layer in kinds)
    forward, inputs, weights, _ = products_s(
        recipe, layout, (Product(count, h / layout.tp, 2 * h, "column"),)
    )
    head_weight = ends.head_weight_s + depth * (ends.head_weight_s + layers_weight + weights)
    return EndsTime(
        embedding_forward_s=ends.embedding_forward_s,
        embedding_backward_s=ends.embedding_backward_s,
        head_forward_s=ends.head_forward_s * (1 + depth)
        + depth * (layers_forward + forward + ends.embedding_forward_s),
        head_backward_s=ends.head_backward_s * (1 + depth)
        + depth * (layers_backward + inputs + weights + ends.embedding_backward_s),
        head_weight_s=head_weight,
        deferred_s=ends.deferred_s * (1 + depth),
    )
