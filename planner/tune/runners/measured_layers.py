"""Measured layers beside the cost model's own: for people, for the fit of a profile, and for the
memory of a plan that did not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from planner import estimate
from planner.cost import pipeline
from planner.cost.layer.embedding_and_head import ends_time
from planner.cost.layer.kinds import layer_time
from planner.cost.layer.layer import LayerTime
from planner.cost.memory import rank_memory
from planner.cost.memory.activations import Activations
from planner.layout import RECOMPUTE_CODE, Layout
from planner.specs.recipe import Recipe
from planner.tune.runners import proxy

Kept = dict[str, float]
"""Bytes that a layer of a kind holds between its passes."""


def kept(recipe: Recipe, pieces: list[dict[str, Any]]) -> Kept:
    """By kind, from the difference of two depths; empty where the device did not tell."""
    held = {piece["name"]: piece.get("kept_bytes") for piece in pieces}
    out: Kept = {}
    for kind in proxy.kinds(recipe):
        deep, shallow = held.get(f"{kind}-{proxy.DEEP}"), held.get(f"{kind}-{proxy.SHALLOW}")
        if deep is not None and shallow is not None:
            out[kind] = (deep - shallow) / (proxy.DEEP - proxy.SHALLOW)
    return out


def layers(
    recipe: Recipe,
    layout: Layout,
    measured: Mapping[str, tuple[float, float]],
    held: Kept,
    tp_measured: bool,
    recomputed: bool,
) -> tuple[dict[str, Any], ...]:
    """Measured and predicted seconds of each layer and end; the prediction holds what the
    measurement holds.
    """
    ends, acts = ends_time(recipe, layout), estimate.parts(recipe, layout)[3]
    predicted = {
        "embedding": (float(ends.embedding_forward_s), float(ends.embedding_backward_s)),
        "head": (float(ends.head_forward_s), float(ends.head_backward_s)),
    }
    for each in recipe.kinds:
        name = proxy.kind(each.model)
        predicted[name] = _passes(layer_time(each, layout), tp_measured, recomputed)
    out = []
    for name, (forward, backward) in measured.items():
        row = {
            "name": name,
            "forward_s": forward,
            "backward_s": backward,
            "predicted_forward_s": predicted[name][0],
            "predicted_backward_s": predicted[name][1],
        }
        if name in held:
            row |= {
                "kept_bytes": held[name],
                "predicted_kept_bytes": _held(recipe, layout, acts, name),
            }
        out.append(row)
    return tuple(out)


def _passes(layer: LayerTime, tp_measured: bool, recomputed: bool) -> tuple[float, float]:
    """Seconds of a layer without the exchanges that a lone device does not make."""
    forward = layer.forward_s - layer.ep_forward_s - layer.cp_forward_s
    backward = layer.backward_s - layer.ep_backward_s - layer.cp_backward_s
    if not tp_measured:
        forward = forward - layer.tp_forward_s
        backward = backward - layer.tp_backward_s
    if not recomputed:
        backward = backward - layer.recompute_s
    return float(forward), float(backward)


def _held(recipe: Recipe, layout: Layout, acts: Activations, name: str) -> float:
    """Bytes that the cost model has a layer hold between its passes."""
    named = [proxy.kind(each.model) for each in recipe.kinds]
    of = acts.kinds[named.index(name)]
    return float(of.input_bytes if _all_recomputed(layout) else of.layer_bytes)


def _all_recomputed(layout: Layout) -> bool:
    return layout.recompute == RECOMPUTE_CODE["full"] and not layout.recompute_layers


def memory_bytes(recipe: Recipe, layout: Layout, held: Kept) -> float | None:
    """Allocated on the worst rank, with measured activations in the cost model's place; None where
    none were measured.
    """
    if not held or pipeline.refused(recipe, layout):
        return None
    _, times, ends, acts = estimate.parts(recipe, layout)
    measured = with_measured(recipe, layout, acts, held)
    timeline = pipeline.simulated(recipe, layout, times, ends, measured)
    [memory] = rank_memory.rank_memories(recipe, layout, measured, (timeline.ranks,))
    return float(np.max(memory.allocated_bytes))


def with_measured(recipe: Recipe, layout: Layout, acts: Activations, held: Kept) -> Activations:
    """Activations whose kept bytes are the measured ones."""
    kinds = []
    for each, of in zip(recipe.kinds, acts.kinds, strict=True):
        known = held.get(proxy.kind(each.model))
        if known is not None and _all_recomputed(layout):
            of = replace(of, input_bytes=known)
        elif known is not None:
            of = replace(of, layer_bytes=known)
        kinds.append(of)
    return replace(acts, kinds=tuple(kinds))
