"""Weights of the layers in 8 and 4 bits: the copies that products read, and what data parallelism
gathers.
"""

from __future__ import annotations

import numpy as np

from planner.layout import Layouts, Numeric
from planner.specs.megatron import sharded_by_torch
from planner.specs.recipe import Recipe
from planner.specs.switches.numbers import gathers_quantized

COPY = {
    "fp8-delayed": 1.0,
    "fp8-tensorwise": 1.0,
    "fp8-blockwise": 1.0 + 4.0 / 128**2,
    "mxfp8": 1.0 + 1.0 / 32,
    "nvfp4": 0.5 + 1.0 / 16,
}
"""Bytes a weight of one copy, scales included: one in 4 bytes for each 128 x 128 weights, one byte
for each 32, one for each 16.

Source: [transformer-engine] common/recipe
"""
WHOLE_TENSOR = ("fp8-delayed", "fp8-tensorwise")
"""Recipes with one scale a tensor, whose transpose holds the same numbers."""
SENT = {"fp8-delayed": 1.0, "fp8-tensorwise": 1.0, "fp8-blockwise": 1.0, "mxfp8": 2.0, "nvfp4": 0.5}
"""Bytes a weight that the distributed optimizer gathers: mxfp8 sends 16 bits through the buffer of
gradients and quantizes afterwards; of the others the scales are reduced apart.

Source: [megatron-core] core/distributed/param_and_grad_buffer.py.
"""


def multiplies_any_layout(capability: float) -> bool:
    """Whether 8-bit products take their operands as they lie, without a transposed copy.

    Source: [transformer-engine] is_non_tn_fp8_gemm_supported()
    """
    return 10 <= capability < 12 or capability >= 13


def copies_bytes(recipe: Recipe) -> float:
    """Bytes a weight of the copies that forward and backward products read.

    Formula: one copy by rows and one by columns; by rows alone where one scale covers the tensor
             and products take any layout
    Source:  [transformer-engine] module/base.py, kept from the first micro-batch of a step on
    Assumes: linears of the layers; embedding, head and router stay in 16 bits.
    """
    if not recipe.software.states.quantized_copies or recipe.precision not in COPY:
        return 0.0
    copy = COPY[recipe.precision]
    as_it_lies = multiplies_any_layout(recipe.hardware.gpu.compute_capability)
    return copy if recipe.precision in WHOLE_TENSOR and as_it_lies else 2 * copy


def beyond_16_bits(recipe: Recipe, layout: Layouts, weights: Numeric, alike: Numeric) -> Numeric:
    """Bytes of so many weights of the layers, which `alike` ranks hold, beyond (or below) their
    16-bit ones.

    Formula: copies_bytes() beside them, whole also where ZeRO 3 shards the weights; gathered in 8
             or 4 bits the copies alone: copies_bytes() - 2, and under ZeRO 3 shards of one copy,
             of two in mxfp8
    Source:  [transformer-engine] module/base.py; [megatron-core]
             core/distributed/param_and_grad_buffer.py, megatron_fsdp/mixed_precision.py
    Assumes: norms and routers, which are small, count as linears; torch's FSDP2 quantizes what it
             has gathered and keeps nothing.
    """
    both = copies_bytes(recipe)
    if not both:
        return 0.0 * weights
    copy = COPY[recipe.precision]
    sharded = layout.sharded(3)
    kept = np.where(sharded, 2 * copy if recipe.precision == "mxfp8" else copy, both)
    alone = (kept - 2.0) * weights / np.where(sharded, alike, 1)
    with_wide = both * weights * ~np.asarray(sharded_by_torch(recipe, layout))
    return np.where(gathers_quantized(recipe, layout), alone, with_wide)


def gathered_as(recipe: Recipe, layout: Layouts, wide: float) -> Numeric:
    """Bytes a weight of the layers in the gathers of data parallelism; wide: as it is.

    Formula: wide; with 8- and 4-bit gathers SENT, 1 in mxfp8 under ZeRO 2 and 3
    Source:  [megatron-core] core/distributed/param_and_grad_buffer.py,
             megatron_fsdp/param_and_grad_buffer.py
    Assumes: as beyond_16_bits().
    """
    if recipe.precision not in SENT:
        return wide
    narrow = np.where(layout.sharded(2), min(SENT[recipe.precision], 1.0), SENT[recipe.precision])
    return np.where(gathers_quantized(recipe, layout), narrow, wide)
