"""How many parameters the attention of one layer has on a tensor-parallel rank: grouped heads, or
latent (MLA).
"""

from __future__ import annotations

from planner.layout import Numeric
from planner.specs.model import Mla, ModelSpec


def attention_params(model: ModelSpec, tp: Numeric = 1) -> Numeric:
    """Parameters of the attention of one layer on one rank, its query and key norms, sinks and
    biases too.

    Formula: mla_params, or (2 h a d + 2 h k d + a sinks) / tp + biases + qk norm; key and value
             weights split evenly also when tp > k
    Source:  [megatron-core] built on the meta device; [korthikanti2022]
    Assumes: tp divides the heads.
    """
    h = model.hidden_size
    if model.mla:
        return mla_params(model, model.mla, tp)
    q = model.query_size // tp
    kv = model.kv_size // tp
    bias = model.attention_bias
    return (
        2 * h * q  # query, output
        + 2 * h * kv  # key, value
        + (q + 2 * kv if bias != "none" else 0)
        + (h if bias == "qkvo" else 0)  # output bias, on every rank
        + qk_norm_params(model, tp)
        + (model.num_heads // tp if model.attention_sinks else 0)
    )


def qk_norm_params(model: ModelSpec, tp: Numeric = 1) -> Numeric:
    """Weights of the norms on queries and keys.

    Formula: 2 d per head; (a + k) d / tp over all heads or with a weight for each; 0 without
             weights
    Source:  [megatron-core] q_layernorm, k_layernorm; [hf-transformers] Olmo2, Cohere, Llama4
    Assumes: RMS norms, or LayerNorms without bias.
    """
    if not model.qk_norm or model.qk_norm_kind == "l2":
        return 0
    return (
        2 * model.head_dim
        if model.qk_norm_kind == "per_head"
        else (model.query_size + model.kv_size) // tp
    )


def mla_params(model: ModelSpec, mla: Mla, tp: Numeric = 1) -> Numeric:
    """Parameters of multi-head latent attention on one rank. Down-projections and latent norms are
    on every rank.

    Formula: h q + q + q a (n + r) / tp, or h a (n + r) / tp without query latent; h (c + r) + c + c
             a (n + v) / tp + a v h / tp; q, c latents of queries and of keys and values, n, r head
             parts without and with positions, v value head
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
        + indexer_params(model, mla)
    )


def indexer_params(model: ModelSpec, mla: Mla) -> int:
    """Parameters of the indexer of sparse attention, on every rank.

    Formula: q i e + h e + 2 e + h i; i heads of width e over the queries' latent q, one key with
             LayerNorm, a weight a head
    Source:  [hf-transformers] GlmMoeDsaIndexer
    Assumes: it is not split.
    """
    if not mla.indexer or not mla.q_lora_rank:
        return 0
    heads, width = mla.indexer.num_heads, mla.indexer.head_dim
    return (
        mla.q_lora_rank * heads * width
        + model.hidden_size * width
        + 2 * width
        + model.hidden_size * heads
    )
