"""Megatron-LM's rules, core 0.14 to main: what its parser, its configuration classes and its
schedules refuse.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.layout import RECOMPUTE_CODE, Layout, Layouts, Mask, module_names
from planner.rules import context, experts, mixers, pipeline, sizes, states, training
from planner.rules.rule import Rule, divides, quotient
from planner.specs.recipe import Recipe

FULL, SELECTIVE = RECOMPUTE_CODE["full"], RECOMPUTE_CODE["selective"]
MIN_COMPUTE = {
    "bf16": 8.0,
    "fp8-delayed": 8.9,
    "fp8-tensorwise": 8.9,
    "fp8-blockwise": 9.0,
    "mxfp8": 10.0,
    "nvfp4": 10.0,
}
"""CUDA compute capability that a precision needs."""
MIN_GFX = {"bf16": 9.0, "fp8-delayed": 9.4, "fp8-tensorwise": 9.4, "mxfp8": 9.5}
"""Of AMD's, as HIP reports them (gfx942 is 9.4, gfx950 9.5); ROCm's Transformer Engine has no other
recipe of 8 or 4 bits.

Source: github.com/ROCm/TransformerEngine transformer_engine/pytorch/fp8.py, check_fp8_support and
        its like.
"""
WIDE = ("fp32", "fp16", "bf16")


def _kv_heads_shared(recipe: Recipe, layout: Layouts) -> Mask:
    """Beyond the heads their weights are still split evenly, and gathered again in the forward
    pass: widths must divide too.
    """
    heads = recipe.model.num_kv_heads
    return divides(layout.tp, heads) | (
        divides(heads, layout.tp) & divides(layout.tp, 2 * recipe.model.kv_size)
    )


def _recompute_layers(recipe: Recipe, layout: Layouts) -> Mask:
    none = layout.recompute_layers == 0
    return none | (
        (layout.recompute == FULL)
        & (layout.recompute_layers <= pipeline.most_layers(recipe, layout))
    )


def _recompute_layers_out(recipe: Recipe, layout: Layout) -> str:
    return f"at most {int(pipeline.most_layers(recipe, layout))} with full recomputation, else 0"


def _recompute_modules(recipe: Recipe, layout: Layouts) -> Mask:
    none = layout.recompute_modules == 0
    unknown = ~experts.modules(recipe)
    return none | (
        (layout.recompute == SELECTIVE) & (np.bitwise_and(layout.recompute_modules, unknown) == 0)
    )


def _recompute_modules_out(recipe: Recipe, layout: Layout) -> str:
    return f"try any of {', '.join(module_names(experts.modules(recipe)))}"


def _precision_known(recipe: Recipe, layout: Layouts) -> Mask:
    return recipe.precision != "fp8-rowwise"


def _precision_runs(recipe: Recipe, layout: Layouts) -> Mask:
    gpu, precision = recipe.hardware.gpu, recipe.precision
    if gpu.vendor == "AMD":
        return precision in (*WIDE, *MIN_GFX) and gpu.compute_capability >= MIN_GFX.get(
            precision, 0.0
        )
    return gpu.compute_capability >= MIN_COMPUTE.get(precision, 0.0)


def _alignment(recipe: Recipe) -> int:
    """Elements that a dimension of a low-precision GEMM must be a multiple of; 1 for 16 and 32
    bits.
    """
    if recipe.precision in ("mxfp8", "nvfp4"):
        return 32
    return 16 if recipe.precision.startswith("fp8") else 1


def _aligned(recipe: Recipe, layout: Layouts) -> Mask:
    size = _alignment(recipe)
    if size == 1:
        return True
    model = recipe.model
    positive = replace(layout, cp=np.maximum(layout.cp, 1))
    tokens = quotient(recipe.tokens_per_rank(positive), layout.sequence_shards)
    widths = divides(size * layout.tp, experts.dense_width(recipe)) & divides(
        size * layout.tp, model.query_size
    )
    widths = widths & experts.aligned_widths(recipe, layout, size)
    return (model.hidden_size % size == 0) & widths & (tokens % size == 0)


def _aligned_out(recipe: Recipe, layout: Layout) -> str:
    return (
        f"each must be a multiple of {_alignment(recipe)}: use a smaller tp or a longer micro-batch"
    )


OWN = (
    Rule(
        "key-value heads split over tp",
        lambda recipe, layout: divides(layout.tp, recipe.model.num_kv_heads),
        "tp must divide the key-value heads before Megatron 0.16, but got tp={layout.tp} and"
        " {recipe.model.num_kv_heads}",
        lambda recipe, layout: f"try tp {recipe.model.num_kv_heads} or less, or version 0.16",
        before=(0, 16),
    ),
    Rule(
        "key-value heads split over tp",
        _kv_heads_shared,
        "tp must divide the key-value heads, or be a multiple of them that divides their width, but"
        " got tp={layout.tp} and {recipe.model.num_kv_heads} of width {recipe.model.head_dim}",
        since=(0, 16),
    ),
    Rule(
        "recompute layers fit a stage",
        _recompute_layers,
        "recompute_layers belongs to full recomputation and must not exceed the layers of a"
        " (virtual) stage, but got {layout.recompute_layers} with recompute={knobs[recompute]}",
        _recompute_layers_out,
    ),
    Rule(
        "recompute modules fit the model",
        _recompute_modules,
        "selective recomputation must name parts that the model has (norms of dense layers are part"
        " of their linear ones), but got {knobs[recompute_modules]} with"
        " recompute={knobs[recompute]}",
        _recompute_modules_out,
    ),
    Rule(
        "Megatron has the precision",
        _precision_known,
        "Megatron-LM has the fp8 recipes delayed, tensorwise, blockwise and mxfp8, but got"
        " {recipe.precision}",
        lambda recipe, layout: "try fp8-tensorwise",
    ),
    Rule(
        "4 bits came with 0.15",
        lambda recipe, layout: recipe.precision != "nvfp4",
        "nvfp4 is in Megatron-LM since 0.15, but got {recipe.framework_version}",
        lambda recipe, layout: "try mxfp8, or a later version",
        before=(0, 15),
    ),
    Rule(
        "GPU runs the precision",
        _precision_runs,
        "{recipe.precision} needs another GPU, but got {recipe.hardware.gpu.name} (compute"
        " capability {recipe.hardware.gpu.compute_capability})",
        lambda recipe, layout: "try fp16" if recipe.precision == "bf16" else "try bf16",
    ),
    Rule(
        "attention runs under cp",
        lambda recipe, layout: (layout.cp == 1) | (recipe.attention != "unfused"),
        "Transformer Engine's unfused attention has no context parallelism, but got"
        " attention={recipe.attention} and cp={layout.cp}",
        lambda recipe, layout: "try flash or fused attention, or cp 1",
    ),
    Rule(
        "low precision aligns",
        _aligned,
        "hidden size, MLP width and query width over tp, and the tokens of a micro-batch must align"
        " for {recipe.precision}, but got tp={layout.tp}, mbs={layout.mbs}, cp={layout.cp}",
        _aligned_out,
    ),
)

COMMON = tuple(rule for rule in sizes.RULES if rule not in (sizes.STATES, sizes.EXCHANGE))

RULES = (
    *COMMON,
    *context.RULES,
    *experts.MEGATRON,
    *mixers.MEGATRON,
    *states.RULES,
    *OWN,
    *pipeline.RULES,
    *training.MEGATRON,
)
