"""Bytes that a layer keeps between forward and backward, and the peak inside one micro-batch, on one rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.core import tokens
from planner.cost.kernels import is_low
from planner.cost.layer import matrices
from planner.cost.params import kv_heads_per_rank, padded_vocab
from planner.layout import MODULES, Layout, Numeric
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
    """Gathered inputs of a layer's column-parallel linears that stay allocated where there is no pipeline."""
    head_bytes: Numeric
    """Final norm, logits, loss and their gradients at the peak."""
    logits_bytes: Numeric
    """Of those, what stays while the layers of the last stage go backward."""


def layer_parts(recipe: Recipe, layout: Layout) -> dict[str, Numeric]:
    """What autograd keeps of one layer, by the operation that keeps it; each tensor once; kept_bytes for what a stack does not fuse.

    Formula: norm inputs and outputs 2h each, q k v and attention output 2 (2 a + 2 k) d, MLP in and out 2 f each branch and 2 f,
             dropout masks 1h each; unfused: softmax 2, its dropout 1 + 2 bytes a score
    Source:  [korthikanti2022] sec. 4.1: 34 s b h + 5 a s^2 b for GPT with ffn = 4h; [dao2022] log-sum-exp for flash
    Assumes: 2-byte activations, with 8-bit products 1-byte inputs of linears beside what attention and activation keep themselves;
             gathered inputs of sp are gathered again, not kept.
    """
    model, stack, tp = recipe.model, recipe.stack, layout.tp
    count, h = tokens(recipe, layout), float(model.hidden_size)
    outside = np.where(np.asarray(layout.sp) == 1, tp, 1)
    queries, kv = model.query_size / tp, kv_heads_per_rank(model, tp) * model.head_dim
    ffn = model.ffn_size / tp
    branches = 2 if model.gated_mlp else 1
    mask = 1.0 if stack.dropout else 0.0
    scores = count * (model.num_heads / tp) * recipe.seq_length
    unfused = recipe.attention == "unfused"
    core = scores * (2 + 3 * mask + stack.kept_bytes.scores) if unfused else count * 4.0 * model.num_heads / tp
    kept = 1.0 if stack.quantized_activations and is_low(recipe.precision) else 2.0
    return {
        "norm_inputs": count * 4 * h / outside,
        "norms": count * stack.kept_bytes.norms * h / outside,
        "norm_outputs": count * 2 * kept * h / (1 if stack.gathered_inputs_kept else outside),
        "qkv": count * 2.0 * (queries + 2 * kv) * (2 if model.qk_norm else 1),
        "rotary": count * stack.kept_bytes.rotary * (queries + kv) * (model.position == "rope"),
        "core": core,
        "attention_output": count * queries * (2.0 if kept == 2.0 else 3.0),
        "masks": count * 2 * mask * h / outside,
        "mlp_in": count * (2.0 * branches + stack.kept_bytes.activation) * ffn,
        "mlp_out": count * kept * ffn,
    }


def activations(recipe: Recipe, layout: Layout) -> Activations:
    """Activation memory of one micro-batch.

    Formula: sum of layer_parts(), less what selective recomputation drops
    Source:  [korthikanti2022] sec. 5; [megatron-core] --recompute-modules
    Assumes: full recomputation keeps the input of each layer, split over tp only by sp.
    """
    parts = layer_parts(recipe, layout)
    whole = sum(parts.values())

    def dropped(module: str) -> Numeric:
        on = np.right_shift(layout.recompute_modules, MODULES.index(module)) & 1
        return on * (np.asarray(layout.recompute) == 1)

    kept = (
        whole
        - dropped("core_attn") * parts["core"]
        - dropped("layernorm") * parts["norm_outputs"]
        - dropped("mlp") * (parts["mlp_in"] + parts["mlp_out"])
    )
    model, stack = recipe.model, recipe.stack
    count, h = tokens(recipe, layout), float(model.hidden_size)
    outside = np.where(np.asarray(layout.sp) == 1, layout.tp, 1)
    vocab = padded_vocab(model, layout.tp) / layout.tp
    rows = vocab * (layout.tp if stack.gathered_logits else 1)
    (_, _), (_, _), (n_in, _), (_, k_out) = matrices(recipe, layout)
    scores = count * (model.num_heads / layout.tp) * recipe.seq_length * stack.scores_temporary_bytes * (recipe.attention != "flash")
    temporary = np.maximum(count * (4 * h + 2.0 * n_in + 2.0 * k_out), count * 6 * h + scores)
    return Activations(
        layer_bytes=kept,
        input_bytes=parts["norm_inputs"] / 2,
        whole_layer_bytes=whole,
        temporary_bytes=temporary,
        embedding_bytes=count * h / outside * (1.0 if stack.dropout else 0.0),
        logits_bytes=stack.kept_bytes.logits * count * rows,
        gathered_bytes=count * 4 * h * stack.gathered_kept_share * ((outside > 1) & (np.asarray(layout.recompute) != 2)),
        head_bytes=count * (4 * h / outside + 2 * h) + stack.logits_bytes * count * rows + stack.dummy_gradient_bytes * vocab * h,
    )
