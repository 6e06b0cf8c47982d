"""How many parameters a layer, a stage and the whole model have: exact, as Megatron builds them.

Tensor-parallel ranks split matrices; norms, row-parallel biases and position tables are on every
rank.
"""

from __future__ import annotations

import numpy as np

from planner.cost.params.experts import (
    idle_params,
    routed_params,
    router_params,
    shared_params,
)
from planner.cost.params.mixers import (
    entry_stream_params,
    exit_stream_params,
    mixer_params,
    stream_params,
)
from planner.cost.params.vision import tower_in
from planner.layout import Layouts, Numeric
from planner.specs.layers import counts, kinds, mtp_kinds
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe

VOCAB_MULTIPLE = 128
"""Megatron's default of --make-vocab-size-divisible-by."""


def padded_vocab(model: ModelSpec, tp: Numeric) -> Numeric:
    """Rows of the embedding table as trained.

    Formula: ceil(vocab / (128 tp)) * 128 tp
    Source:  [megatron-core] --make-vocab-size-divisible-by
    Assumes: the default multiple of 128.
    """
    multiple = VOCAB_MULTIPLE * tp
    return -(-model.vocab_size // multiple) * multiple


def norm_params(model: ModelSpec) -> int:
    """Weights of one norm over the hidden width: LayerNorm has a bias too."""
    return model.hidden_size * (2 if model.norm == "layernorm" else 1)


def kv_heads_per_rank(model: ModelSpec, tp: Numeric) -> Numeric:
    """Key-value heads whose activations a rank holds: at least one. (Their weights are split
    evenly; activations are gathered.)
    """
    return np.maximum(model.num_kv_heads // tp, 1)


def mlp_params(model: ModelSpec, tp: Numeric = 1) -> Numeric:
    """Parameters of a dense MLP on one tensor-parallel rank.

    Formula: (3 or 2) h f / tp; with biases: + (2 or 1) f / tp + h
    Source:  [megatron-core] MLP built on the meta device; [korthikanti2022]
    Assumes: tp divides ffn_size.
    """
    h, f = model.hidden_size, model.ffn_size
    branches = model.mlp_branches
    return (branches + 1) * h * f // tp + (branches * f // tp + h if model.mlp_bias else 0)


def layer_params(model: ModelSpec, tp: Numeric = 1) -> Numeric:
    """Parameters of one layer on one tensor-parallel rank, without its routed experts.

    Formula: mixer + norms + streams + mlp, or router + shared experts (+ mlp beside them)
    Source:  [megatron-core] and [hf-transformers] built on the meta device; [korthikanti2022]
    Assumes: a model whose layers are alike (specs.layers.kinds()); tp divides heads and widths.
    """
    moe = model.moe
    params = mixer_params(model, tp) + model.norms_per_layer * norm_params(model)
    params = params + stream_params(model)
    if not model.has_mlp:
        return params
    if moe is None:
        return params + mlp_params(model, tp)
    residual = mlp_params(model, tp) if moe.dense_residual else 0
    return params + shared_params(model, moe, tp) + router_params(model, moe) + residual


def routed_layer_params(model: ModelSpec, ep: Numeric = 1, etp: Numeric = 1) -> Numeric:
    """Parameters of the routed experts of one layer on one rank; 0 without experts."""
    return routed_params(model, model.moe, ep, etp) if model.moe and model.has_mlp else 0


def mtp_params(model: ModelSpec, tp: Numeric = 1, ep: Numeric = 1, etp: Numeric = 1) -> Numeric:
    """Parameters of the multi-token-prediction layers on one rank; embedding and head are the
    model's own.

    Formula: mtp_layers (layers of mtp_pattern, or one like the model's last, + 2 h^2 / tp + 3
             norms), once where they are repeated: it joins hidden state and embedding, normalises
             both and its output
    Source:  [deepseek2024] sec. 2.2; [megatron-core] MultiTokenPredictionLayer
    Assumes: the model's own embedding and head.
    """
    if not model.mtp_layers:
        return 0
    h = model.hidden_size
    layers = [
        layer_params(kind, tp) + routed_layer_params(kind, ep, etp) for kind in mtp_kinds(model)
    ]
    return model.mtp_sets * (sum(layers) + 2 * h * h // tp + 3 * norm_params(model))


def embedding_params(model: ModelSpec, tp: Numeric = 1) -> Numeric:
    """Embedding table (split by rows) and learned positions (on every rank), on one rank of the
    first stage.

    Formula: padded_vocab h / tp + position_rows h (+ norm) + entry_stream_params()
    Source:  [megatron-core] VocabParallelEmbedding
    Assumes: Megatron's padding.
    """
    norm = norm_params(model) if model.embedding_norm else 0
    return (
        padded_vocab(model, tp) // tp * model.hidden_size
        + model.position_rows * model.hidden_size
        + norm
        + entry_stream_params(model)
    )


def head_params(model: ModelSpec, layout: Layouts) -> Numeric:
    """Output matrix and final norm on one rank of the last stage; tied tables are stored again when
    pp > 1.

    Formula: padded_vocab h / tp (untied, or pp > 1) + norm + exit_stream_params()
    Source:  [megatron-core] GPTModel
    Assumes: Megatron's padding.
    """
    table = padded_vocab(model, layout.tp) // layout.tp * model.hidden_size
    stored = 1 if not model.tied_embeddings else layout.pipelined.astype(np.int64)
    return table * stored + norm_params(model) + exit_stream_params(model)


def front_params(recipe: Recipe, tp: Numeric = 1) -> Numeric:
    """What stands before the layers, on one rank of the first stage.

    Formula: embedding_params + the vision tower, whole on each rank of tp
    Source:  [megatron-core] core/models/multimodal/llava_model.py: the encoder is on the first
             stage; [megatron-bridge] models/qwen_vl, gemma_vl: Hugging Face's class on each rank
    Assumes: no framework splits the tower.
    """
    return embedding_params(recipe.model, tp) + tower_in(recipe)


def ends_params(recipe: Recipe, layout: Layouts) -> Numeric:
    """Parameters before the layers and, without a pipeline, of the head, on the first rank.

    Formula: front_params + head_params where pp = 1
    Source:  [megatron-core]; [rajbhandari2020]
    Assumes: tied tables are counted once.
    """
    alone = ~layout.pipelined
    return front_params(recipe, layout.tp) + alone * head_params(recipe.model, layout)


def mtp_stage_params(model: ModelSpec, layout: Layouts) -> Numeric:
    """What multi-token prediction adds to a rank of the last stage: its layers, and a copy of the
    embedding where that is elsewhere.

    Formula: mtp + (padded_vocab h / tp when pp > 1)
    Source:  [megatron-core] GPTModel, MultiTokenPredictionBlock
    Assumes: it stands in the last stage; Megatron's padding.
    """
    copied = layout.pipelined.astype(np.int64) * (model.mtp_layers > 0)
    return mtp_params(model, layout.tp, layout.ep, layout.etp) + copied * embedding_params(
        model, layout.tp
    )


def total_params(model: ModelSpec) -> int:
    """Parameters as released: no padding, tied tables once, multi-token-prediction layers left out.

    Formula: the layers of each kind + V h (twice when untied) + positions + norms of embedding and
             end
    Source:  [korthikanti2022] eq. 12, [megatron-core]
    Assumes: nothing beyond the model document.
    """
    table = model.vocab_size * model.hidden_size
    each = (layer_params(kind) + routed_layer_params(kind) for kind in kinds(model).values())
    return int(
        sum(count * params for count, params in zip(counts(model), each, strict=True))
        + table * (1 if model.tied_embeddings else 2)
        + model.position_rows * model.hidden_size
        + norm_params(model) * (2 if model.embedding_norm else 1)
        + entry_stream_params(model)
        + exit_stream_params(model)
    )


def active_params(model: ModelSpec) -> int:
    """Parameters that one token uses, both embedding tables counted; total_params where the model
    has no experts.

    Formula: total - layers with experts (E - k) expert
    Source:  [deepseek2024] activated parameters
    Assumes: every token uses experts_per_token experts. Publishers differ: some leave out one table
             or both.
    """
    idle = 0
    for count, kind in zip(counts(model), kinds(model).values(), strict=True):
        if kind.moe and kind.has_mlp:
            idle += count * int(idle_params(kind, kind.moe))
    return total_params(model) - idle


def matmul_params(model: ModelSpec) -> float:
    """Parameters that take part in matrix products: those of the layers and the head, no look-up,
    no norms or biases.

    Formula: L (2 h a d + 2 h k d + (3 or 2) h f) + V h
    Source:  [narayanan2021] eq. 3 without recomputation
    Assumes: the released vocabulary; a dense model without latents.
    """
    h, f = float(model.hidden_size), model.ffn_size
    layer = 2 * h * model.query_size + 2 * h * model.kv_size + model.mlp_matrices * h * f
    return model.num_layers * layer + model.vocab_size * h
