"""Layers that must lie in one pipeline stage: those that take what an earlier layer made, its keys
and values or its choice of keys, or what the vision tower on the first stage did.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.layout import Layout, Layouts, Mask
from planner.rules.rule import Rule
from planner.specs import stage_layout
from planner.specs.layers import bound
from planner.specs.recipe import Recipe

_KNOBS = ("pp", "v", "account_for_embedding", "account_for_loss", "first_layers", "last_layers")


def taking(recipe: Recipe) -> NDArray[np.bool_]:
    """Which layers cannot begin a stage."""
    layers = bound(recipe.model)
    if recipe.tower is None or not recipe.images_per_sample:
        return layers
    first = np.arange(len(layers)) < recipe.tower.deepstack
    return layers | (first & (np.arange(len(layers)) > 0))


def _whole(layers: NDArray[np.bool_], layout: Layout) -> bool:
    """Whether no stage begins at a layer that takes from one before."""
    sizes = np.array(stage_layout.dealt(len(layers), layout))
    starts = np.cumsum(sizes) - sizes
    there = (sizes > 0) & (starts >= 0) & (starts < len(layers))
    return not layers[starts[there]].any()


def _stay_together(recipe: Recipe, layout: Layouts) -> Mask:
    layers = taking(recipe)
    if not layers.any():
        return True
    columns = np.broadcast_arrays(*(getattr(layout, name) for name in _KNOBS))
    few, which = np.unique(np.atleast_2d(np.stack(columns, axis=-1)), axis=0, return_inverse=True)
    string = layout.stage_layout
    rows = (dict(zip(_KNOBS, map(int, row), strict=True)) for row in few)
    held = [_whole(layers, Layout(**knobs, stage_layout=string)) for knobs in rows]
    return np.array(held, dtype=bool)[which.ravel()]


def _stay_together_out(recipe: Recipe, layout: Layout) -> str:
    free = np.flatnonzero(~taking(recipe))
    return f"try pp 1, or a stage layout whose stages begin at layers {_listed(free)}"


def _listed(layers: NDArray[np.int64]) -> str:
    shown = [str(layer) for layer in layers[:6]]
    return ", ".join(shown) + ", ..." * (len(layers) > len(shown))


RULES = (
    Rule(
        "layers that share keys lie in one stage",
        _stay_together,
        "a stage must not begin at a layer that takes keys, or a choice of keys, of one before, or"
        " what the vision tower made, but got pp={layout.pp}, v={layout.v} and {recipe.model.name}",
        _stay_together_out,
    ),
)
"""Source: [megatron-core] core/transformer/experimental_attention_variant/dsa.py: sharing across
stages is not supported; [hf-transformers] Gemma3nTextAttention; [megatron-bridge]
modelling_qwen3_vl/transformer_block.py: deepstack on the first stage.
"""
