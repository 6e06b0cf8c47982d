"""How many of the parameters on a rank are trained: all, those that are not frozen, or adapters
alone.
"""

from __future__ import annotations

import numpy as np

from planner.cost.params.layer import (
    embedding_params,
    head_params,
    layer_params,
    norm_params,
    routed_layer_params,
    total_params,
)
from planner.cost.params.lora import adapter_params, layer_adapters
from planner.cost.params.mixers import entry_stream_params, exit_stream_params, mixer_params
from planner.cost.params.per_rank import layers_params
from planner.cost.params.stages import Layers
from planner.cost.params.vision import tower_in
from planner.layout import Layout, Layouts, Numeric
from planner.specs.layers import counts, kinds
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe


def adapters_params(recipe: Recipe, layout: Layouts, layers: Layers) -> tuple[Numeric, Numeric]:
    """Parameters of the adapters of so many layers on one rank: over dp cp, and of routed experts.

    Formula: adapter_params of each kind over tp; routed ones over etp
    Source:  [hu2021] sec. 4.1; [megatron-bridge] ParallelLinearAdapter
    Assumes: the routed experts of a rank share one adapter a linear, as Megatron-Bridge's grouped
             experts do.
    """
    shared, routed = [], []
    for kind in recipe.kinds:
        adapters = layer_adapters(kind)
        of_experts = tuple(adapter for adapter in adapters if adapter.of == "routed")
        others = tuple(adapter for adapter in adapters if adapter.of != "routed")
        shared.append(adapter_params(recipe, others, layout.tp))
        routed.append(adapter_params(recipe, of_experts, layout.etp))
    return layers.times(shared), layers.times(routed)


def frozen_params(recipe: Recipe, layout: Layouts, layers: Layers) -> tuple[Numeric, Numeric]:
    """Frozen parameters of so many layers on one rank: those over dp cp, and routed experts.

    Formula: the sum of the frozen parts of each kind; all of them with adapters
    Source:  [hu2021] sec. 4: pre-trained weights get no gradients
    Assumes: a part is frozen in every layer.
    """
    if recipe.lora:
        return layers_params(recipe.model, layout, layers)
    each = kinds(recipe.model).values()
    shared = [_frozen(recipe, model, layout.tp) for model in each]
    if trains(recipe, "mlp"):
        return layers.times(shared), 0.0
    routed = (routed_layer_params(model, layout.ep, layout.etp) for model in each)
    return layers.times(shared), layers.times(routed)


def _frozen(recipe: Recipe, model: ModelSpec, tp: Numeric) -> Numeric:
    """Frozen parameters of one layer without its routed experts; model: of the layer's kind."""
    attention, norms = mixer_params(model, tp), model.norms_per_layer * norm_params(model)
    parts = {
        "attention": attention,
        "norms": norms,
        "mlp": layer_params(model, tp) - attention - norms,
    }
    return sum((size for part, size in parts.items() if not trains(recipe, part)), 0.0)


def trained_layers(recipe: Recipe, layout: Layouts, layers: Layers) -> tuple[Numeric, Numeric]:
    """Trained parameters of so many layers on one rank: those over dp cp, and those of routed
    experts.

    Formula: layers_params - frozen_params + adapters_params
    Source:  [hu2021] sec. 4; [rajbhandari2020] sec. 3.1: gradients and states are of what is
             trained
    Assumes: as those.
    """
    params = layers_params(recipe.model, layout, layers)
    if trains_all(recipe):
        return params
    frozen = frozen_params(recipe, layout, layers)
    more = adapters_params(recipe, layout, layers)
    shared, routed = params[0] - frozen[0] + more[0], params[1] - frozen[1] + more[1]
    return np.maximum(shared, 0.0), np.maximum(
        routed, 0.0
    )  # all frozen, the sums differ by a rounding


def trained_front(recipe: Recipe, layout: Layouts) -> Numeric:
    """Trained parameters before the layers on one rank, embedding and vision tower; 0 when
    frozen.
    """
    table = embedding_params(recipe.model, layout.tp) * trains(recipe, "embedding")
    return table + tower_in(recipe) * trains(recipe, "vision")


def trained_head(recipe: Recipe, layout: Layouts) -> Numeric:
    """Trained parameters of the head with its norm on one rank; 0 when frozen."""
    return head_params(recipe.model, layout) * trains(recipe, "head")


def trained_ends(recipe: Recipe, layout: Layouts) -> Numeric:
    """Trained parameters before the layers and, without a pipeline, of the head, on the first
    rank.
    """
    return trained_front(recipe, layout) + ~layout.pipelined * trained_head(recipe, layout)


def trained_total(recipe: Recipe) -> float:
    """Trained parameters of the whole model, its vision tower too.

    Formula: total_params and tower less what is frozen, or the adapters of all layers
    Source:  [hu2021] sec. 4.1
    Assumes: routed experts have an adapter a linear for each rank of expert parallelism, counted
             once.
    """
    model, whole = recipe.model, total_params(recipe.model) + tower_in(recipe)
    if trains_all(recipe):
        return whole
    unsplit, layers = Layout(), Layers(counts(model))
    if recipe.lora:
        return float(sum(adapters_params(recipe, unsplit, layers)))
    table = model.vocab_size * model.hidden_size
    first = table + entry_stream_params(model)
    last = table * (not model.tied_embeddings) + exit_stream_params(model)
    ends = first * (not trains(recipe, "embedding")) + last * (not trains(recipe, "head"))
    ends += tower_in(recipe) * (not trains(recipe, "vision"))
    return float(whole - sum(frozen_params(recipe, unsplit, layers)) - ends)


def trains_all(recipe: Recipe) -> bool:
    """Whether every weight is trained."""
    return not (recipe.lora or recipe.frozen)


def trains(recipe: Recipe, part: str) -> bool:
    """Whether the weights of a part (workload.FROZEN) get gradients; with adapters none do."""
    return recipe.lora is None and part not in recipe.frozen


def has_backward(recipe: Recipe) -> bool:
    """Whether the backward pass enters the layers: something in them, or before them, is
    trained.
    """
    before = (
        ("embedding", "vision") if recipe.tower and recipe.images_per_sample else ("embedding",)
    )
    return recipe.lora is not None or any(
        trains(recipe, part) for part in (*before, "attention", "mlp", "norms")
    )
