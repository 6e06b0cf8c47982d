"""The core of attention: scores and values of full, windowed and latent attention, and the sequence
that context parallelism shares.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from planner.cost.layer.kernels import flash_attention_s, flash_backward_s, gemm_s, memory_s
from planner.cost.network import collectives
from planner.cost.params.layer import kv_heads_per_rank
from planner.layout import Layouts, Numeric
from planner.specs.model import Indexer, Mla, ModelSpec
from planner.specs.recipe import Recipe
from planner.specs.versions import Version, version_of
from planner.units import MICRO

ABSORBED: Version = (0, 19)
TILE = 128
"""Keys of a tile of flash attention."""


def attended(recipe: Recipe) -> int:
    """Tokens of the longest stretch that attends to itself: the sequence, or a packed sample."""
    return recipe.mean_length if recipe.packing and recipe.mean_length else recipe.seq_length


def core(recipe: Recipe) -> Literal["flash", "fused", "unfused", "masked", "chosen"]:
    """How a layer's attention is computed: by the recipe's kernel; where an index chooses keys, of
    them alone by kernels of their own (chosen), or of all, of which a mask takes the others out
    (masked: fused; unfused: as Megatron-LM without those kernels has it).
    """
    if recipe.model.index is None:
        return recipe.attention
    if absorbed(recipe) and recipe.software.quirks.sparse_kernels:
        return "chosen"
    return "unfused" if recipe.framework == "megatron" else _masked(recipe.attention)


def _masked(attention: str) -> Literal["masked", "unfused"]:
    return "unfused" if attention == "unfused" else "masked"


def absorbed(recipe: Recipe) -> Mla | None:
    """Latent attention whose queries are projected into the latent, so that one key serves all
    heads: Megatron-LM's behind an indexer since 0.19, as kernels of the chosen keys need it.
    """
    if recipe.framework != "megatron" or not isinstance(recipe.model.index, Indexer):
        return None
    version = version_of("megatron", recipe.framework_version)
    return recipe.model.mla if version >= ABSORBED else None


def core_dim(model: ModelSpec) -> float:
    """Width of a head as the attention core sees it: values may be narrower than queries and keys.

    Formula: (d + e) / 2, of latent attention ((n + r) + v) / 2
    Source:  [deepseek2024] sec. 2.1.1; [hf-transformers] MiMoV2
    Assumes: scores and values cost alike.
    """
    values = model.mla.v_head_dim if model.mla else model.value_head_dim or model.head_dim
    return (model.head_dim + values) / 2


def core_width(recipe: Recipe) -> float:
    """Width of a head as the core of a layer sees it.

    Formula: core_dim(); of absorbed latents ((c + r) + c) / 2
    Source:  [megatron-core] core/transformer/experimental_attention_variant/absorbed_mla.py
    Assumes: scores and values cost alike.
    """
    mla = absorbed(recipe)
    return mla.kv_lora_rank + mla.qk_rope_dim / 2 if mla else core_dim(recipe.model)


def attention_times(recipe: Recipe, layout: Layouts) -> tuple[Numeric, Numeric]:
    """Forward and backward time of the attention core.

    Formula: flash, and cuDNN's fused kernel like it: causal FLOPs; unfused: full s x s products and
             the traffic of scores, softmax, mask and dropout;
             windows: windowed_share() of a full one; packed samples attend to themselves alone
    Source:  [dao2022]; [korthikanti2022] for unfused
    Assumes: heads split evenly; a rank of a context-parallel group has 1/cp of the work, in cp
             kernels that see s/cp tokens each; unfused attention computes what a window masks.
    """
    model, hardware, software = recipe.model, recipe.hardware, recipe.software
    heads, s = model.num_heads / layout.tp, float(recipe.seq_length)
    if recipe.attention != "unfused":
        forward = fused_s(recipe, layout, heads, core_width(recipe))
        window = model.window
        if window and (window.tokens < attended(recipe) or window.kind == "both_ways"):
            forward = forward * windowed_share(recipe)
        return forward, flash_backward_s(hardware, forward)
    batch = layout.mbs * heads / layout.cp
    scores = batch * s * s
    dim = core_width(recipe)
    scores_s = gemm_s(hardware, recipe.precision, s, s, dim) * batch
    other = gemm_s(hardware, recipe.precision, s, dim, s) * batch
    fixed = (
        (batch - 1) * next(iter(hardware.kernels.gemm.values())).fixed_us * MICRO
    )  # one launch for the whole batch
    forward = (
        scores_s
        + other
        - 2 * fixed
        + memory_s(hardware, software.traffic.scores_bytes_forward * scores)
    )
    backward = 2 * (scores_s + other - 2 * fixed) + memory_s(
        hardware, software.traffic.scores_bytes_backward * scores
    )
    return forward, backward


def fused_s(recipe: Recipe, layout: Layouts, heads: Numeric, dim: float) -> Numeric:
    """Forward time of a fused kernel over the whole causal sequence.

    Formula: flash_attention_s() of s / cp tokens, cp times; over the share of its rate that the
             software's kernel has
    Source:  [dao2022]
    Assumes: as attention_times().
    """
    hardware, samples = recipe.hardware, recipe.samples_per_sequence
    tokens = float(recipe.seq_length) / samples / layout.cp
    one = flash_attention_s(hardware, layout.mbs * samples, heads, tokens, dim)
    shares = recipe.software.attention_shares
    return one * layout.cp / getattr(shares, hardware.gpu.architecture, 1.0)


def seen_part(seen: float, s: float) -> float:
    """Time of attention to so many keys in the mean over that of a full causal one.

    Formula: (seen + 64) / (s/2 + 64)
    Source:  [dao2022] sec. 3: tiles of 128 keys, of which a row computes half a one too many
    Assumes: the kernel's rate is that of the whole sequence.
    """
    return (seen + TILE / 2) / (s / 2 + TILE / 2)


def windowed_share(recipe: Recipe) -> float:
    """Time of a windowed layer's attention over that of a full one.

    Formula: seen_part() of the mean keys a token sees: w - w^2 / (2 s) where windows slide, w/2 in
             chunks, w where they lie both ways
    Source:  [hf-transformers] sliding_window, attention_chunk_size
    Assumes: as seen_part().
    """
    window, s = recipe.model.window, attended(recipe)
    assert window is not None
    w = window.tokens
    seen = {"sliding": w - w * w / (2 * s), "chunked": w / 2, "both_ways": w}[window.kind]
    return seen_part(seen, s)


def _exchange_times(
    recipe: Recipe, layout: Layouts, ranks: Numeric, tp: Numeric
) -> tuple[Numeric, Numeric]:
    """Forward and backward of an exchange of heads for tokens among so many ranks, tp ranks apart.

    Formula: latency + (n-1)/n of 2-byte q, k, v of the rank's tokens, and the same of the output;
             keys and values copied to n heads
    Source:  [deepspeed] sequence/layer.py DistributedAttention: an all-to-all each for q, k, v and
             the output; [megatron-core] --cp-comm-type a2a
    Assumes: an all-to-all moves at the bus bandwidth of a gather.
    """
    model = recipe.model
    members = collectives.group(recipe.hardware, tp, ranks)
    query, kv_heads = model.query_size / tp, np.maximum(model.num_kv_heads / tp, ranks)
    sizes = (query, kv_heads * model.head_dim, kv_heads * model.head_dim, query)
    exchange_s = sum(
        collectives.gather_s(
            recipe.hardware, members, recipe.tokens_per_rank(layout) * recipe.element_bytes * size
        )
        for size in sizes
    )
    return exchange_s, exchange_s


def keys_width(recipe: Recipe, layout: Layouts) -> Numeric:
    """Elements a token of the keys and values of a rank.

    Formula: 2 k d; of absorbed latents c + r, and an index's key
    Source:  [megatron-core] core/transformer/experimental_attention_variant/dsa.py
    Assumes: a head at least.
    """
    mla, index = absorbed(recipe), recipe.model.index
    if mla and index:
        own = index.head_dim * recipe.model.chooses_keys
        return mla.kv_lora_rank + mla.qk_rope_dim + own
    return 2 * kv_heads_per_rank(recipe.model, layout.tp) * recipe.model.head_dim


def cp_comm_times(
    recipe: Recipe, layout: Layouts, attention_s: tuple[Numeric, Numeric]
) -> tuple[Numeric, Numeric]:
    """Context-parallel ring of keys and values, where it outlasts the attention that hides it,
    among groups that exchange heads for tokens; DeepSpeed's ranks all exchange, Megatron's as many
    as cp_a2a says.

    Formula: exchange: all-to-all of q, k, v and of the output, each way, not hidden; ring of r = cp
             / cp_a2a: max(0, (r-1) send(K, V of a rank) - attention (r-1)/r) + joining of partial
             results; backward K, V and their gradients; gathered (cp_gathered): gather(K, V) in
             place of a ring without exchange, backward again and a scatter of their gradients, none
             hidden
    Source:  [megatron-core] --cp-comm-type p2p, all_gather, a2a, a2a+p2p; [transformer-engine]
             context_parallel: every hop's output is rescaled and added;
             AttnFuncWithCPAndKVAllGather
    Assumes: the ring's hops are of the group's slowest class; an exchange keeps the bytes of a hop,
             more tokens of fewer heads.
    """
    if recipe.framework == "deepspeed":
        return _exchange_times(recipe, layout, layout.cp, 1)
    exchange = _exchange_times(recipe, layout, layout.cp_a2a, layout.tp)
    size = recipe.tokens_per_rank(layout) * keys_width(recipe, layout) * recipe.element_bytes
    ring = layout.cp / layout.cp_a2a
    hop = collectives.send_s(recipe.hardware, layout.tp * layout.cp_a2a, ring, size)
    hops = ring - 1
    hidden = hops / ring
    partial = (
        recipe.software.traffic.ring_bytes
        * recipe.tokens_per_rank(layout)
        * recipe.model.query_size
        / layout.tp
    )
    joined = memory_s(recipe.hardware, partial * hops)
    forward = np.maximum(hops * hop - attention_s[0] * hidden, 0.0) + joined + exchange[0]
    backward = np.maximum(2 * hops * hop - attention_s[1] * hidden, 0.0) + joined + exchange[1]
    if not recipe.software.overlap.cp_gathered:
        return forward, backward
    members = collectives.group(recipe.hardware, layout.tp, layout.cp)
    gather = collectives.gather_s(recipe.hardware, members, size * layout.cp)
    alone = np.asarray(layout.cp_a2a) == 1
    return np.where(alone, gather, forward), np.where(alone, 2 * gather, backward)
