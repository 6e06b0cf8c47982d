"""Megatron-LM's rules of context parallelism: a ring of keys and values, heads exchanged for tokens
(a2a), or both, one in the other.
"""

from __future__ import annotations

import numpy as np

from planner.layout import Layout, Layouts, Mask
from planner.rules.rule import Rule, divides, quotient, try_knob
from planner.specs.recipe import Recipe


def _heads(recipe: Recipe, layout: Layouts) -> Mask:
    """Key-value heads of a rank are at least one: where tp exceeds them they are copied."""
    heads = divides(layout.cp_a2a, quotient(recipe.model.num_heads, layout.tp))
    return heads & divides(
        layout.cp_a2a, np.maximum(quotient(recipe.model.num_kv_heads, layout.tp), 1)
    )


def _heads_out(recipe: Recipe, layout: Layout) -> str:
    return try_knob("cp_a2a", max(recipe.model.num_kv_heads // layout.tp, 1), layout.cp_a2a)


def _window(recipe: Recipe, layout: Layouts) -> Mask:
    window = recipe.model.window
    part = window is not None and window.tokens < recipe.seq_length
    return (layout.cp == layout.cp_a2a) | (not part and not recipe.model.attention_sinks)


RULES = (
    Rule(
        "exchanged heads are of cp ranks",
        lambda recipe, layout: divides(layout.cp_a2a, layout.cp),
        "cp_a2a, the ranks that exchange heads, must divide cp, but got cp_a2a={layout.cp_a2a} and"
        " cp={layout.cp}",
        lambda recipe, layout: try_knob("cp_a2a", layout.cp, layout.cp_a2a),
    ),
    # NOTE: no parser catches it: Transformer Engine asserts it in the forward pass of
    # AttnFuncWithCPAndQKVOA2A.
    Rule(
        "heads of a rank split over cp_a2a",
        _heads,
        "cp_a2a must divide the attention heads and the key-value heads of a rank, but got"
        " cp_a2a={layout.cp_a2a}, tp={layout.tp} with {recipe.model.num_heads} and"
        " {recipe.model.num_kv_heads} heads",
        _heads_out,
    ),
    Rule(
        "window runs under cp",
        _window,
        "Transformer Engine's ring of context parallelism has no attention windows and no sinks,"
        " but got cp={layout.cp}, cp_a2a={layout.cp_a2a} and {recipe.model.name}",
        lambda recipe, layout: f"try cp 1, or cp_a2a {layout.cp}",
    ),
)
"""Source of all: [megatron-core] training/arguments.py; [transformer-engine]
dot_product_attention/context_parallel.py.
"""
