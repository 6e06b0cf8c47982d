"""How many parameters the attention of one layer has on a tensor-parallel rank: grouped heads, or
latent (MLA).
"""

from __future__ import annotations

from planner.layout import Numeric
from planner.specs.model import Mla, ModelSpec


def attention_params(model: ModelSpec, tp: Numeric = 1) -> Numeric:
    """Parameters of the attention of one layer on one rank, its query and key norms, sinks and
    biases too.

    Formula: mla_params, or (h a d + h k d + h k e + a e h + h a d gate + a sinks) / tp + biases +
             qk norm + block indexer; e value head (d where not stated), no h k e where keys are the
             values, neither h k where another layer's keys and values are read; key and value
             weights split evenly also when tp > k
    Source:  [megatron-core] built on the meta device; [korthikanti2022]; [hf-transformers]
             Qwen3Next, Gemma4, MiMoV2, MiniMaxM3
    Assumes: tp divides the heads.
    """
    h = model.hidden_size
    if model.mla:
        return mla_params(model, model.mla, tp)
    projected = sum(width // tp for width in model.attention_inputs)
    bias = model.attention_bias
    return (
        h * projected
        + model.output_size // tp * h
        + (projected if bias != "none" else 0)
        + (h if bias == "qkvo" else 0)  # output bias, on every rank
        + qk_norm_params(model, tp)
        + (model.num_heads // tp if model.attention_sinks else 0)
        + block_indexer_params(model)
    )


def qk_norm_params(model: ModelSpec, tp: Numeric = 1) -> Numeric:
    """Weights of the norms on queries and keys.

    Formula: 2 d per head; (a + k) d / tp over all heads or with a weight for each; 0 without
             weights; no part of the keys where they are another layer's
    Source:  [megatron-core] q_layernorm, k_layernorm; [hf-transformers] Olmo2, Cohere, Llama4
    Assumes: RMS norms, or LayerNorms without bias.
    """
    if not model.qk_norm or model.qk_norm_kind == "l2":
        return 0
    own_keys = not model.shared_kv
    if model.qk_norm_kind == "per_head":
        return model.head_dim * (1 + own_keys)
    return (model.query_size + model.kv_size * own_keys) // tp


def mla_params(model: ModelSpec, mla: Mla, tp: Numeric = 1) -> Numeric:
    """Parameters of multi-head latent attention on one rank. Down-projections and latent norms are
    on every rank.

    Formula: h q + q + q a (n + r) / tp, or h a (n + r) / tp without query latent; h (c + r) + c + c
             a (n + v) / tp + a v h / tp (+ h a / tp gates); q, c latents of queries and of keys and
             values, n, r head parts without and with positions, v value head
    Source:  [deepseek2024] sec. 2.1.1; [megatron-core] MLASelfAttention with Transformer Engine's
             duplicated down-projections
    Assumes: no biases; tp divides the heads.
    """
    h, heads = model.hidden_size, model.num_heads // tp
    q, kv = mla.q_lora_rank, mla.kv_lora_rank
    queries = h * q + q + q * heads * model.head_dim if q else h * heads * model.head_dim
    return (
        queries
        + h * (kv + mla.qk_rope_dim)  # down, and the shared rotary key
        + kv  # norm of the latent
        + kv * heads * (mla.qk_nope_dim + mla.v_head_dim)  # up
        + heads * mla.v_head_dim * h  # output
        + (h * heads if mla.head_gates else 0)
        + indexer_params(model, mla)
    )


def indexer_params(model: ModelSpec, mla: Mla) -> int:
    """Parameters of the indexer of sparse attention, on every rank.

    Formula: q i e + h e + 2 e + h i; i heads of width e over the queries' latent q, one key with
             LayerNorm, a weight a head
    Source:  [hf-transformers] GlmMoeDsaIndexer
    Assumes: it is not split; none where the layer takes an earlier one's choice.
    """
    if not mla.indexer or mla.indexer.shared:
        return 0
    return index_matmul_params(model) + 2 * mla.indexer.head_dim


def block_indexer_params(model: ModelSpec) -> int:
    """Parameters of the index heads that choose blocks of keys, on every rank.

    Formula: h i e + h e + 2 e; i heads of width e, one key, a norm on each
    Source:  [hf-transformers] MiniMaxM3
    Assumes: it is not split.
    """
    sparse = model.block_sparse
    return index_matmul_params(model) + 2 * sparse.head_dim if sparse else 0


def index_matrices(model: ModelSpec) -> tuple[tuple[int, int], ...]:
    """Outputs and inputs of the matrices with which a layer chooses its keys: queries, key, and
    weights of the heads; none where it does not.
    """
    index = model.index
    if not index or not model.chooses_keys:
        return ()
    heads, width, h = index.num_heads, index.head_dim, model.hidden_size
    if not model.mla:
        return (heads * width, h), (width, h)
    latent = model.mla.q_lora_rank
    assert latent, "an indexer reads the queries' latent"
    return (heads * width, latent), (width, h), (heads, h)


def index_matmul_params(model: ModelSpec) -> int:
    """Elements of index_matrices()."""
    return sum(outputs * inputs for outputs, inputs in index_matrices(model))
