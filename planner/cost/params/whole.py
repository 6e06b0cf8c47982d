"""Parameters that stay whole on every rank where weights are sharded: tensors below a size."""

from __future__ import annotations

import numpy as np

from planner.cost.params.layer import layer_params, norm_params
from planner.layout import Layouts, Numeric
from planner.specs.recipe import Recipe


def whole_params(recipe: Recipe, layout: Layouts) -> Numeric:
    """Of one layer, of a model whose layers are alike, the parameters on one rank in tensors of
    fewer elements than whole_below; none unless weights are sharded.

    Formula: norms, query, key, value and output projection, each branch of the MLP and its last
             product, each where its elements / tp < whole_below
    Source:  [deepspeed] runtime/zero/partition_parameters.py ds_persist
    Assumes: linears apart from one another, as Hugging Face's models have them; biases, experts and
             latent attention are gathered.
    """
    limit = recipe.software.sharding.whole_below
    if limit == 0:
        return 0.0
    model, h, tp = recipe.model, recipe.model.hidden_size, layout.tp
    attention = [h * size / tp for size in (model.query_size, model.kv_size) for _ in range(2)]
    if model.mla:
        attention = []
    mlp = [h * model.ffn_size / tp] * (model.mlp_branches + 1)
    norms = [norm_params(model)] * model.norms_per_layer
    whole = sum(size * (np.asarray(size) < limit) for size in (*attention, *mlp, *norms))
    return np.minimum(whole, layer_params(model, tp)) * layout.sharded(3)
