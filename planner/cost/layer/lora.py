"""Time of the adapters (LoRA) of one layer and micro-batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.layer.kernels import memory_s, peak_flops_per_s
from planner.cost.network import collectives
from planner.cost.params.lora import NF4, Adapter
from planner.layout import Layouts, Numeric
from planner.specs.recipe import Recipe
from planner.units import MICRO

FORWARD, BACKWARD = 4, 7
"""Kernels of an adapter: two products, a scaling, a sum; their four gradients, scaling, sum of
input gradients, and one cast.
"""
KERNEL_US = 10.0
"""CPU time to launch one from Python modules."""


@dataclass(frozen=True, slots=True)
class AdapterTime:
    """Seconds of a layer's adapters for one micro-batch."""

    forward_s: Numeric
    backward_s: Numeric
    launch_forward_s: float
    """CPU time to launch them."""
    launch_backward_s: float


NO_ADAPTERS = AdapterTime(0.0, 0.0, 0.0, 0.0)


def adapters_time(
    recipe: Recipe,
    layout: Layouts,
    adapters: tuple[Adapter, ...],
    frozen: Numeric,
    copies: Numeric = 0.0,
) -> AdapterTime:
    """Both products of each adapter and the sum with the linear's output, and their gradients;
    frozen: weights of the layer's linears on the rank, which nf4 turns to 16 bits before each use;
    copies: tokens of a rank's routed experts.

    Formula: forward: max(2 T r (n_in + n_out) FLOPs at peak, 2 bytes T (n_in + 3 n_out + 2 r) over
             HBM) + gather of T r over tp; backward: twice the FLOPs, 2 bytes T (4 n_in + 2 n_out +
             4 r), two gathers; nf4: 0.5 + 2 bytes a weight over HBM each way
    Source:  [hu2021] sec. 4.1; [dettmers2023] sec. 3; [megatron-bridge] LoRALinear,
             ParallelLinearAdapter
    Assumes: a rank of at most a few hundred is limited by memory; adapters stay in 16 bits; under
             sp the gathered input is the linear's.
    """
    if not adapters or not recipe.lora:
        return NO_ADAPTERS
    rank, rate = (
        float(recipe.lora.rank),
        peak_flops_per_s(recipe.hardware, "fp16" if recipe.precision == "fp16" else "bf16"),
    )
    forward: Numeric = 0.0
    backward: Numeric = 0.0
    for adapter in adapters:
        rows, split = rows_per_rank(recipe, layout, adapter, copies)
        n_in, n_out = (
            (adapter.inputs, adapter.outputs / split)
            if adapter.side == "column"
            else (adapter.inputs / split, adapter.outputs)
        )
        flops = 2.0 * rows * rank * (n_in + n_out)
        wide = recipe.element_bytes * rows
        members = collectives.group(recipe.hardware, 1, split)
        gather = collectives.gather_s(recipe.hardware, members, wide * rank)
        forward = (
            forward
            + np.maximum(
                flops / rate, memory_s(recipe.hardware, wide * (n_in + 3 * n_out + 2 * rank))
            )
            + gather
        )
        moved = memory_s(recipe.hardware, wide * (4 * n_in + 2 * n_out + 4 * rank))
        backward = backward + np.maximum(2 * flops / rate, moved) + 2 * gather
    opened = memory_s(recipe.hardware, (NF4 + 2.0) * frozen) if recipe.lora.base == "nf4" else 0.0
    one_us = len(adapters) * KERNEL_US * MICRO * recipe.hardware.node.launch_factor
    return AdapterTime(forward + opened, backward + opened, FORWARD * one_us, BACKWARD * one_us)


def rows_per_rank(
    recipe: Recipe, layout: Layouts, adapter: Adapter, copies: Numeric
) -> tuple[Numeric, Numeric]:
    """Tokens that pass an adapter on one rank, and the ranks that split it."""
    if adapter.of == "routed":
        return copies, layout.etp
    return recipe.tokens_per_rank(layout), layout.tp
