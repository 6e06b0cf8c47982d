"""Time of offloaded states: the update of the optimizer on the host, weights fetched from it."""

from __future__ import annotations

import numpy as np

from planner.cost.layer.layer import LayerTime
from planner.cost.memory.offload import STATE_BYTES, nodes, on_nvme, optimizer_away, weights_away
from planner.cost.params.layer import ends_params
from planner.cost.params.per_rank import expert_ranks, instances, layers_params
from planner.cost.params.stages import Split
from planner.cost.params.trained import trained_ends, trained_layers, trained_total
from planner.layout import Layouts, Numeric
from planner.specs.recipe import Recipe
from planner.units import GB


def _shard(recipe: Recipe, layout: Layouts, layers: Split, trained: bool = True) -> Numeric:
    """Parameters whose states a rank owns; with trained False those whose weights it owns."""
    params, routed = (
        trained_layers(recipe, layout, layers.first)
        if trained
        else layers_params(recipe.model, layout, layers.first)
    )
    ends = trained_ends(recipe, layout) if trained else ends_params(recipe, layout)
    own = (params + ends) / layout.replicas
    own = own + routed / expert_ranks(layout) if recipe.model.moe else own
    return own * instances(recipe, layout) if trained else own


def _link_bytes_per_s(recipe: Recipe) -> float:
    """What a device's link to host memory carries each way."""
    share = recipe.software.offload.link_share
    return recipe.hardware.node.pcie_gbytes_per_s * GB * share


def update_s(recipe: Recipe, layout: Layouts, layers: Split) -> Numeric:
    """Gradients to the host, Adam on its processors, weights back.

    Formula: the share that is off the device of (2 m + 2) bytes of the shard over PCIe, under
             Megatron-LM gradient_bytes + 2; and max(P / nodes / host rate, 28 P / nodes over NVMe);
             of the two the longer where they run beside one another
    Source:  [deepspeed] stage_1_and_2, stage3, DeepSpeedCPUAdam; [ml-engineering] rate of a node's
             processors; [megatron-core] core/optimizer/cpu_offloading/hybrid_optimizer.py
    Assumes: DeepSpeed sends the gradients of every micro-batch to the host, Megatron-LM the main
             gradients of a step.
    """
    node = recipe.hardware.node
    share = trained_total(recipe) * instances(recipe, layout) / nodes(recipe)
    sent = (
        recipe.software.states.gradient_bytes if recipe.framework == "megatron" else 2.0 * layout.m
    )
    moved = (sent + 2.0) * _shard(recipe, layout, layers) / _link_bytes_per_s(recipe)
    adam = share / recipe.software.sharding.host_update_params_per_s
    drives = on_nvme(layout) * STATE_BYTES * share / max(node.nvme_gbytes_per_s * GB, 1.0)
    update = np.maximum(adam, drives)
    overlaps = recipe.software.offload.optimizer_beside
    return optimizer_away(recipe, layout) * (
        np.maximum(moved, update) if overlaps else moved + update
    )


def fetch_s(recipe: Recipe, layout: Layouts, layers: Split, layer: LayerTime) -> Numeric:
    """Weights from the host, forward and backward, where they outlast the layers that hide them.

    Formula: max(0, m (2 fetches of 2 bytes of the shard) - m layers (forward + backward))
    Source:  [deepspeed] partitioned_param_coordinator: prefetch while layers compute
    Assumes: host memory feeds all PCIe links at once; NVMe is shared by the node's GPUs.
    """
    node = recipe.hardware.node
    size = 2.0 * _shard(recipe, layout, layers, trained=False)
    host = size / _link_bytes_per_s(recipe)
    drives = size * np.minimum(recipe.gpus, node.gpus) / max(node.nvme_gbytes_per_s * GB, 1.0)
    fetch = np.where(on_nvme(layout) > 0, np.maximum(drives, host), host)
    computed = layers.first.total * (layer.forward_s + layer.backward_s)
    return weights_away(layout) * layout.m * np.maximum(2 * fetch - computed, 0.0)
