"""Times of stages from a model on a cluster, for schedules and for forward-only pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from planner.action import Order
from planner.cost.params.stages import chunk_layers
from planner.cost.pipeline import blocking
from planner.errors import InputError
from planner.estimate import stage_times
from planner.layout import SCHEDULE_CODE, Layout
from planner.pipeline.timelines import Durations, StageWork, chunks
from planner.rules.table import breaches
from planner.specs.question import from_words
from planner.specs.recipe import Recipe
from planner.specs.resolve import recipe_and_layout
from planner.specs.stage_layout import stages

MATRICES = ("heads split over tp", "ffn splits over tp")
WIDTHS = (
    *MATRICES,
    "sequence splits over cp",
    "sequence splits over tp",
    "positions reach the sequence",
    "stack has sequence parallelism",
)
"""Rules without which the times of a stage mean nothing."""


def model_work(
    work: StageWork, stated: Mapping[str, Any], words: Mapping[str, Any], name: str
) -> StageWork:
    """The work with the durations of the model's stages: embedding on the first, head and loss on
    the last. Seconds.

    stated: the words of the question that were given; words: all words. Raises InputError.
    """
    pp, m = words["pp"], words["microbatches"] or 2 * words["pp"]
    question = {**stated, "set": tuple(stated.get("set", ())), "pp": pp, "m": m, "v": 1}
    recipe, layout = recipe_and_layout(from_words(question, "the command line"))
    check_widths(recipe, layout)
    layout = replace(layout, schedule=SCHEDULE_CODE["1f1b" if name == "all" else name])

    def measured(order: Order, v: int) -> Durations:
        cut = replace(layout, v=v)
        _check_layers(recipe, cut)
        spent, transfer, _ = stage_times(recipe, cut)
        return Durations(np.tile(spent, (order.stages // len(spent), 1)), None, transfer)

    blocks = bool(words["blocking"])
    if words["blocking"] is None and name in ("1f1b", "interleaved"):
        blocks = blocking(recipe, replace(layout, v=chunks(name, words["v"])))
    how = (
        "transfers block the sender, as Megatron-LM's exchange in pairs does"
        if blocks
        else "transfers run beside the work"
    )
    knobs = f"tp {layout.tp}, mbs {layout.mbs}"
    return replace(
        work, measured=measured, unit="s", blocking=blocks, assumed=(*recipe.assumed, knobs, how)
    )


def check_widths(recipe: Recipe, layout: Layout, rules: tuple[str, ...] = WIDTHS) -> None:
    """The model's widths split as the layout says, whichever schedule and framework runs it. Raises
    InputError.
    """
    broken = [breach.message for breach in breaches(recipe, layout) if breach.rule in rules]
    if broken:
        raise InputError(broken[0])


def _check_layers(recipe: Recipe, layout: Layout) -> None:
    """Every layer has a stage. Raises InputError."""
    pp, v, layers = layout.pp, layout.v, recipe.model.num_layers
    count = len(stages(layout.stage_layout)) if layout.stage_layout else pp * v
    if count != pp * v:
        raise InputError(
            f"stage-layout must have pp x v = {pp} x {v} stages, but has {count}; state --v"
            f" {max(count // pp, 1)}"
        )
    placed = [
        count
        for rank in chunk_layers(recipe.model, layout, recipe.software.quirks.stage_head_share)
        for count in rank
    ]
    if sum(placed) != layers or min(placed) < 0:
        raise InputError(
            f"the {layers} layers of {recipe.model.name} must divide over pp x v = {pp} x {v}"
            " stages, but do not; change pp or v, or move layers with --first-layers,"
            " --last-layers, --account-for-..."
        )
