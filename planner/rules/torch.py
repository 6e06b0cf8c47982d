"""Rules of torchtitan beyond sizes, which its models check when they are made, and of torch's
schedules.

Source: [torchtitan] models/common/decoder.py and models/deepseek_v3/mtp.py of 0.3.0,
update_from_config; torch.distributed.pipelining.schedules of 2.13, Schedule1F1B.
"""

from __future__ import annotations

import numpy as np

from planner.layout import SCHEDULE_CODE, Layout, Layouts, Mask
from planner.rules.rule import Rule, divides, try_knob
from planner.specs.recipe import Recipe
from planner.specs.software_versions import TORCHTITANS


def _splits_kv_heads(recipe: Recipe, layout: Layouts) -> Mask:
    whole: Mask = np.asarray(recipe.model.mla is not None)
    return whole | divides(layout.tp, recipe.model.num_kv_heads)


def _splits_kv_heads_out(recipe: Recipe, layout: Layout) -> str:
    return try_knob("tp", recipe.model.num_kv_heads, layout.tp)


def _ties_in_one_stage(recipe: Recipe, layout: Layouts) -> Mask:
    return ~layout.pipelined | (not recipe.model.tied_embeddings)


def _predicts_in_one_place(recipe: Recipe, layout: Layouts) -> Mask:
    split = layout.pipelined | (np.asarray(layout.cp) > 1)
    return ~split | (not recipe.model.mtp_layers)


def _fills_the_pipeline(recipe: Recipe, layout: Layouts) -> Mask:
    one_by_one = np.asarray(layout.schedule) == SCHEDULE_CODE["1f1b"]
    return ~(layout.pipelined & one_by_one) | (np.asarray(layout.m) >= layout.pp)


def _every_nth(recipe: Recipe, layout: Layouts) -> Mask:
    of_stage = recipe.model.num_layers // np.maximum(layout.pp * layout.v, 1)
    some = np.asarray(layout.recompute_layers) > 0
    older = recipe.versions.torchtitan == TORCHTITANS[0]
    return ~(some & older) | divides(layout.recompute_layers, of_stage)


RULES = (
    Rule(
        "some layers are every n-th",
        _every_nth,
        "torchtitan 0.2 recomputes all layers of a stage or every n-th, but got"
        " {layout.recompute_layers} of them",
        lambda recipe, layout: "try all of them, or --software torchtitan@0.3",
    ),
    Rule(
        "tp divides the key-value heads",
        _splits_kv_heads,
        "torch's tensor parallelism must divide the key-value heads, but got tp={layout.tp} and"
        " {recipe.model.num_kv_heads} heads",
        _splits_kv_heads_out,
    ),
    Rule(
        "tied embeddings take no pipeline",
        _ties_in_one_stage,
        "torchtitan ties no embeddings across pipeline stages, but got pp={layout.pp} and"
        " {recipe.model.name}, whose embeddings are tied",
        lambda recipe, layout: "try pp 1",
    ),
    Rule(
        "predictions of several tokens take no pipeline",
        _predicts_in_one_place,
        "torchtitan's multi-token prediction takes neither a pipeline nor context parallelism, but"
        " got pp={layout.pp} and cp={layout.cp}",
        lambda recipe, layout: "try pp 1 and cp 1, or --set model.mtp_layers=0",
    ),
    Rule(
        "1F1B has a micro-batch a stage",
        _fills_the_pipeline,
        "torch's 1F1B must have as many micro-batches as stages or more, but got m={layout.m} and"
        " pp={layout.pp}",
        lambda recipe, layout: "try a smaller pp, or gpipe",
    ),
)
