"""How many parameters a layer, a stage and the whole model have: exact, as Megatron builds them.

Tensor-parallel ranks split matrices; norms, row-parallel biases and position tables are on every rank.
"""

from __future__ import annotations

import numpy as np

from planner.layout import Layout, Numeric
from planner.specs.model import ModelSpec

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
    """Key-value heads whose activations a rank holds: at least one. (Their weights are split evenly; activations are gathered.)"""
    return np.maximum(model.num_kv_heads // tp, 1)


def layer_params(model: ModelSpec, tp: Numeric = 1) -> Numeric:
    """Parameters of one transformer layer on one tensor-parallel rank.

    Formula: (2 h a d + 2 h k d + (3 or 2) h f) / tp, biases, norms; key and value weights split evenly also when tp > k
    Source:  [megatron-core] built on the meta device; [korthikanti2022]
    Assumes: tp divides heads and ffn_size.
    """
    h, f, d = model.hidden_size, model.ffn_size, model.head_dim
    q = model.num_heads * d // tp
    kv = model.kv_size // tp
    branches = 2 if model.gated_mlp else 1
    bias = model.attention_bias
    return (
        2 * h * q  # query, output
        + 2 * h * kv  # key, value
        + (q + 2 * kv if bias != "none" else 0)
        + (h if bias == "qkvo" else 0)  # output bias, on every rank
        + (2 * d if model.qk_norm else 0)
        + (branches + 1) * h * f // tp
        + (branches * f // tp + h if model.mlp_bias else 0)
        + 2 * norm_params(model)
    )


def embedding_params(model: ModelSpec, tp: Numeric = 1) -> Numeric:
    """Embedding table (split by rows) and learned positions (on every rank), on one rank of the first stage.

    Formula: padded_vocab h / tp + position_rows h
    Source:  [megatron-core] VocabParallelEmbedding
    Assumes: Megatron's padding.
    """
    return padded_vocab(model, tp) // tp * model.hidden_size + model.position_rows * model.hidden_size


def head_params(model: ModelSpec, layout: Layout) -> Numeric:
    """Output matrix and final norm on one rank of the last stage; tied tables are stored again when pp > 1.

    Formula: padded_vocab h / tp (untied, or pp > 1) + norm
    Source:  [megatron-core] GPTModel
    Assumes: Megatron's padding.
    """
    table = padded_vocab(model, layout.tp) // layout.tp * model.hidden_size
    stored = 1 if not model.tied_embeddings else (np.asarray(layout.pp) > 1).astype(np.int64)
    return table * stored + norm_params(model)


def total_params(model: ModelSpec) -> int:
    """Parameters as released: no padding, tied tables once.

    Formula: L layer + V h (twice when untied) + positions + final norm
    Source:  [korthikanti2022] eq. 12, [megatron-core]
    Assumes: nothing beyond the model document.
    """
    table = model.vocab_size * model.hidden_size
    return int(
        model.num_layers * layer_params(model)
        + table * (1 if model.tied_embeddings else 2)
        + model.position_rows * model.hidden_size
        + norm_params(model)
    )


def matmul_params(model: ModelSpec) -> float:
    """Parameters that take part in matrix products: those of the layers and the head, no look-up, no norms or biases.

    Formula: L (2 h a d + 2 h k d + (3 or 2) h f) + V h
    Source:  [narayanan2021] eq. 3 without recomputation
    Assumes: the released vocabulary.
    """
    h, f = float(model.hidden_size), model.ffn_size
    layer = 2 * h * model.query_size + 2 * h * model.kv_size + (3 if model.gated_mlp else 2) * h * f
    return model.num_layers * layer + model.vocab_size * h
