"""What a stage of a model takes for prefill and decode, on a cluster: a roofline of its kernels."""

from __future__ import annotations

from planner.cost.layer.kernels import flash_attention_s, gemm_s, memory_s
from planner.cost.layer.layer import matrices
from planner.cost.network import collectives
from planner.cost.params.layer import kv_heads_per_rank, layer_params
from planner.errors import InputError
from planner.layout import Layout
from planner.pipeline.model_times import MATRICES, check_widths
from planner.pipeline.serving.scenario import ServingScenario, StageCost
from planner.specs.layers import kinds
from planner.specs.question import from_words
from planner.specs.recipe import Recipe
from planner.specs.resolve import recipe_and_layout

FEW, MANY = 1024, 8192
"""Tokens of two batches between which products and all-reduces are taken to grow evenly."""
CONTEXT = 4096


def stage_cost(scenario: ServingScenario) -> tuple[StageCost, tuple[str, ...]]:
    """The cost of a stage of L / p layers, and what was assumed. Raises InputError."""
    words = {
        "model": scenario.model,
        "cluster": scenario.cluster,
        "tp": scenario.tp,
        "pp": scenario.p,
        "m": 1,
    }
    recipe, layout = recipe_and_layout(from_words(words, "the scenario"))
    if recipe.model.moe or recipe.model.mla:
        raise InputError(
            "model must be dense, without latent attention, to be served here, but got"
            f" {recipe.model.name}; state the stage's cost itself (cost: constant_ms, per_token_ms,"
            " ...)"
        )
    if recipe.model.num_layers < scenario.p:
        raise InputError(
            f"p must be at most the {recipe.model.num_layers} layers of {recipe.model.name}, but"
            f" got {scenario.p}"
        )
    check_widths(recipe, layout, MATRICES)
    context = scenario.context_tokens or scenario.prompt_tokens or CONTEXT
    layers = recipe.model.num_layers / scenario.p * 1e3
    constant, per_token = linear(recipe, layout)
    fixed, slope, squared = attention(recipe, layout)
    weights, cached = decode(recipe, layout, context)
    cost = StageCost(
        constant_ms=layers * (constant + fixed),
        per_token_ms=layers * (per_token + slope),
        per_token_squared_ms=layers * squared,
        decode_constant_ms=layers * (constant + weights),
        decode_ms=layers * cached,
    )
    note = (
        f"stage cost: roofline of {recipe.model.name} on {recipe.hardware.name}, tp {scenario.tp};"
        f" {context:,} tokens of context"
    )
    return cost, (note, "embedding, head, sampling and kernel launches are left out")


def linear(recipe: Recipe, layout: Layout) -> tuple[float, float]:
    """(constant, per token) seconds of a layer's products, element-wise work and two all-reduces.

    Formula: the line through the times of 1,024 and of 8,192 tokens
    Source:  planner.cost.layer.kernels and collectives
    Assumes: forward only; nothing overlaps.
    """
    few, many = (_tokens_s(recipe, layout, count) for count in (FEW, MANY))
    slope = (many - few) / (MANY - FEW)
    return max(few - slope * FEW, 0.0), slope


def _tokens_s(recipe: Recipe, layout: Layout, count: int) -> float:
    hardware, model, stack = recipe.hardware, recipe.model, recipe.software
    products = sum(
        float(gemm_s(hardware, recipe.precision, count, n, k)) for n, k in matrices(recipe, layout)
    )
    moved = (
        stack.traffic.elementwise_bytes_forward * model.hidden_size
        + stack.traffic.activation_bytes_forward * model.ffn_size / layout.tp
    )
    members = collectives.group(hardware, 1, layout.tp)
    reduced = (
        2 * float(collectives.all_reduce_s(hardware, members, count * model.hidden_size * 2.0))
        if layout.tp > 1
        else 0.0
    )
    return products + float(memory_s(hardware, moved * count)) + reduced


def attention(recipe: Recipe, layout: Layout) -> tuple[float, float, float]:
    """(fixed, per token, per token squared) seconds of a layer's causal attention over a prefix.

    Formula: flash attention's own fixed + A s^2 (1 + seq_half / s), read off two lengths
    Source:  [dao2022]
    Assumes: a chunk after l tokens costs the difference of two prefixes.
    """
    fixed = recipe.hardware.kernels.attention.fixed_us * 1e-6
    heads = recipe.model.num_heads / layout.tp
    few, many = (
        float(flash_attention_s(recipe.hardware, 1, heads, s, recipe.model.head_dim)) - fixed
        for s in (FEW, MANY)
    )
    squared = (many / MANY - few / FEW) / (MANY - FEW)
    return fixed, few / FEW - squared * FEW, squared


def decode(recipe: Recipe, layout: Layout, context: int) -> tuple[float, float]:
    """(reading a layer's weights, one sequence's token) in seconds.

    Formula: 2 bytes a parameter / HBM; 2 tensors of context x kv heads x head size x 2 bytes / HBM
    Source:  memory_s of planner.cost.layer.kernels
    Assumes: decode is bound by memory; weights and cache in two bytes.
    """
    model, hardware = recipe.model, recipe.hardware
    cached = 2 * context * float(kv_heads_per_rank(model, layout.tp)) * model.head_dim * 2.0
    layer = next(iter(kinds(model).values()))
    return float(memory_s(hardware, 2.0 * layer_params(layer, layout.tp))), float(
        memory_s(hardware, cached)
    )
