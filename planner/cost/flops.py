"""Model FLOPs: what training needs, without recomputation."""

from __future__ import annotations

from planner.cost.layer.attention import core_dim, windowed_layers
from planner.cost.params.experts import moe_layers_below
from planner.cost.params.layer import matmul_params
from planner.cost.params.lora import adapter_params, dense_adapters, expert_adapters
from planner.cost.params.trained import has_backward, trains, trains_all
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe


def attention_flops_per_token(recipe: Recipe) -> float:
    """Attention products of one token over the whole causal sequence, forward and backward, full
    count.

    Formula: 12 L s (a d), s a sample's length where samples are shorter than the sequence; latent
             attention's d is the mean of (n + r) and v; a third of it where no backward pass enters
             the layers
    Source:  [narayanan2021] eq. 3
    Assumes: the full s x s square; causal masks need half. A layer of multi-token prediction is one
             more.
    """
    model = recipe.model
    passes = 12.0 if has_backward(recipe) else 4.0
    return (
        passes
        * (model.num_layers + model.mtp_layers)
        * sample_length(recipe)
        * (model.num_heads * core_dim(model))
    )


def sample_length(recipe: Recipe) -> int:
    """Tokens of a sample, padding left out."""
    return recipe.mean_length or recipe.seq_length


def seen_share(recipe: Recipe) -> float:
    """Keys that causal attention sees over the full square, mean of the layers.

    Formula: 1/2; in windowed layers w/s - w^2 / (2 s^2) where they slide, w / (2 s) in chunks
    Source:  [hf-transformers] sliding_window, attention_chunk_size
    Assumes: nothing.
    """
    model, few = recipe.model, windowed_layers(recipe.model, sample_length(recipe))
    if model.window is None or not few:
        return 0.5
    part = model.window.tokens / sample_length(recipe)
    seen = part - part * part / 2 if model.window.kind == "sliding" else part / 2
    return 0.5 + few / model.num_layers * (seen - 0.5)


def attention_matmul_params(model: ModelSpec) -> float:
    """Parameters of the projections of one layer's attention: grouped heads, or latents' down- and
    up-projections.
    """
    mla, h = model.mla, float(model.hidden_size)
    if not mla:
        return 2 * h * model.query_size + 2 * h * model.kv_size
    q, c, heads = mla.q_lora_rank, mla.kv_lora_rank, model.num_heads
    queries = h * q + q * model.query_size if q else h * model.query_size
    return (
        queries
        + h * (c + mla.qk_rope_dim)
        + c * heads * (mla.qk_nope_dim + mla.v_head_dim)
        + heads * mla.v_head_dim * h
    )


def active_matmul_params(model: ModelSpec) -> float:
    """Parameters that take part in the matrix products of one token.

    Formula: layers: attention's projections + (3 or 2) h f of a dense MLP, or of k experts and the
             shared ones, + router h E; V h of the head; mtp_layers more of each, with 2 h^2
    Source:  [narayanan2021] eq. 3; [deepseek2024] activated parameters, sec. 2.2
    Assumes: the released vocabulary; every token uses experts_per_token experts.
    """
    moe, mla, h = model.moe, model.mla, float(model.hidden_size)
    if not (moe or mla or model.mtp_layers):
        return matmul_params(model)
    branches = model.mlp_matrices
    attention = attention_matmul_params(model)
    dense = attention + branches * h * model.ffn_size
    sparse_layers, layer = 0, dense
    if moe:
        sparse_layers = int(moe_layers_below(model, model.num_layers))
        width = (
            moe.experts_per_token * moe.expert_ffn_size
            + moe.shared_ffn_size
            + model.ffn_size * moe.dense_residual
        )
        layer = attention + branches * h * width + h * moe.num_experts
    ahead = model.mtp_layers * (layer + 2 * h * h + model.vocab_size * h)
    return (
        (model.num_layers - sparse_layers) * dense
        + sparse_layers * layer
        + model.vocab_size * h
        + ahead
    )


def trained_matmul_params(recipe: Recipe) -> float:
    """Of the parameters in the matrix products of one token those that get a gradient, the
    adapters' not counted.

    Formula: active_matmul_params - frozen parts: attention's projections, MLP or experts and
             router, V h of the head
    Source:  [hu2021] sec. 4: pre-trained weights get no gradients
    Assumes: as active_matmul_params.
    """
    model = recipe.model
    head = float(model.vocab_size * model.hidden_size)
    layers = active_matmul_params(model) - head * (1 + model.mtp_layers)
    if trains_all(recipe):
        return active_matmul_params(model)
    attention = attention_matmul_params(model) * (model.num_layers + model.mtp_layers)
    kept = (attention, "attention"), (layers - attention, "mlp"), (head, "head")
    return sum(size for size, part in kept if trains(recipe, part))


def adapter_matmul_params(recipe: Recipe) -> float:
    """Parameters of adapters that one token uses."""
    model, sparse_layers = (
        recipe.model,
        int(moe_layers_below(recipe.model, recipe.model.num_layers)),
    )
    dense, sparse = dense_adapters(recipe), expert_adapters(recipe)
    times = model.moe.experts_per_token if model.moe else 0
    routed = tuple(adapter for adapter in sparse if adapter.of == "routed")
    other = tuple(adapter for adapter in sparse if adapter.of != "routed")
    each = adapter_params(recipe, other) + times * adapter_params(recipe, routed)
    return float(
        (model.num_layers - sparse_layers) * adapter_params(recipe, dense) + sparse_layers * each
    )


def model_flops(recipe: Recipe, *, full_attention: bool) -> float:
    """Floating-point operations of one step over all GPUs; of frozen weights only what a gradient
    passes through, padding left out.

    Formula: tokens (2 P + 2 P_passed + 2 P_trained + 6 P_adapters + attention), P what a token uses
             (6 P when all is trained), P_passed all of it unless no backward pass enters the layers
             (then the head), attention times seen_share when causal is counted
    Source:  [narayanan2021] eq. 3 without recomputation; [hu2021]
    Assumes: the look-up of the embedding is not counted, the head is; recomputation and padding are
             no work of the model.
    """
    model = recipe.model
    attention = attention_flops_per_token(recipe) * (1.0 if full_attention else seen_share(recipe))
    used = active_matmul_params(model)
    passed = used if has_backward(recipe) else float(model.vocab_size * model.hidden_size)
    products = 2.0 * (used + passed + trained_matmul_params(recipe)) + 6.0 * adapter_matmul_params(
        recipe
    )
    return recipe.tokens * recipe.used_share * (products + attention)
