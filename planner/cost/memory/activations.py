"""Bytes that a layer keeps between forward and backward, and the peak inside one micro-batch, on
one rank.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import numpy as np

from planner.cost.layer.attention import absorbed, core, keys_width
from planner.cost.layer.chosen_operations import kept_operations_bytes
from planner.cost.layer.kernels import is_low
from planner.cost.layer.layer import matrices
from planner.cost.layer.mixers import scan
from planner.cost.layer.streams import entry_matrices, exit_matrices, streams
from planner.cost.layer.vision import as_layout, as_recipe, tower_layers
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
from planner.cost.memory.sparse import (
    absorbed_bytes,
    index_bytes,
    index_temporary_bytes,
    latent_output_bytes,
)
from planner.cost.params.layer import kv_heads_per_rank, padded_vocab
from planner.cost.params.lora import layer_adapters
from planner.cost.params.mixers import scanned_size
from planner.cost.params.stages import Layers
from planner.cost.params.trained import has_backward, trains
from planner.layout import Layouts, Numeric
from planner.specs.layers import index_of_last, mtp_counts
from planner.specs.mixers import NoMixer
from planner.specs.recipe import Recipe

ENTRY_BYTES = 6.0
"""Kept of what a product outside of the layers makes: before and after its norm, and scaled."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes of one layer and micro-batch on one rank."""

    layer_bytes: Numeric
    """Kept where it is not fully recomputed (selective recomputation applied)."""
    input_bytes: Numeric
    """Kept where it is fully recomputed: its input."""
    whole_bytes: Numeric
    """Kept without any recomputation: the working set of recomputing it."""
    temporary_bytes: Numeric
    """Peak of temporaries inside its backward pass, beyond what is kept."""
    gathered_bytes: Numeric
    """Gathered inputs of its column-parallel linears that stay allocated where there is no
    pipeline.
    """
    hosted: Hosted = NONE
    """What it sends to host memory, which layer_bytes no longer hold."""


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes of one micro-batch on one rank."""

    kinds: tuple[Kept, ...]
    """Of a layer of each kind."""
    embedding_bytes: Numeric
    """Kept before the layers: the embedding's dropout mask, and what the vision tower keeps."""
    head_bytes: Numeric
    """Final norm, logits, loss and their gradients at the peak."""
    logits_bytes: Numeric
    """Of those, what stays while the layers of the last stage go backward."""
    mtp_bytes: Numeric
    """Kept by the layers of multi-token prediction."""
    tower_bytes: Numeric = 0.0
    """Peak inside the vision tower beyond what is kept."""


def layer_parts(recipe: Recipe, layout: Layouts) -> dict[str, Numeric]:
    """What autograd keeps of one layer, by the operation that keeps it; each tensor once;
    kept_bytes for what a stack does not fuse.

    Formula: norm inputs and outputs 2h each of mixer and MLP, q k v and attention output 2 (2 a + 2
             k) d, MLP in and out 2 f each branch and 2 f, dropout masks 1h each; unfused: softmax
             2, its dropout 1 + 2 bytes a score; latent attention: q, k, v and output of all heads,
             latents before and after their norm; a gate on attention's output 2 a of its own and 2
             a of what it gates; a scan's own (mixers.scan) and the input of its last product;
             inputs of frozen linears are not kept but for an adapter (input_kept), adapters keep
             adapters_kept_bytes
    Source:  [korthikanti2022] sec. 4.1: 34 s b h + 5 a s^2 b for GPT with ffn = 4h; [dao2022]
             log-sum-exp for flash
    Assumes: 2-byte activations, with 8-bit products 1-byte inputs of linears beside what attention
             and activation keep themselves; gathered inputs of sp are gathered again, not kept.
    """
    model, software, tp = recipe.model, recipe.software, layout.tp
    count, h = recipe.tokens_per_rank(layout), float(model.hidden_size)
    outside = layout.sequence_shards
    queries, kv = model.query_size / tp, kv_heads_per_rank(model, tp) * model.head_dim
    ffn = (model.ffn_size if model.has_mlp else 0) / tp
    mixed, attends = not isinstance(model.mixer, NoMixer), model.has_attention
    branches, mask = model.mlp_branches, 1.0 if software.dropout else 0.0
    kernel, latent = core(recipe), absorbed(recipe)
    scores = count * (model.num_heads / tp) * recipe.seq_length * attends
    log_sums = (
        scores * (2 + 3 * mask + software.kept.unfused.scores)
        if kernel == "unfused"
        else count * 4.0 * model.num_heads / tp * attends
    )
    kept = 1.0 if software.kept.quantized_inputs and is_low(recipe.precision) else 2.0
    mla = model.mla if attends else None
    values = model.output_size / tp * attends
    queries, kv = queries * attends, kv * attends * (not model.shared_kv)
    heads = kv * (1 + (model.value_head_dim or model.head_dim) / model.head_dim)
    if model.keys_are_values:
        heads = kv
    queried = input_kept(recipe, "attention", ("qkv", "q_proj", "k_proj", "v_proj"), kept)
    entered = input_kept(recipe, "mlp", ("fc1", "gate_proj", "up_proj"), kept)
    own_copy = kept == 1.0 and trains(
        recipe, "attention"
    )  # attention keeps 16 bits itself, the 8-bit product's input is another
    apart = tuple(
        adapter
        for adapter in layer_adapters(recipe)
        if adapter.of == "attention" or model.moe is None
    )
    latents = mla.kv_lora_rank + mla.qk_rope_dim + (mla.q_lora_rank or 0) if mla else 0
    return {
        "norm_inputs": count * 2 * model.residual_blocks * h / outside,
        "norms": count * software.kept.unfused.norms * model.residual_blocks / 2 * h / outside,
        "norm_outputs": (
            count
            * (queried * mixed + entered * model.has_mlp)
            * h
            / (1 if software.kept.gathered_inputs else outside)
        ),
        "qkv": absorbed_bytes(recipe, layout, latent)
        if latent
        else (
            count
            * 2.0
            * (2 * queries + values if mla else (queries + heads) * (2 if model.qk_norm else 1))
        ),
        "gates": count * 4.0 * values * model.gates_attention,
        "scan": count * scan(model.mixer, model.hidden_size).kept / tp,
        "scan_output": count * input_kept(recipe, "attention", (), kept) * scanned_size(model) / tp,
        "latents": count / outside * 4.0 * latents,
        "streams": count * streams(model).kept / outside,
        "rotary": count
        * software.kept.unfused.rotary
        * (queries + kv)
        * (model.position == "rope"),
        "core": log_sums,
        "latent_output": latent_output_bytes(recipe, layout),
        "index": index_bytes(recipe, layout),
        "attention_output": count * values * (3.0 if own_copy else 2.0),
        "masks": count * model.residual_blocks * mask * h / outside,
        "mlp_in": count * (2.0 * branches + software.kept.unfused.activation) * ffn,
        "mlp_out": count * input_kept(recipe, "mlp", ("fc2",), kept) * ffn,
        "adapters": adapters_kept_bytes(recipe, layout, apart),
    }


def gathered_keys_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """Keys and values of all ranks of a context-parallel ring, where they are gathered, and their
    gradients, in the backward pass of one layer.

    Formula: 2 T cp keys_width() bytes beyond the rank's own, twice, none where heads are exchanged
    Source:  [transformer-engine] AttnFuncWithCPAndKVAllGather
    Assumes: one layer at a time.
    """
    if not recipe.software.overlap.cp_gathered or not recipe.model.has_attention:
        return 0.0
    others = (layout.cp - 1) * (np.asarray(layout.cp_a2a) == 1)
    return 2 * 2.0 * recipe.tokens_per_rank(layout) * others * keys_width(recipe, layout)


def _input_shards(recipe: Recipe, layout: Layouts) -> Numeric:
    """Parts into which tp splits the input of a recomputed layer that sp does not split."""
    if not recipe.software.kept.inputs_over_tp:
        return 1
    return layout.tp / layout.sequence_shards


def activations(recipe: Recipe, layout: Layouts) -> Activations:
    """Activation memory of one micro-batch: a layer of each kind, and the model's ends.

    Formula: kept(); head: 4 h / sp + 2 h a token, logits_bytes a token and row of the table;
             ENTRY_BYTES of what makes streams and layers' inputs, and joins them; each depth of
             multi-token prediction keeps what its layers do, and 2 inputs
    Source:  [korthikanti2022] sec. 4.1
    Assumes: while the head runs the last layer's tensors that go to the host are on the device.
    """
    model, software = recipe.model, recipe.software
    kinds = tuple(kept(each, layout) for each in recipe.kinds)
    last, depth = kinds[index_of_last(model)], Layers(mtp_counts(model))
    count, h = recipe.tokens_per_rank(layout), float(model.hidden_size)
    wide, outside = recipe.element_bytes / 2, layout.sequence_shards
    vocab = padded_vocab(model, layout.tp) / layout.tp
    rows = vocab * (layout.tp if software.quirks.gathered_logits else 1) * (1 + model.mtp_layers)
    entered = sum(outputs for outputs, _ in entry_matrices(model))
    left = sum(outputs for outputs, _ in exit_matrices(model))
    head = (
        count * (4 * h / outside + 2 * h + ENTRY_BYTES * left / outside)
        + software.kept.logits_bytes * count * rows
        + software.states.dummy_gradient_bytes * vocab * h * trains(recipe, "head")
    )
    enters = 1.0 if has_backward(recipe) else 0.0
    front_width = h * (1.0 if software.dropout else 0.0) + ENTRY_BYTES * entered
    tower_kept, tower_inner = tower_kept_bytes(recipe, layout)
    return Activations(
        kinds,
        embedding_bytes=wide * count / outside * front_width * enters + tower_kept,
        head_bytes=wide * head + last.hosted.freed_bytes * (software.offload.layers == 0),
        logits_bytes=wide * software.kept.unfused.logits * count * rows,
        mtp_bytes=model.mtp_layers
        * (depth.times(kind.layer_bytes for kind in kinds) + 2 * last.input_bytes),
        tower_bytes=tower_inner,
    )


def tower_kept_bytes(recipe: Recipe, layout: Layouts) -> tuple[Numeric, Numeric]:
    """What the layers of the vision tower keep of a micro-batch's images, and the peak inside one
    of them beyond that.

    Formula: kept() of each, patches in place of tokens; the input alone where it is recomputed;
             nothing kept when frozen; inside temporaries and what recomputation brings back
    Source:  [korthikanti2022] sec. 4.1: an encoder layer keeps what a decoder's does
    Assumes: patches and projector keep little beside the layers.
    """
    tower = recipe.tower
    if tower is None or not recipe.images_per_sample:
        return 0.0, 0.0
    question, own = as_recipe(recipe, tower), as_layout(recipe, layout)
    each = [kept(kind, own) for kind in question.kinds]
    held = [np.where(own.recomputes_all, one.input_bytes, one.layer_bytes) for one in each]
    inner = [
        one.temporary_bytes + one.whole_bytes - bytes_
        for one, bytes_ in zip(each, held, strict=True)
    ]
    return tower_layers(question).times(held), reduce(np.maximum, inner)


def kept(recipe: Recipe, layout: Layouts) -> Kept:
    """What one layer keeps, of a model whose layers are alike (Recipe.kinds).

    Formula: sum of layer_parts(), less what selective recomputation drops; by operations the input
             and kept_operations_bytes(); with experts expert_parts() in place of the MLP's; twice
             as much in fp32; nothing where no backward pass enters the layers
    Source:  [korthikanti2022] sec. 5: of 2-byte elements; [megatron-core] --recompute-modules;
             [torchtitan] SelectiveAC
    Assumes: full recomputation keeps the input of each layer, all its streams, split over tp only
             by sp; under fp32
             masks of one byte are small beside the rest.
    """
    parts = layer_parts(recipe, layout)
    whole = sum(parts.values())
    dropped = (
        layout.drops("core_attn") * (parts["core"] + parts["latent_output"] + parts["index"])
        + layout.drops("layernorm") * parts["norm_outputs"]
        + layout.drops("mlp") * (parts["mlp_in"] + parts["mlp_out"])
    )
    model, software = recipe.model, recipe.software
    if model.mla and model.has_attention:
        dropped = dropped + layout.drops("mla_up_proj") * parts["qkv"]
    entering = recipe.tokens_per_rank(layout) * 2.0 * model.hidden_size / layout.sequence_shards
    entering = entering * model.streams
    ffn = model.ffn_size if model.has_mlp else 0
    by_operation = entering + kept_operations_bytes(recipe, layout, ffn)
    hosted = sent(recipe, layout, attention_modules(recipe, layout, parts))
    layer = Kept(
        hosted=hosted,
        layer_bytes=np.where(layout.drops("ops") > 0, by_operation, whole - dropped)
        - hosted.freed_bytes,
        input_bytes=entering / _input_shards(recipe, layout),
        whole_bytes=whole - hosted.freed_bytes,
        temporary_bytes=_temporary_bytes(recipe, layout) + HELD * hosted.freed_bytes,
        gathered_bytes=recipe.tokens_per_rank(layout)
        * 4.0
        * model.hidden_size
        * software.kept.gathered_share
        * ((layout.sequence_shards > 1) & (np.asarray(layout.recompute) != 2)),
    )
    if model.moe:
        layer = _with_experts(recipe, layout, layer, parts)
    if recipe.precision == "fp32":
        layer = Kept(**{f.name: getattr(layer, f.name) * 2 for f in fields(layer)})
    if software.offload.layers:
        layer = _layers_away(recipe, layer)
    if not has_backward(recipe):
        nothing: dict[str, Any] = {f.name: 0.0 * layer.layer_bytes for f in fields(layer)}
        layer = Kept(**nothing | {"whole_bytes": layer.whole_bytes, "hosted": NONE})
    return layer


def _temporary_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """Peak of temporaries inside a layer's backward pass.

    Formula: max(T (4 h + gradients of the layer's last two products), 6 T h + scores), and what is
             gathered of a ring's keys, the states of a scan, the scores of an index, and four
             tensors of all streams
    Source:  [korthikanti2022] sec. 4.1
    Assumes: one product's gradients at a time.
    """
    model, count = recipe.model, recipe.tokens_per_rank(layout)
    h = float(model.hidden_size)
    sizes = matrices(recipe, layout)
    n_in, k_out = (sizes[-2][0], sizes[-1][1]) if sizes else (0.0, 0.0)
    states = count / layout.tp * scan(model.mixer, model.hidden_size).state
    scores = (
        count
        * (model.num_heads / layout.tp)
        * recipe.seq_length
        * recipe.software.kept.scores_temporary_bytes
        * (core(recipe) in ("fused", "unfused") and model.has_attention)
    )
    products = count * (4 * h + 2.0 * n_in + 2.0 * k_out)
    gathered = (
        gathered_keys_bytes(recipe, layout)
        + states
        + index_temporary_bytes(recipe, layout)
        + 8 * count * h * model.altup_streams / layout.sequence_shards
    )
    return gathered + np.maximum(products, count * 6 * h + scores)


def _layers_away(recipe: Recipe, layer: Kept) -> Kept:
    """The same where some layers' activations go to host memory as a whole.

    Formula: whole_layers() of each layer less; on the device one whole layer that is fetched
    Source:  [megatron-core] --cpu-offloading-num-layers
    Assumes: as whole_layers().
    """
    away = whole_layers(recipe, layer.layer_bytes)
    return replace(
        layer,
        layer_bytes=layer.layer_bytes - away.freed_bytes,
        temporary_bytes=layer.temporary_bytes + layer.layer_bytes,
        hosted=away,
    )


def _with_experts(recipe: Recipe, layout: Layouts, layer: Kept, parts: dict[str, Numeric]) -> Kept:
    """The same with experts in place of the MLP, or beside it.

    Formula: expert_parts() - MLP's parts, each less what recomputation drops; by operations what
             was exchanged (the routed tokens' inputs, twice) and the shared experts' in place of
             the MLP's
    Source:  [megatron-core] --recompute-modules moe_act, moe, shared_experts
    Assumes: the MLP beside experts, where there is one, is kept as a dense layer's.
    """
    moe = recipe.model.moe
    assert moe is not None, "only models with experts ask"
    own = expert_parts(recipe, layout)
    moe_act, all_of_it, shared = (
        layout.drops(name) for name in ("moe_act", "moe", "shared_experts")
    )
    routed = (
        own["expert_in"] + own["expert_middle"] + own["routing"] + own["expert_out"] * (1 - moe_act)
    )
    kept = routed * (1 - all_of_it) + own["shared"] * (1 - np.maximum(all_of_it, shared))
    dense = parts["mlp_in"] + parts["mlp_out"]
    replaced = 0.0 if moe.dense_residual else dense * (1 - layout.drops("mlp"))
    more = sum(own.values()) - (0.0 if moe.dense_residual else dense)
    mlp = kept_operations_bytes(recipe, layout, recipe.model.ffn_size)
    exchanged = 2 * own["expert_in"] * (np.asarray(layout.ep) > 1)
    by_operation = exchanged + kept_operations_bytes(recipe, layout, moe.shared_ffn_size) - mlp
    kept = kept + own.get("adapters", 0.0)
    experts = np.where(layout.drops("ops") > 0, by_operation, kept - replaced)
    hosted = sent(recipe, layout, expert_modules(parts, own, recipe.model.residual_blocks))
    away = hosted.freed_bytes
    return replace(
        layer,
        layer_bytes=layer.layer_bytes + experts - away,
        whole_bytes=layer.whole_bytes + more - away,
        temporary_bytes=np.maximum(
            layer.temporary_bytes, 2 * (own["expert_in"] + own["expert_middle"])
        )
        + HELD * away,
        hosted=layer.hosted + hosted,
    )
