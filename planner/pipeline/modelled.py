"""Times of stages from a model on a cluster, for schedules and for forward-only pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from planner.action import Order
from planner.cost.stages import chunk_layers
from planner.errors import InputError
from planner.estimate import stage_times
from planner.layout import SCHEDULE_CODE
from planner.pipeline.timelines import Durations, Work, chunks
from planner.specs.question import question
from planner.specs.resolve import recipe_and_layout

WORDS = ("model", "cluster", "set", "seq_length", "precision", "stack", "attention", "recompute", "tp", "mbs")


def modelled(asked: Work, words: Mapping[str, Any], name: str) -> Work:
    """The work with the durations of the model's stages: embedding on the first, head and loss on the last. Seconds."""
    pp, m = words["pp"], words["microbatches"] or 2 * words["pp"]
    stated = {word: words[word] for word in WORDS if words[word] is not None}
    stated |= {"set": tuple(words["set"])} if words["set"] else {}
    told = question({**stated, "pp": pp, "m": m, "v": 1}, "the command line")
    recipe, layout = recipe_and_layout(told)
    schedule = "1f1b" if name == "all" else name
    layout = replace(layout, schedule=SCHEDULE_CODE[schedule])

    def measured(order: Order, v: int) -> Durations:
        cut = replace(layout, v=v)
        layers = sum(map(sum, chunk_layers(recipe.model, cut)))
        if layers != recipe.model.num_layers:
            raise InputError(f"{recipe.model.name} has {recipe.model.num_layers} layers, which do not divide over pp {pp} x v {v}")
        spent, transfer, _ = stage_times(recipe, cut)
        return Durations(np.tile(spent, (order.stages // len(spent), 1)), None, transfer)

    blocking = bool(words["blocking"])
    if words["blocking"] is None and name in ("1f1b", "interleaved"):
        blocking = stage_times(recipe, replace(layout, v=chunks(name, words["v"])))[2]
    how = "transfers block the sender, as Megatron-LM's exchange in pairs does" if blocking else "transfers run beside the work"
    said = f"tp {layout.tp}, mbs {layout.mbs}"
    return replace(asked, measured=measured, unit="s", blocking=blocking, assumed=(*recipe.assumed, said, how))
