"""Which parameters a rank holds, by the ranks that hold the same: experts are replicated over edp,
everything else over dp cp.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.params.layer import layer_params, routed_layer_params
from planner.cost.params.stages import Layers
from planner.layout import Layouts, Numeric
from planner.specs.layers import kinds, mtp_kinds
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe


def expert_ranks(layout: Layouts) -> Numeric:
    """Ranks that hold the same experts.

    Formula: edp = gpus / (etp ep pp), at least 1
    Source:  [megatron-core] initialize_model_parallel: the experts' grid, into which cp is folded
    Assumes: a legal layout.
    """
    return np.maximum(layout.gpus / (layout.etp * layout.ep * layout.pp), 1.0)


def instances(recipe: Recipe, layout: Layouts) -> Numeric:
    """Copies of the sharded optimizer's states among the ranks that hold the same parameters.

    Formula: num_distributed_optimizer_instances under ZeRO 1; shard_copies() above
    Source:  [megatron-core] core/parallel_state.py
    Assumes: it divides the replicas, of experts too.
    """
    of_states = np.where(np.asarray(layout.zero) == 1, recipe.software.sharding.instances, 1)
    return of_states * shard_copies(recipe, layout)


def shard_copies(recipe: Recipe, layout: Layouts) -> Numeric:
    """Copies of what FSDP shards, weights, gradients and states, among the ranks that hold the same
    parameters.

    Formula: data_parallel_replicate_degree from ZeRO 2 on with several ranks, else 1
    Source:  [torchtitan] distributed/parallel_dims.py: meshes dp_replicate x fsdp, and dp_replicate
             x efsdp of experts
    Assumes: it divides the replicas, of experts too.
    """
    shared = layout.sharded(2) & (np.asarray(layout.replicas) > 1)
    return np.where(shared, recipe.software.sharding.shard_copies, 1)


def layers_params(model: ModelSpec, layout: Layouts, layers: Layers) -> tuple[Numeric, Numeric]:
    """Parameters of so many layers on one rank: those over dp cp, and routed experts.

    Formula: layer_params() and routed_layer_params() of each kind
    Source:  [megatron-core] MoELayer: routed experts alone are expert-parallel, their router and
             shared experts are not
    Assumes: tp, ep, etp divide what they split.
    """
    each = kinds(model).values()
    shared = layers.times(_of_degrees(model, layout.tp))
    routed = layers.times(routed_layer_params(kind, layout.ep, layout.etp) for kind in each)
    return shared, routed


def _of_degrees(model: ModelSpec, tp: Numeric) -> list[Numeric]:
    """layer_params() of each kind: of a column looked up by the few degrees that there are."""
    if not isinstance(tp, np.ndarray):
        return [layer_params(kind, tp) for kind in kinds(model).values()]
    return [table[tp] for table in _by_degree(model, int(np.max(tp, initial=1)))]


@lru_cache(maxsize=256)
def _by_degree(model: ModelSpec, most: int) -> list[NDArray[Any]]:
    degrees = np.maximum(np.arange(most + 1), 1)
    return [
        np.broadcast_to(layer_params(kind, degrees), most + 1) for kind in kinds(model).values()
    ]


def mtp_routed(model: ModelSpec, layout: Layouts) -> Numeric:
    """Parameters of the routed experts of multi-token prediction on one rank of the last stage."""
    if not model.mtp_layers:
        return 0.0
    each = (routed_layer_params(kind, layout.ep, layout.etp) for kind in mtp_kinds(model))
    return model.mtp_sets * sum(each)
