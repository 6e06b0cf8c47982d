"""Optimizer states and weights kept in host memory or on NVMe, by DeepSpeed and Megatron-LM: what
leaves the device, and what the host then holds.
"""

from __future__ import annotations

import numpy as np

from planner.cost.params.layer import total_params
from planner.cost.params.per_rank import instances
from planner.cost.params.trained import trained_total
from planner.cost.params.vision import tower_in
from planner.layout import OFFLOAD_CODE, Layouts, Numeric
from planner.specs.recipe import Recipe
from planner.units import GIB

STATE_BYTES = 28.0
"""Read and written a parameter by an update of states on NVMe: 12 each way, and 4 of gradients."""
BUFFERS = 1.5
"""Host memory over the states in it: pinned buffers and copies."""


def optimizer_away(recipe: Recipe, layout: Layouts) -> Numeric:
    """Share of the optimizer's states that is off the device."""
    return (np.asarray(layout.offload) > 0) * recipe.software.offload.optimizer_share


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
    return layout.pipelined * (np.asarray(layout.offload) == 0) * own


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


def host_bytes(recipe: Recipe, layout: Layouts, activations_bytes: Numeric = 0.0) -> Numeric:
    """Host memory of one node that offloaded states take, and activations of the rank that sends
    most.

    Formula: 1.5 (16 P_trained, or the share that goes, + 2 P with the weights) / nodes; none on
             NVMe; activations_bytes of each GPU of the node
    Source:  [deepspeed] estimate_zero2_model_states_mem_needs,
             estimate_zero3_model_states_mem_needs, built under zero.Init
    Assumes: even shards; buffers of half the states; activations go into buffers of their size.
    """
    trained = trained_total(recipe) * instances(recipe, layout)
    held = optimizer_away(recipe, layout) * 16.0 * trained + weights_away(layout) * 2.0 * (
        total_params(recipe.model) + tower_in(recipe)
    )
    states = BUFFERS * held * (1 - on_nvme(layout)) / nodes(recipe)
    return states + activations_bytes * min(recipe.gpus, recipe.hardware.node.gpus)


def host_limit_bytes(recipe: Recipe) -> float:
    """What a node has."""
    return recipe.hardware.node.host_memory_gib * GIB
