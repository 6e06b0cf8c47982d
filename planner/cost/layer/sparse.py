"""Sparse attention: small index heads score every key, and the core sees those that they choose.

Kernels of its own read the chosen keys alone, over latents into which the up-projections are
absorbed. Code without them computes all scores and masks those of other keys.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from planner.cost.layer.attention import (
    absorbed,
    attended,
    attention_times,
    core,
    core_width,
    fused_s,
    seen_part,
)
from planner.cost.layer.gemms import Product, products_s
from planner.cost.layer.kernels import flash_backward_s, gemm_s, memory_s
from planner.cost.params.attention import index_matrices
from planner.cost.params.trained import trains
from planner.layout import Layouts, Numeric
from planner.specs.model import Indexer, ModelSpec
from planner.specs.recipe import Recipe

PASSES_BYTES = 12.0
"""Scores of the index in 32 bits: written, and read twice by the choice. A guess."""
NAIVE_BYTES = 24.0
"""A score of one index head where operations are apart: products, scale or mask, ReLU and the sum
over heads write and read 4 bytes each. Tensors of [megatron-core] and [hf-transformers] counted.
"""
MASK_BYTES = 6.0
"""A mask of its own for each head: booleans repeated and combined, 16 bits written and read."""
INDEX_ROWS = 8192
"""Rows of queries whose scores kernels hold at a time. Source: [megatron-core]
core/transformer/experimental_attention_variant/dsa.py fused_indexer_block_size.
"""
TILE_HEADS = {"blackwell": 128, "blackwell-ultra": 128}
"""Heads of a tile of the absorbed kernels, of other generations 64. Source: [megatron-core]
core/transformer/experimental_attention_variant/dsa_cudnn_kernels.py.
"""
INDEX_LAUNCH_US = (200.0, 100.0)
"""CPU time of the index's some 40 kernels, forward and backward. A guess."""


def chosen_keys(model: ModelSpec, s: float) -> float:
    """Mean keys that a token sees of those before it.

    Formula: k - k^2 / (2 s) of k keys, s/2 where all are chosen; of k keys in blocks of b, the
             token's own among them, (k^2 / 2 + (s - k) (k - b/2)) / s
    Source:  [megatron-bridge] training/utils/flop_utils.py; [hf-transformers] MiniMaxM3VLIndexer
    Assumes: a layer whose keys are chosen.
    """
    index = model.index
    assert index is not None, "only layers with an index ask"
    if isinstance(index, Indexer):
        keys, half = index.keys_per_query, 0.0
    else:
        keys, half = index.blocks_per_query * index.block_size, index.block_size / 2
    if keys >= s:
        return s / 2
    return (keys * keys / 2 + (s - keys) * (keys - half)) / s


def index_loss(recipe: Recipe) -> Literal["none", "chosen", "all"]:
    """Which keys the index's own loss compares, where it is trained: Transformers runs it without
    gradients.
    """
    index = recipe.model.index
    if not isinstance(index, Indexer) or index.shared or recipe.framework != "megatron":
        return "none"
    return index.loss if trains(recipe, "attention") else "none"


def sparse_times(recipe: Recipe, layout: Layouts) -> tuple[Numeric, Numeric]:
    """Forward and backward time of a core whose keys are chosen, and of the choice.

    Formula: index_times() + chosen: a fused kernel over absorbed latents, of whole tiles of heads,
             times seen_part() of chosen_keys(); masked: twice a causal one, and MASK_BYTES a score
             of each mask; else attention_times() of unfused attention
    Source:  [flashmla]: 640 TFLOP/s on H800 and 1450 on B200 forward, as dense kernels have;
             [megatron-core] core/transformer/experimental_attention_variant
    Assumes: rates of the dense kernel, backward too: nobody has published a backward time.
    """
    index, model = index_times(recipe, layout), recipe.model
    kernel, heads = core(recipe), model.num_heads / layout.tp
    if kernel == "unfused":
        plain = recipe.model_copy(update={"attention": "unfused"})
        forward, backward = attention_times(plain, layout)
        return forward + index[0], backward + index[1]
    if kernel == "chosen":
        forward = _absorbed_s(recipe, layout, core_width(recipe)) * _seen(recipe)
    else:
        forward = 2 * fused_s(recipe, layout, heads, core_width(recipe))
    backward = flash_backward_s(recipe.hardware, forward)
    if kernel == "masked":
        scores = recipe.tokens_per_rank(layout) * attended(recipe) * _masks(recipe, layout)
        forward = forward + memory_s(recipe.hardware, MASK_BYTES * scores)
    return forward + index[0], backward + index[1]


def _absorbed_s(recipe: Recipe, layout: Layouts, width: float) -> Numeric:
    """A fused kernel whose heads share a key: whole tiles of heads multiply it."""
    tile = TILE_HEADS.get(recipe.hardware.gpu.architecture, 64)
    return fused_s(recipe, layout, np.maximum(recipe.model.num_heads / layout.tp, tile), width)


def _seen(recipe: Recipe) -> float:
    s = attended(recipe)
    return seen_part(chosen_keys(recipe.model, s), s)


def _masks(recipe: Recipe, layout: Layouts) -> Numeric:
    """Masks of a token: blocks are chosen for each head, keys for all."""
    return recipe.model.num_heads / layout.tp if recipe.model.block_sparse else 1


def index_products(recipe: Recipe, count: Numeric) -> tuple[Product, ...]:
    """Products with index_matrices() of `count` tokens: each rank of tp has all of them."""
    trained = index_loss(recipe) != "none"
    return tuple(
        Product(count, outputs, inputs, low=False, trained=trained)
        for outputs, inputs in index_matrices(recipe.model)
    )


def index_times(recipe: Recipe, layout: Layouts) -> tuple[Numeric, Numeric]:
    """Forward and backward time of choosing the keys of a layer, on every rank of tp.

    Formula: products of index_matrices(), weight gradients alone backward; scores of i heads e
             wide and their choice, PASSES_BYTES a score; where its loss trains it, attention's own
             scores again, and the gradients of queries and keys: twice the scores compared
    Source:  [megatron-core] core/transformer/experimental_attention_variant/dsa.py: its inputs are
             detached; [hf-transformers] GlmMoeDsaIndexer
    Assumes: kernels score at the rate of attention, half of it a head; without them products are
             in 32 bits, NAIVE_BYTES a score of each head.
    """
    model, hardware = recipe.model, recipe.hardware
    count, s, index = recipe.tokens_per_rank(layout), attended(recipe), model.index
    if index is None or not model.chooses_keys:
        return 0.0 * count, 0.0 * count
    projected, _, weights, _ = products_s(recipe, layout, index_products(recipe, count))
    pairs, loss, heads = count * s, index_loss(recipe), model.num_heads / layout.tp
    width = keys_of_latent(model) if absorbed(recipe) else model.head_dim
    kernels = core(recipe) == "chosen"
    if kernels:
        scores = fused_s(recipe, layout, index.num_heads, index.head_dim) / 2
        teacher = _absorbed_s(recipe, layout, width) / 2
    else:
        scores = _naive_s(recipe, layout, index.num_heads, index.head_dim)
        teacher = _naive_s(recipe, layout, heads, width)
    forward = projected + scores + memory_s(hardware, PASSES_BYTES * pairs)
    if loss == "none":
        return forward, 0.0 * forward
    compared = _seen(recipe) if loss == "chosen" and kernels else 1.0
    return forward + teacher * compared, weights + 2 * scores * compared


def keys_of_latent(model: ModelSpec) -> float:
    """Width of a key of absorbed latents."""
    return float(model.mla.kv_lora_rank + model.mla.qk_rope_dim) if model.mla else 0.0


def _naive_s(recipe: Recipe, layout: Layouts, heads: Numeric, width: float) -> Numeric:
    """Scores of every key by one product in 32 bits, and the passes over them."""
    count, s = recipe.tokens_per_rank(layout), attended(recipe)
    moved = memory_s(recipe.hardware, NAIVE_BYTES * count * s * heads)
    return gemm_s(recipe.hardware, "fp32", count * heads, s, width) + moved


def index_gathered(model: ModelSpec) -> int:
    """Width of what an index reads of a token, which it gathers where sp splits tokens over tp.

    Formula: h + q; h of blocks; 0 of an earlier layer's choice
    Source:  [megatron-core] core/transformer/experimental_attention_variant/dsa.py
    Assumes: gathered again for the backward pass of its own loss by keeping it.
    """
    if not model.chooses_keys:
        return 0
    return model.hidden_size + (model.mla.q_lora_rank or 0 if model.mla else 0)
