"""Model FLOPs: what training needs, without recomputation."""

from __future__ import annotations

from planner.cost.core import core_dim, windowed_layers
from planner.cost.experts import moe_layers_below
from planner.cost.params import matmul_params
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe


def attention_flops_per_token(recipe: Recipe) -> float:
    """Attention products of one token over the whole causal sequence, forward and backward, full count.

    Formula: 12 L s (a d); latent attention's d is the mean of (n + r) and v
    Source:  [narayanan2021] eq. 3
    Assumes: the full s x s square; causal masks need half. A layer of multi-token prediction is one more.
    """
    model = recipe.model
    return 12.0 * (model.num_layers + model.mtp_layers) * recipe.seq_length * (model.num_heads * core_dim(model))


def seen_share(recipe: Recipe) -> float:
    """Keys that causal attention sees over the full square, mean of the layers.

    Formula: 1/2; in windowed layers w/s - w^2 / (2 s^2) where they slide, w / (2 s) in chunks
    Source:  [hf-transformers] sliding_window, attention_chunk_size
    Assumes: nothing.
    """
    model, few = recipe.model, windowed_layers(recipe.model, recipe.seq_length)
    if model.window is None or not few:
        return 0.5
    part = model.window.tokens / recipe.seq_length
    seen = part - part * part / 2 if model.window.kind == "sliding" else part / 2
    return 0.5 + few / model.num_layers * (seen - 0.5)


def active_matmul_params(model: ModelSpec) -> float:
    """Parameters that take part in the matrix products of one token.

    Formula: layers: attention's projections + (3 or 2) h f of a dense MLP, or of k experts and the shared ones, + router h E;
             V h of the head; mtp_layers more of each, with 2 h^2
    Source:  [narayanan2021] eq. 3; [deepseek2024] activated parameters, sec. 2.2
    Assumes: the released vocabulary; every token uses experts_per_token experts.
    """
    moe, mla, h = model.moe, model.mla, float(model.hidden_size)
    if not (moe or mla or model.mtp_layers):
        return matmul_params(model)
    branches = 3 if model.gated_mlp else 2
    attention = 2 * h * model.query_size + 2 * h * model.kv_size
    if mla:
        q, c, heads = mla.q_lora_rank, mla.kv_lora_rank, model.num_heads
        queries = h * q + q * model.query_size if q else h * model.query_size
        attention = queries + h * (c + mla.qk_rope_dim) + c * heads * (mla.qk_nope_dim + mla.v_head_dim) + heads * mla.v_head_dim * h
    dense = attention + branches * h * model.ffn_size
    found, layer = 0, dense
    if moe:
        found = int(moe_layers_below(model, model.num_layers))
        width = moe.experts_per_token * moe.expert_ffn_size + moe.shared_ffn_size + model.ffn_size * moe.dense_residual
        layer = attention + branches * h * width + h * moe.num_experts
    ahead = model.mtp_layers * (layer + 2 * h * h + model.vocab_size * h)
    return (model.num_layers - found) * dense + found * layer + model.vocab_size * h + ahead


def model_flops(recipe: Recipe, *, full_attention: bool) -> float:
    """Floating-point operations of one step over all GPUs.

    Formula: tokens (6 P + attention), P what a token uses, attention times seen_share when causal is counted
    Source:  [narayanan2021] eq. 3 without recomputation
    Assumes: the look-up of the embedding is not counted, the head is.
    """
    attention = attention_flops_per_token(recipe) * (1.0 if full_attention else seen_share(recipe))
    return recipe.tokens * (6.0 * active_matmul_params(recipe.model) + attention)
