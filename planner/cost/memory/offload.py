"""States off the device, DeepSpeed's and Megatron's optimizer: what leaves, what a pipeline adds,
what moving and updating costs.
"""

from __future__ import annotations

import numpy as np

from planner.cost.layer.layer import LayerTime
from planner.cost.params.layer import ends_params, total_params
from planner.cost.params.per_rank import expert_ranks, layers_params
from planner.cost.params.stages import Split
from planner.cost.params.trained import trained_ends, trained_layers, trained_total
from planner.layout import OFFLOAD_CODE, Layouts, Numeric
from planner.specs.recipe import Recipe
from planner.units import GB, GIB

STATE_BYTES = 28.0
"""Read and written a parameter by an update of states on NVMe: 12 each way, and 4 of gradients."""
BUFFERS = 1.5
"""Host memory over the states in it: pinned buffers and copies."""


def optimizer_away(layout: Layouts) -> Numeric:
    """1 where the optimizer's states are off the device."""
    return (np.asarray(layout.offload) > 0) * 1.0


def weights_away(layout: Layouts) -> Numeric:
    """1 where the weights are off the device too."""
    return (np.asarray(layout.offload) >= OFFLOAD_CODE["params-cpu"]) * 1.0


def on_nvme(layout: Layouts) -> Numeric:
    """1 where what is off the device is on NVMe, not in host memory."""
    away = np.asarray(layout.offload)
    return ((away == OFFLOAD_CODE["optimizer-nvme"]) | (away == OFFLOAD_CODE["params-nvme"])) * 1.0


def in_bf16_pipeline(recipe: Recipe, layout: Layouts) -> Numeric:
    """1 where DeepSpeed's BF16_Optimizer runs: a bf16 pipeline whose optimizer stays on the
    device.
    """
    own = recipe.framework == "deepspeed" and recipe.precision == "bf16"
    return layout.pipelined * (1 - optimizer_away(layout)) * own


def sums_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """Bytes a parameter of the buffer in which a bf16 pipeline adds its micro-batches, beside the
    gradients themselves.

    Formula: 4 under ZeRO 1, 2 under ZeRO 0
    Source:  [deepspeed] runtime/bf16_optimizer.py: a flat buffer of grad_accum_dtype, which ZeRO 0
             leaves at bf16
    Assumes: the buffer is of the whole rank.
    """
    return in_bf16_pipeline(recipe, layout) * np.where(layout.sharded(1), 4.0, 2.0)


def nodes(recipe: Recipe) -> float:
    """Hosts that share the states."""
    return max(recipe.gpus / recipe.hardware.node.gpus, 1.0)


def host_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """Host memory of one node that offloaded states take.

    Formula: 1.5 (16 P_trained + 2 P with the weights) / nodes; none on NVMe
    Source:  [deepspeed] estimate_zero2_model_states_mem_needs,
             estimate_zero3_model_states_mem_needs, built under zero.Init
    Assumes: even shards; buffers of half the states.
    """
    held = optimizer_away(layout) * 16.0 * trained_total(recipe) + weights_away(
        layout
    ) * 2.0 * total_params(recipe.model)
    return BUFFERS * held * (1 - on_nvme(layout)) / nodes(recipe)


def host_limit_bytes(recipe: Recipe) -> float:
    """What a node has."""
    return recipe.hardware.node.host_memory_gib * GIB


def _shard(recipe: Recipe, layout: Layouts, layers: Split, trained: bool = True) -> Numeric:
    """Parameters whose states a rank owns; with trained False those whose weights it owns."""
    found = layers.experts.first if layers.experts else 0.0
    params, routed = (
        trained_layers(recipe, layout, layers.first, found)
        if trained
        else layers_params(recipe.model, layout, layers.first, found)
    )
    ends = trained_ends(recipe, layout) if trained else ends_params(recipe, layout)
    own = (params + ends) / (layout.replicas)
    return own + routed / expert_ranks(layout) if layers.experts else own


def update_s(recipe: Recipe, layout: Layouts, layers: Split) -> Numeric:
    """Gradients to the host, Adam on its processors, weights back.

    Formula: (2 m + 2) bytes of the shard over PCIe, under Megatron-LM gradient_bytes + 2; and max(P
             / nodes / host rate, 28 P / nodes over NVMe)
    Source:  [deepspeed] stage_1_and_2, stage3, DeepSpeedCPUAdam; [ml-engineering] rate of a node's
             processors; [megatron-core] core/optimizer/cpu_offloading/hybrid_optimizer.py
    Assumes: DeepSpeed sends the gradients of every micro-batch to the host, Megatron-LM the main
             gradients of a step; nothing hides.
    """
    node = recipe.hardware.node
    share = trained_total(recipe) / nodes(recipe)
    sent = recipe.stack.gradient_bytes if recipe.framework == "megatron" else 2.0 * layout.m
    moved = (sent + 2.0) * _shard(recipe, layout, layers) / (node.pcie_gbytes_per_s * GB)
    adam = share / recipe.stack.host_update_params_per_s
    drives = on_nvme(layout) * STATE_BYTES * share / max(node.nvme_gbytes_per_s * GB, 1.0)
    return optimizer_away(layout) * (moved + np.maximum(adam, drives))


def fetch_s(recipe: Recipe, layout: Layouts, layers: Split, layer: LayerTime) -> Numeric:
    """Weights from the host, forward and backward, where they outlast the layers that hide them.

    Formula: max(0, m (2 fetches of 2 bytes of the shard) - m layers (forward + backward))
    Source:  [deepspeed] partitioned_param_coordinator: prefetch while layers compute
    Assumes: host memory feeds all PCIe links at once; NVMe is shared by the node's GPUs.
    """
    node = recipe.hardware.node
    size = 2.0 * _shard(recipe, layout, layers, trained=False)
    host = size / (node.pcie_gbytes_per_s * GB)
    drives = size * np.minimum(recipe.gpus, node.gpus) / max(node.nvme_gbytes_per_s * GB, 1.0)
    one = np.where(on_nvme(layout) > 0, np.maximum(drives, host), host)
    computed = layers.first * (layer.forward_s + layer.backward_s)
    return weights_away(layout) * layout.m * np.maximum(2 * one - computed, 0.0)
