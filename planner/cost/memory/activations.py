"""Bytes that a layer keeps between forward and backward, and the peak inside one micro-batch, on
one rank.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from planner.cost.layer.chosen_operations import kept_operations_bytes
from planner.cost.layer.kernels import is_low
from planner.cost.layer.layer import matrices
from planner.cost.memory.expert_activations import expert_parts
from planner.cost.memory.host_activations import (
    HELD,
    NONE,
    Hosted,
    attention_modules,
    expert_modules,
    sent,
    whole_layers,
)
from planner.cost.memory.linear_inputs import input_kept
from planner.cost.memory.lora import adapters_kept_bytes
from planner.cost.params.layer import kv_heads_per_rank, padded_vocab
from planner.cost.params.lora import dense_adapters, mlp_adapters_of
from planner.cost.params.trained import has_backward, trains
from planner.layout import Layouts, Numeric
from planner.specs.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes of one micro-batch on one rank."""

    layer_bytes: Numeric
    """Kept by one layer that is not fully recomputed (selective recomputation applied)."""
    input_bytes: Numeric
    """Kept by one layer that is fully recomputed: its input."""
    whole_layer_bytes: Numeric
    """What one layer keeps without any recomputation: the working set of recomputing it."""
    temporary_bytes: Numeric
    """Peak of temporaries inside a layer's backward pass, beyond what is kept."""
    embedding_bytes: Numeric
    """Kept by the embedding: its dropout mask."""
    gathered_bytes: Numeric
    """Gathered inputs of a layer's column-parallel linears that stay allocated where there is no
    pipeline.
    """
    head_bytes: Numeric
    """Final norm, logits, loss and their gradients at the peak."""
    logits_bytes: Numeric
    """Of those, what stays while the layers of the last stage go backward."""
    expert_bytes: Numeric = 0.0
    """What a layer with experts keeps more than layer_bytes."""
    mtp_bytes: Numeric = 0.0
    """Kept by the layers of multi-token prediction."""
    hosted: Hosted = NONE
    """What each layer sends to host memory, which layer_bytes no longer hold."""
    expert_hosted: Hosted = NONE
    """What a layer with experts sends more."""


BACK = (
    "layer_bytes",
    "input_bytes",
    "embedding_bytes",
    "gathered_bytes",
    "expert_bytes",
    "mtp_bytes",
    "temporary_bytes",
)
"""What is not kept where no backward pass enters the layers."""


def layer_parts(recipe: Recipe, layout: Layouts) -> dict[str, Numeric]:
    """What autograd keeps of one layer, by the operation that keeps it; each tensor once;
    kept_bytes for what a stack does not fuse.

    Formula: norm inputs and outputs 2h each, q k v and attention output 2 (2 a + 2 k) d, MLP in and
             out 2 f each branch and 2 f, dropout masks 1h each; unfused: softmax 2, its dropout 1 +
             2 bytes a score; latent attention: q, k, v and output of all heads, latents before and
             after their norm; inputs of frozen linears are not kept but for an adapter
             (input_kept), adapters keep adapters_kept_bytes
    Source:  [korthikanti2022] sec. 4.1: 34 s b h + 5 a s^2 b for GPT with ffn = 4h; [dao2022]
             log-sum-exp for flash
    Assumes: 2-byte activations, with 8-bit products 1-byte inputs of linears beside what attention
             and activation keep themselves; gathered inputs of sp are gathered again, not kept.
    """
    model, software, tp = recipe.model, recipe.software, layout.tp
    count, h = recipe.tokens_per_rank(layout), float(model.hidden_size)
    outside = layout.sequence_shards
    queries, kv = model.query_size / tp, kv_heads_per_rank(model, tp) * model.head_dim
    ffn = model.ffn_size / tp
    branches, mask = model.mlp_branches, 1.0 if software.dropout else 0.0
    scores = count * (model.num_heads / tp) * recipe.seq_length
    core = (
        scores * (2 + 3 * mask + software.kept.unfused.scores)
        if recipe.attention == "unfused"
        else count * 4.0 * model.num_heads / tp
    )
    kept = 1.0 if software.kept.quantized_inputs and is_low(recipe.precision) else 2.0
    mla = model.mla
    values = model.num_heads * mla.v_head_dim / tp if mla else queries
    queried = input_kept(recipe, "attention", ("qkv", "q_proj", "k_proj", "v_proj"), kept)
    entered = input_kept(recipe, "mlp", ("fc1", "gate_proj", "up_proj"), kept)
    own_copy = kept == 1.0 and trains(
        recipe, "attention"
    )  # attention keeps 16 bits itself, the 8-bit product's input is another
    latents = mla.kv_lora_rank + mla.qk_rope_dim + (mla.q_lora_rank or 0) if mla else 0
    return {
        "norm_inputs": count * 4 * h / outside,
        "norms": count * software.kept.unfused.norms * h / outside,
        "norm_outputs": (
            count * (queried + entered) * h / (1 if software.kept.gathered_inputs else outside)
        ),
        "qkv": (
            count
            * 2.0
            * (2 * queries + values if mla else (queries + 2 * kv) * (2 if model.qk_norm else 1))
        ),
        "latents": count / outside * 4.0 * latents,
        "rotary": count
        * software.kept.unfused.rotary
        * (queries + kv)
        * (model.position == "rope"),
        "core": core,
        "attention_output": count * values * (3.0 if own_copy else 2.0),
        "masks": count * 2 * mask * h / outside,
        "mlp_in": count * (2.0 * branches + software.kept.unfused.activation) * ffn,
        "mlp_out": count * input_kept(recipe, "mlp", ("fc2",), kept) * ffn,
        "adapters": adapters_kept_bytes(recipe, layout, dense_adapters(recipe)),
    }


def gathered_keys_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """Keys and values of all ranks of a context-parallel ring, where they are gathered, and their
    gradients, in the backward pass of one layer.

    Formula: 4 tensors of 2 T cp kv_heads d bytes beyond the rank's own, none where heads are
             exchanged
    Source:  [transformer-engine] AttnFuncWithCPAndKVAllGather
    Assumes: one layer at a time.
    """
    if not recipe.software.overlap.cp_gathered:
        return 0.0
    width = kv_heads_per_rank(recipe.model, layout.tp) * recipe.model.head_dim
    others = (layout.cp - 1) * (np.asarray(layout.cp_a2a) == 1)
    return 4 * 2.0 * recipe.tokens_per_rank(layout) * others * width


def _input_shards(recipe: Recipe, layout: Layouts) -> Numeric:
    """Parts into which tp splits the input of a recomputed layer that sp does not split."""
    if not recipe.software.kept.inputs_over_tp:
        return 1
    return layout.tp / layout.sequence_shards


def activations(recipe: Recipe, layout: Layouts) -> Activations:
    """Activation memory of one micro-batch.

    Formula: sum of layer_parts(), less what selective recomputation drops; by operations the input
             and kept_operations_bytes(); with experts expert_parts() in place of the MLP's
    Source:  [korthikanti2022] sec. 5; [megatron-core] --recompute-modules; [torchtitan] SelectiveAC
    Assumes: full recomputation keeps the input of each layer, split over tp only by sp.
    """
    parts = layer_parts(recipe, layout)
    whole_bytes = sum(parts.values())
    kept = (
        whole_bytes
        - layout.drops("core_attn") * parts["core"]
        - layout.drops("layernorm") * parts["norm_outputs"]
        - layout.drops("mlp") * (parts["mlp_in"] + parts["mlp_out"])
    )
    model, software = recipe.model, recipe.software
    if model.mla:
        kept = kept - layout.drops("mla_up_proj") * parts["qkv"]
    by_operation = parts["norm_inputs"] / 2 + kept_operations_bytes(recipe, layout, model.ffn_size)
    kept = np.where(layout.drops("ops") > 0, by_operation, kept)
    count, h = recipe.tokens_per_rank(layout), float(model.hidden_size)
    outside = layout.sequence_shards
    vocab = padded_vocab(model, layout.tp) / layout.tp
    rows = vocab * (layout.tp if software.quirks.gathered_logits else 1) * (1 + model.mtp_layers)
    n_in, k_out = matrices(recipe, layout)[-2][0], matrices(recipe, layout)[-1][1]
    scores = (
        count
        * (model.num_heads / layout.tp)
        * recipe.seq_length
        * software.kept.scores_temporary_bytes
        * (recipe.attention != "flash")
    )
    gathered = gathered_keys_bytes(recipe, layout)
    temporary = gathered + np.maximum(
        count * (4 * h + 2.0 * n_in + 2.0 * k_out), count * 6 * h + scores
    )
    hosted = sent(recipe, layout, attention_modules(recipe, layout, parts))
    kept_by_layer = Activations(
        hosted=hosted,
        layer_bytes=kept - hosted.freed_bytes,
        input_bytes=parts["norm_inputs"] / 2 / _input_shards(recipe, layout),
        whole_layer_bytes=whole_bytes - hosted.freed_bytes,
        temporary_bytes=temporary + HELD * hosted.freed_bytes,
        embedding_bytes=count * h / outside * (1.0 if software.dropout else 0.0),
        logits_bytes=software.kept.unfused.logits * count * rows,
        gathered_bytes=count
        * 4
        * h
        * software.kept.gathered_share
        * ((outside > 1) & (np.asarray(layout.recompute) != 2)),
        head_bytes=hosted.freed_bytes
        + count * (4 * h / outside + 2 * h)
        + software.kept.logits_bytes * count * rows
        + software.states.dummy_gradient_bytes * vocab * h * trains(recipe, "head"),
    )
    kept_by_layer = widened(
        recipe,
        with_experts(recipe, layout, kept_by_layer, parts)
        if model.moe
        else with_mtp(recipe, kept_by_layer),
    )
    if recipe.software.offload.layers:
        kept_by_layer = with_layers_away(recipe, kept_by_layer)
    if has_backward(recipe):
        return kept_by_layer
    nothing: dict[str, Any] = dict.fromkeys(BACK, 0.0 * kept_by_layer.layer_bytes)
    return replace(kept_by_layer, **nothing, hosted=NONE, expert_hosted=NONE)


def widened(recipe: Recipe, dense: Activations) -> Activations:
    """The same with 4-byte elements under fp32.

    Formula: twice every tensor
    Source:  [korthikanti2022] counts 2-byte elements
    Assumes: masks of one byte and loss in fp32 anyway are small beside the rest.
    """
    if recipe.precision != "fp32":
        return dense
    return replace(dense, **{f.name: getattr(dense, f.name) * 2 for f in fields(dense)})


def with_mtp(recipe: Recipe, dense: Activations) -> Activations:
    """Each layer of multi-token prediction keeps what a layer does, and its projection's input."""
    depth = recipe.model.mtp_layers
    return (
        replace(
            dense,
            mtp_bytes=depth * (dense.layer_bytes + dense.expert_bytes + 2 * dense.input_bytes),
        )
        if depth
        else dense
    )


def with_layers_away(recipe: Recipe, kept: Activations) -> Activations:
    """The same where some layers' activations go to host memory as a whole.

    Formula: whole_layers() of each kind of layer less; on the device one whole layer that is
             fetched
    Source:  [megatron-core] --cpu-offloading-num-layers
    Assumes: as whole_layers().
    """
    dense = whole_layers(recipe, kept.layer_bytes)
    more = whole_layers(recipe, kept.expert_bytes)
    fetched = kept.layer_bytes + np.maximum(kept.expert_bytes, 0.0)
    return replace(
        kept,
        layer_bytes=kept.layer_bytes - dense.freed_bytes,
        expert_bytes=kept.expert_bytes - more.freed_bytes,
        temporary_bytes=kept.temporary_bytes + fetched,
        hosted=dense,
        expert_hosted=more,
    )


def with_experts(
    recipe: Recipe, layout: Layouts, dense_layers: Activations, parts: dict[str, Numeric]
) -> Activations:
    """The same of a model some of whose layers have experts.

    Formula: expert_bytes = expert_parts - MLP's parts, each less what recomputation drops; by
             operations what was exchanged (the routed tokens' inputs, twice) and the shared
             experts' in place of the MLP's; peaks are those of the larger kind
    Source:  [megatron-core] --recompute-modules moe_act, moe, shared_experts
    Assumes: the MLP beside experts, where there is one, is kept as a dense layer's.
    """
    own = expert_parts(recipe, layout)
    apart = own.pop("adapters", 0.0) - adapters_kept_bytes(recipe, layout, mlp_adapters_of(recipe))
    moe_act, moe, shared = (layout.drops(name) for name in ("moe_act", "moe", "shared_experts"))
    routed = (
        own["expert_in"] + own["expert_middle"] + own["routing"] + own["expert_out"] * (1 - moe_act)
    )
    kept = routed * (1 - moe) + own["shared"] * (1 - np.maximum(moe, shared))
    dense = parts["mlp_in"] + parts["mlp_out"]
    residual = bool(recipe.model.moe and recipe.model.moe.dense_residual)
    replaced = 0.0 if residual else dense * (1 - layout.drops("mlp"))
    more = sum(own.values()) + apart - (0.0 if residual else dense)
    experts = kept - replaced + apart
    shared_ffn = recipe.model.moe.shared_ffn_size if recipe.model.moe else 0
    mlp = kept_operations_bytes(recipe, layout, recipe.model.ffn_size)
    exchanged = 2 * own["expert_in"] * (np.asarray(layout.ep) > 1)
    by_operation = exchanged + kept_operations_bytes(recipe, layout, shared_ffn) - mlp
    experts = np.where(layout.drops("ops") > 0, by_operation, experts)
    hosted = sent(recipe, layout, expert_modules(parts, own))
    away = hosted.freed_bytes
    with_routed = replace(
        dense_layers,
        expert_bytes=experts - away + 0.0 * dense_layers.layer_bytes,
        whole_layer_bytes=dense_layers.whole_layer_bytes + np.maximum(more - away, 0.0),
        temporary_bytes=np.maximum(
            dense_layers.temporary_bytes, 2 * (own["expert_in"] + own["expert_middle"])
        )
        + HELD * away,
        head_bytes=dense_layers.head_bytes + away,
        expert_hosted=hosted,
    )
    return with_mtp(recipe, with_routed)
