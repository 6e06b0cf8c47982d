"""How many of the parameters on a rank are trained: all, those that are not frozen, or adapters
alone.
"""

from __future__ import annotations

import numpy as np

from planner.cost.params.attention import attention_params
from planner.cost.params.experts import (
    moe_layers_below,
    routed_params,
    router_params,
    shared_params,
)
from planner.cost.params.layer import (
    embedding_params,
    head_params,
    mlp_params,
    norm_params,
    total_params,
)
from planner.cost.params.lora import adapter_params, dense_adapters, expert_adapters
from planner.cost.params.per_rank import layers_params
from planner.layout import Layout, Layouts, Numeric
from planner.specs.recipe import Recipe


def adapters_params(
    recipe: Recipe, layout: Layouts, layers: Numeric, expert_layers: Numeric = 0.0
) -> tuple[Numeric, Numeric]:
    """Parameters of the adapters of so many layers on one rank, of which so many have experts: over
    dp cp, and of routed experts.

    Formula: layers dense + expert_layers (with experts - dense), adapter_params of each over tp;
             routed ones over etp
    Source:  [hu2021] sec. 4.1; [megatron-bridge] ParallelLinearAdapter
    Assumes: the routed experts of a rank share one adapter a linear, as Megatron-Bridge's grouped
             experts do.
    """
    dense, sparse = dense_adapters(recipe), expert_adapters(recipe)
    shared = tuple(adapter for adapter in sparse if adapter.of != "routed")
    routed = tuple(adapter for adapter in sparse if adapter.of == "routed")
    plain = layers * adapter_params(recipe, dense, layout.tp)
    if not sparse:
        return plain, 0.0
    more = adapter_params(recipe, shared, layout.tp) - adapter_params(recipe, dense, layout.tp)
    return plain + expert_layers * more, expert_layers * adapter_params(recipe, routed, layout.etp)


def frozen_params(
    recipe: Recipe, layout: Layouts, layers: Numeric, expert_layers: Numeric = 0.0
) -> tuple[Numeric, Numeric]:
    """Frozen parameters of so many layers on one rank: those over dp cp, and routed experts.

    Formula: the sum of the frozen parts; all of them with adapters
    Source:  [hu2021] sec. 4: pre-trained weights get no gradients
    Assumes: a part is frozen in every layer.
    """
    if recipe.lora:
        return layers_params(recipe.model, layout, layers, expert_layers)
    model, moe, tp = recipe.model, recipe.model.moe, layout.tp
    shared: Numeric = 0.0 * layers
    shared = shared + (0.0 if trains(recipe, "attention") else layers * attention_params(model, tp))
    shared = shared + (
        0.0 if trains(recipe, "norms") else layers * (model.norms_per_layer * norm_params(model))
    )
    if trains(recipe, "mlp"):
        return shared, 0.0
    shared = shared + (layers - expert_layers) * mlp_params(model, tp)
    if moe is None:
        return shared, 0.0
    own = (
        shared_params(model, moe, tp)
        + router_params(model, moe)
        + (mlp_params(model, tp) if moe.dense_residual else 0)
    )
    return shared + expert_layers * own, expert_layers * routed_params(
        model, moe, layout.ep, layout.etp
    )


def trained_layers(
    recipe: Recipe, layout: Layouts, layers: Numeric, expert_layers: Numeric = 0.0
) -> tuple[Numeric, Numeric]:
    """Trained parameters of so many layers on one rank: those over dp cp, and those of routed
    experts.

    Formula: layers_params - frozen_params + adapters_params
    Source:  [hu2021] sec. 4; [rajbhandari2020] sec. 3.1: gradients and states are of what is
             trained
    Assumes: as those.
    """
    params = layers_params(recipe.model, layout, layers, expert_layers)
    if trains_all(recipe):
        return params
    frozen, more = (
        frozen_params(recipe, layout, layers, expert_layers),
        adapters_params(recipe, layout, layers, expert_layers),
    )
    shared, routed = params[0] - frozen[0] + more[0], params[1] - frozen[1] + more[1]
    return np.maximum(shared, 0.0), np.maximum(
        routed, 0.0
    )  # all frozen, the sums differ by a rounding


def trained_embedding(recipe: Recipe, layout: Layouts) -> Numeric:
    """Trained parameters of the embedding on one rank; 0 when frozen."""
    return embedding_params(recipe.model, layout.tp) * trains(recipe, "embedding")


def trained_head(recipe: Recipe, layout: Layouts) -> Numeric:
    """Trained parameters of the head with its norm on one rank; 0 when frozen."""
    return head_params(recipe.model, layout) * trains(recipe, "head")


def trained_ends(recipe: Recipe, layout: Layouts) -> Numeric:
    """Trained parameters of embedding and, without a pipeline, of the head, on the first rank."""
    return trained_embedding(recipe, layout) + ~layout.pipelined * trained_head(recipe, layout)


def trained_total(recipe: Recipe) -> float:
    """Trained parameters of the whole model.

    Formula: total_params less what is frozen, or the adapters of all layers
    Source:  [hu2021] sec. 4.1
    Assumes: routed experts have an adapter a linear for each rank of expert parallelism, counted
             once.
    """
    model = recipe.model
    if trains_all(recipe):
        return total_params(model)
    unsplit, sparse = Layout(), moe_layers_below(model, model.num_layers)
    if recipe.lora:
        return float(sum(adapters_params(recipe, unsplit, model.num_layers, sparse)))
    table = model.vocab_size * model.hidden_size
    ends = table * (not trains(recipe, "embedding")) + table * (not trains(recipe, "head")) * (
        not model.tied_embeddings
    )
    return float(
        total_params(model) - sum(frozen_params(recipe, unsplit, model.num_layers, sparse)) - ends
    )


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
    return recipe.lora is not None or any(
        trains(recipe, part) for part in ("embedding", "attention", "mlp", "norms")
    )
