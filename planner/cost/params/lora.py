"""Low-rank adapters (LoRA) beside frozen linears: their parameters, their time, what they keep."""

from __future__ import annotations

from typing import NamedTuple

from planner.layout import Numeric
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe

NF4 = 0.5 + 0.127 / 8
"""Bytes a weight in QLoRA's 4 bits, its doubly quantized scales too: 0.127 bits a weight
[dettmers2023] sec. 3.
"""


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
    if not model.has_attention:
        return ()
    h, q, kv, mla = model.hidden_size, model.query_size, model.kv_size, model.mla
    column = {"qkv": (q + 2 * kv,), "q_proj": (q,), "k_proj": (kv,), "v_proj": (kv,)}
    adapters = [
        Adapter(h, width, "column", "attention")
        for name in targets
        if name in column
        for width in column[name]
    ]
    if mla and adapters:
        latent, value = mla.q_lora_rank, mla.kv_lora_rank
        queries = [(h, latent), (latent, q)] if latent else [(h, q)]
        pairs = [
            *queries,
            (h, value + mla.qk_rope_dim),
            (value, model.num_heads * (mla.qk_nope_dim + mla.v_head_dim)),
        ]
        adapters = [Adapter(a, b, "column", "attention") for a, b in pairs]
    out = model.output_size
    return (*adapters, *(Adapter(out, h, "row", "attention") for name in targets if name == "proj"))


def mlp_adapters(
    model: ModelSpec, targets: tuple[str, ...], ffn_size: int, of: str
) -> tuple[Adapter, ...]:
    """Adapters of an MLP's linears, or of an expert's, that are targets."""
    if not model.has_mlp:
        return ()
    h, branches = model.hidden_size, model.mlp_branches
    width = {"fc1": branches * ffn_size, "gate_proj": ffn_size, "up_proj": ffn_size}
    adapters = [Adapter(h, width[name], "column", of) for name in targets if name in width]
    return (*adapters, *(Adapter(ffn_size, h, "row", of) for name in targets if name == "fc2"))


def layer_adapters(recipe: Recipe) -> tuple[Adapter, ...]:
    """Those of a layer: attention's and the MLP's, or one a linear of the shared and of a rank's
    routed experts together; none without LoRA.
    """
    model, lora, moe = recipe.model, recipe.lora, recipe.model.moe
    if not lora:
        return ()
    attention = attention_adapters(model, lora.targets)
    mlp = mlp_adapters(model, lora.targets, model.ffn_size, "mlp")
    if moe is None:
        return (*attention, *mlp)
    shared = (
        mlp_adapters(model, lora.targets, moe.shared_ffn_size, "shared")
        if moe.shared_ffn_size
        else ()
    )
    residual = mlp if moe.dense_residual else ()
    routed = mlp_adapters(model, lora.targets, moe.expert_ffn_size, "routed")
    return (*attention, *shared, *residual, *routed)


def adapter_params(recipe: Recipe, adapters: tuple[Adapter, ...], split: Numeric = 1) -> Numeric:
    """Parameters of a layer's adapters on one rank.

    Formula: sum of r (inputs + outputs) / tp (etp of experts)
    Source:  [hu2021] sec. 4.1; [megatron-bridge] ParallelLinearAdapter: both matrices are split, by
             rank or by the linear's own split
    Assumes: tp divides rank and widths; no biases.
    """
    rank = recipe.lora.rank if recipe.lora else 0
    return rank * sum(adapter.inputs + adapter.outputs for adapter in adapters) / split


def sent_bytes(recipe: Recipe) -> float:
    """Bytes a weight that sharded weights are gathered as: 2, in nf4 its own."""
    return NF4 if recipe.lora and recipe.lora.base == "nf4" else 2.0
