"""Megatron-LM's rules of the pipeline: how layers split over stages, and how micro-batches
interleave.
"""

from __future__ import annotations

import numpy as np

from planner.errors import InputError
from planner.layout import SCHEDULE_CODE, Layout, Layouts, Mask, Numeric
from planner.rules import experts
from planner.rules.rule import Rule, divides, quotient, try_knob
from planner.specs import stage_layout
from planner.specs.recipe import Recipe


def _by_string(layout: Layouts) -> bool:
    """A stage layout string belongs to one layout, so this is no question to a column."""
    return layout.stage_layout != ""


def _uneven(layout: Layouts) -> Mask:
    return (layout.first_layers > 0) | (layout.last_layers > 0)


def _counted_layers(recipe: Recipe, layout: Layouts) -> Numeric:
    """Layers as the even split counts them: embedding and loss may each stand for one."""
    return recipe.model.num_layers + layout.account_for_embedding + layout.account_for_loss


def _middle(recipe: Recipe, layout: Layouts) -> tuple[Numeric, Numeric]:
    """Layers and stages between a first and a last stage whose layers are stated."""
    stages = layout.pp - (layout.first_layers > 0) * 1 - (layout.last_layers > 0) * 1
    return recipe.model.num_layers - layout.first_layers - layout.last_layers, stages


def most_layers(recipe: Recipe, layout: Layouts) -> Numeric:
    """Layers of the fullest virtual stage, as Megatron builds them; the layout is legal
    otherwise.
    """
    if _by_string(layout):
        return max(stage_layout.layers(layout.stage_layout))
    layers, stages = _middle(recipe, layout)
    uneven = np.maximum(
        np.maximum(layout.first_layers, layout.last_layers), quotient(layers, stages)
    )
    even = quotient(_counted_layers(recipe, layout), layout.pp)
    # NOTE: where one stage holds all layers, what stands for embedding and loss is taken off again.
    even = np.minimum(even, recipe.model.num_layers)
    return quotient(np.where(_uneven(layout), uneven, even), layout.v)


def _even(recipe: Recipe, layout: Layouts) -> Mask:
    return (
        _by_string(layout) | _uneven(layout) | divides(layout.pp, _counted_layers(recipe, layout))
    )


def _even_out(recipe: Recipe, layout: Layout) -> str:
    layers = recipe.model.num_layers
    if layout.account_for_embedding + layout.account_for_loss:
        out = try_knob("pp", int(_counted_layers(recipe, layout)), layout.pp)
        return f"leave the account-for switches out, or {out}" if layers % layout.pp == 0 else out
    for more, switches in (
        (1, "--account-for-embedding"),
        (2, "--account-for-embedding --account-for-loss"),
    ):
        if (layers + more) % layout.pp == 0:
            return f"add {switches}, or {try_knob('pp', layers, layout.pp)}"
    return try_knob("pp", layers, layout.pp)


def _even_virtual(recipe: Recipe, layout: Layouts) -> Mask:
    per_stage = quotient(_counted_layers(recipe, layout), layout.pp)
    return _by_string(layout) | _uneven(layout) | divides(layout.v, per_stage)


def _even_virtual_out(recipe: Recipe, layout: Layout) -> str:
    return try_knob("v", int(_counted_layers(recipe, layout) // layout.pp), layout.v)


def _one_way(recipe: Recipe, layout: Layouts) -> Mask:
    accounted = (layout.account_for_embedding > 0) | (layout.account_for_loss > 0)
    if _by_string(layout):
        return ~np.asarray(accounted | _uneven(layout))
    return ~np.asarray(accounted & _uneven(layout))


def _uneven_split(recipe: Recipe, layout: Layouts) -> Mask:
    layers, stages = _middle(recipe, layout)
    even = (
        (layers >= 0) & (stages >= 0) & ((layers == 0) == (stages == 0)) & divides(stages, layers)
    )
    return _by_string(layout) | ~np.asarray(_uneven(layout)) | even


def _uneven_virtual(recipe: Recipe, layout: Layouts) -> Mask:
    layers, stages = _middle(recipe, layout)
    per_stage = quotient(layers, stages)
    even = (
        divides(layout.v, layout.first_layers)
        & divides(layout.v, layout.last_layers)
        & divides(layout.v, per_stage)
    )
    return _by_string(layout) | ~np.asarray(_uneven(layout)) | even


def layout_fault(recipe: Recipe, layout: Layout) -> str:
    """What is wrong with the stage layout string, in words; empty when it holds."""
    try:
        stages = stage_layout.stages(layout.stage_layout)
    except InputError as fault:
        return str(fault)
    letters = "".join(stages)
    layers = letters.count("t")
    if len(stages) != layout.pp * layout.v:
        return (
            f"it must have pp * v = {layout.pp * layout.v} stages, but has {len(stages)}; separate"
            " stages with |"
        )
    if not (
        letters.startswith("E")
        and letters.endswith("L")
        and letters.count("E") == letters.count("L") == 1
    ):
        return "it must start with its only E and end with its only L"
    if letters.count("m") != recipe.model.mtp_layers:
        return (
            f"it must hold {recipe.model.mtp_layers} m, one a multi-token-prediction layer, but has"
            f" {letters.count('m')}"
        )
    if layers != recipe.model.num_layers:
        return f"it must hold {recipe.model.num_layers} t, one a layer, but has {layers}"
    return experts.chunk_of_predictions(stages, layout.pp)


def _string_holds(recipe: Recipe, layout: Layouts) -> Mask:
    return not layout.stage_layout or layout_fault(recipe, layout[0]) == ""


def _schedule(recipe: Recipe, layout: Layouts) -> Mask:
    plain = (layout.schedule == SCHEDULE_CODE["1f1b"]) & (layout.v == 1)
    return plain | ((layout.schedule == SCHEDULE_CODE["interleaved"]) & (layout.v > 1))


def _group(layout: Layouts) -> Numeric:
    return np.where(layout.group > 0, layout.group, layout.pp)


def _interleaves(recipe: Recipe, layout: Layouts) -> Mask:
    group = np.maximum(_group(layout), 1)
    rest = layout.m % group
    return (layout.v == 1) | (
        (layout.pp <= group) & (group <= layout.m) & ((rest == 0) | (rest >= layout.pp))
    )


def _interleaves_out(recipe: Recipe, layout: Layout) -> str:
    if layout.group and layout.group != layout.pp:
        return f"leave the group at its default, pp = {layout.pp}, or choose one that divides m"
    near = sorted(
        {max(layout.m // layout.pp, 1) * layout.pp, -(-layout.m // layout.pp) * layout.pp}
    )
    return f"try m {' or '.join(map(str, near))}, a multiple of pp, or v 1"


RULES = (
    Rule(
        "Megatron runs the schedule",
        _schedule,
        "Megatron-LM runs 1f1b with v = 1 and interleaved with v > 1, but got {knobs[schedule]}"
        " with v={layout.v}",
    ),
    Rule(
        "virtual stages need a pipeline",
        lambda recipe, layout: (layout.v == 1) | (layout.pp > 1),
        "v > 1 needs pp > 1, but got v={layout.v} and pp={layout.pp}",
        lambda recipe, layout: "try v 1",
    ),
    Rule(
        "virtual stages without overlap need three ranks",
        lambda recipe, layout: (layout.v == 1) | (layout.pp > 2) | recipe.software.overlap.p2p,
        "where transfers of virtual stages do not overlap (stack {recipe.software.name}) pp must be"
        " above 2, but got v={layout.v} and pp={layout.pp}",
        lambda recipe, layout: "try v 1 or pp 4",
    ),
    Rule(
        "one way to split the layers",
        _one_way,
        "stage layout, first/last layers and account-for switches exclude each other, but got"
        " several",
        lambda recipe, layout: "keep one of them",
    ),
    Rule(
        "layers split over stages",
        _even,
        "pp must divide the layers (with what stands for embedding and loss), but got"
        " pp={layout.pp} and {recipe.model.num_layers} layers",
        _even_out,
    ),
    Rule(
        "layers of a stage split over v",
        _even_virtual,
        "v must divide the layers of a stage, but got v={layout.v}, pp={layout.pp} and"
        " {recipe.model.num_layers} layers",
        _even_virtual_out,
    ),
    Rule(
        "first and last layers leave an even middle",
        _uneven_split,
        "the layers between first and last stage must split evenly over the stages between, but got"
        " first={layout.first_layers}, last={layout.last_layers}, pp={layout.pp} and"
        " {recipe.model.num_layers} layers",
    ),
    Rule(
        "first and last layers split over v",
        _uneven_virtual,
        "v must divide the layers of the first, the last and the middle stages, but got"
        " v={layout.v}, first={layout.first_layers}, last={layout.last_layers}, pp={layout.pp} and"
        " {recipe.model.num_layers} layers",
        lambda recipe, layout: "try v 1",
    ),
    Rule(
        "stage layout is whole",
        _string_holds,
        "the stage layout {layout.stage_layout!r} does not hold",
        layout_fault,
    ),
    Rule(
        "micro-batches interleave",
        _interleaves,
        "with v > 1 the group of micro-batches (default pp) must be at least pp and at most m, and"
        " m a multiple of it (or leave a rest of at least pp), but got m={layout.m},"
        " pp={layout.pp}, group={layout.group}",
        _interleaves_out,
    ),
)
