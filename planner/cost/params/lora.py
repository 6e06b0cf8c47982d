"""Low-rank adapters (LoRA) beside frozen linears: their parameters, their time, what they keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.cost.layer.attention import tokens
from planner.cost.layer.kernels import memory_s, peak_flops_per_s
from planner.cost.network import collectives
from planner.cost.params.frozen import trains
from planner.layout import Layouts, Numeric
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.units import MICRO

FORWARD, BACKWARD = 4, 7
"""Kernels of an adapter: two products, a scaling, a sum; their four gradients, scaling, sum of
input gradients, and one cast.
"""
NF4 = 0.5 + 0.127 / 8
"""Bytes a weight in QLoRA's 4 bits, its doubly quantized scales too: 0.127 bits a weight
[dettmers2023] sec. 3.
"""
KERNEL_US = 10.0
"""CPU time to launch one from Python modules."""


class Adapter(NamedTuple):
    """Two matrices, rank x inputs and outputs x rank, beside a linear."""

    inputs: int
    outputs: int
    side: str
    """column or row: how tensor parallelism splits the linear."""
    of: str
    """attention, mlp, shared or routed."""


def attention_adapters(model: ModelSpec, targets: tuple[str, ...]) -> tuple[Adapter, ...]:
    """Adapters of the projections of attention that are targets; qkv of latent attention means each
    of its projections.
    """
    h, q, kv, mla = model.hidden_size, model.query_size, model.kv_size, model.mla
    column = {"qkv": (q + 2 * kv,), "q_proj": (q,), "k_proj": (kv,), "v_proj": (kv,)}
    found = [
        Adapter(h, width, "column", "attention")
        for name in targets
        if name in column
        for width in column[name]
    ]
    if mla and found:
        latent, value = mla.q_lora_rank, mla.kv_lora_rank
        queries = [(h, latent), (latent, q)] if latent else [(h, q)]
        pairs = [
            *queries,
            (h, value + mla.qk_rope_dim),
            (value, model.num_heads * (mla.qk_nope_dim + mla.v_head_dim)),
        ]
        found = [Adapter(a, b, "column", "attention") for a, b in pairs]
    out = model.num_heads * (mla.v_head_dim if mla else model.head_dim)
    return (*found, *(Adapter(out, h, "row", "attention") for name in targets if name == "proj"))


def mlp_adapters(
    model: ModelSpec, targets: tuple[str, ...], ffn_size: int, of: str
) -> tuple[Adapter, ...]:
    """Adapters of an MLP's linears, or of an expert's, that are targets."""
    h, branches = model.hidden_size, model.mlp_branches
    width = {"fc1": branches * ffn_size, "gate_proj": ffn_size, "up_proj": ffn_size}
    found = [Adapter(h, width[name], "column", of) for name in targets if name in width]
    return (*found, *(Adapter(ffn_size, h, "row", of) for name in targets if name == "fc2"))


def dense_adapters(recipe: Recipe) -> tuple[Adapter, ...]:
    """Those of a layer with a dense MLP; none without LoRA."""
    model, lora = recipe.model, recipe.lora
    return (
        (
            *attention_adapters(model, lora.targets),
            *mlp_adapters(model, lora.targets, model.ffn_size, "mlp"),
        )
        if lora
        else ()
    )


def mlp_adapters_of(recipe: Recipe) -> tuple[Adapter, ...]:
    """Of a dense layer's adapters those of its MLP."""
    return tuple(one for one in dense_adapters(recipe) if one.of == "mlp")


def expert_adapters(recipe: Recipe) -> tuple[Adapter, ...]:
    """Those of a layer with experts: attention's, and one a linear of the shared and of a rank's
    routed experts together.
    """
    model, lora, moe = recipe.model, recipe.lora, recipe.model.moe
    if not lora or not moe:
        return ()
    shared = (
        mlp_adapters(model, lora.targets, moe.shared_ffn_size, "shared")
        if moe.shared_ffn_size
        else ()
    )
    beside = mlp_adapters(model, lora.targets, model.ffn_size, "mlp") if moe.dense_residual else ()
    routed = mlp_adapters(model, lora.targets, moe.expert_ffn_size, "routed")
    return (*attention_adapters(model, lora.targets), *shared, *beside, *routed)


def adapter_params(recipe: Recipe, adapters: tuple[Adapter, ...], split: Numeric = 1) -> Numeric:
    """Parameters of a layer's adapters on one rank.

    Formula: sum of r (inputs + outputs) / tp (etp of experts)
    Source:  [hu2021] sec. 4.1; [megatron-bridge] ParallelLinearAdapter: both matrices are split, by
             rank or by the linear's own split
    Assumes: tp divides rank and widths; no biases.
    """
    rank = recipe.lora.rank if recipe.lora else 0
    return rank * sum(one.inputs + one.outputs for one in adapters) / split


def sent_bytes(recipe: Recipe) -> float:
    """Bytes a weight that sharded weights are gathered as: 2, in nf4 its own."""
    return NF4 if recipe.lora and recipe.lora.base == "nf4" else 2.0


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
    for one in adapters:
        rows, split = _rows(recipe, layout, one, copies)
        n_in, n_out = (
            (one.inputs, one.outputs / split)
            if one.side == "column"
            else (one.inputs / split, one.outputs)
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


def _rows(
    recipe: Recipe, layout: Layouts, one: Adapter, copies: Numeric
) -> tuple[Numeric, Numeric]:
    """Tokens that pass an adapter on one rank, and the ranks that split it."""
    return (copies, layout.etp) if one.of == "routed" else (tokens(recipe, layout), layout.tp)


def adapters_kept_bytes(
    recipe: Recipe, layout: Layouts, adapters: tuple[Adapter, ...], copies: Numeric = 0.0
) -> Numeric:
    """What the adapters of a layer keep between forward and backward, beyond inputs that the layer
    keeps anyway.

    Formula: 2 bytes T r of each; with sp also the gathered input of the column-parallel linears, 2
             bytes T h each block
    Source:  [megatron-bridge] LoRALinear under sequence parallelism (its notes on memory: gathering
             again saves 36 layers' two inputs of Qwen3-8B, 4.73 GB of 47.5)
    Assumes: no dropout before the adapter.
    """
    if not adapters or not recipe.lora:
        return 0.0
    inner = sum(_rows(recipe, layout, one, copies)[0] * recipe.lora.rank * 2.0 for one in adapters)
    blocks = len({one.of for one in adapters if one.side == "column" and one.of != "routed"})
    gathered = layout.sequence_split & layout.tensor_split & (recipe.framework == "megatron")
    return inner + gathered * blocks * 2.0 * tokens(recipe, layout) * recipe.model.hidden_size


def input_kept(recipe: Recipe, part: str, targets: tuple[str, ...], kept: float) -> float:
    """Bytes an element of a linear's input that the backward pass needs: kept for its own weight
    gradient, 2 for an adapter's, else none.

    Formula: kept where trained; 2 where one of targets has an adapter; 0 where frozen
    Source:  [transformer-engine] Linear saves its input for a weight gradient alone; [hu2021]
    Assumes: what another operation keeps of it is counted there.
    """
    if trains(recipe, part):
        return kept
    return 2.0 if recipe.lora and any(name in recipe.lora.targets for name in targets) else 0.0
