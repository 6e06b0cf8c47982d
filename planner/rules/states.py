"""Megatron-LM's rules of weights, gradients and optimizer states: offload, narrow states, torch's
FSDP2.
"""

from __future__ import annotations

import numpy as np

from planner.layout import OFFLOAD_CODE, Layouts, Mask
from planner.rules.rule import Rule
from planner.specs.megatron import sharded_by_torch
from planner.specs.recipe import Recipe
from planner.specs.switches.numbers import states_bytes


def _known(recipe: Recipe, layout: Layouts) -> Mask:
    return ((layout.offload == 0) | (layout.offload == OFFLOAD_CODE["optimizer-cpu"])) & (
        layout.hpz == 1
    )


def _states_known(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.software.states.optimizer_state_bytes == states_bytes(recipe))


def _not_by_torch(recipe: Recipe, layout: Layouts) -> Mask:
    return ~np.asarray(sharded_by_torch(recipe, layout))


RULES = (
    Rule(
        "Megatron offloads the optimizer alone",
        _known,
        "Megatron-LM keeps the optimizer in host memory at most (optimizer-cpu, and no hpz), but"
        " got offload={knobs[offload]}, hpz={layout.hpz}",
        lambda recipe, layout: "try optimizer-cpu, hpz 1, or --framework deepspeed",
    ),
    Rule(
        "offload needs the distributed optimizer",
        lambda recipe, layout: (layout.offload == 0) | (layout.zero == 1),
        "the optimizer goes to host memory under the distributed optimizer (zero 1), but got"
        " zero={layout.zero}",
        lambda recipe, layout: "try zero 1",
    ),
    Rule(
        "Megatron has the optimizer states",
        _states_known,
        "optimizer states must take 12 bytes a parameter, or as few as the switches of the"
        " precision-aware optimizer say, but {recipe.software.name} has"
        " {recipe.software.states.optimizer_state_bytes}",
        lambda recipe, layout: "state the switches exp_avg_dtype and exp_avg_sq_dtype of the stack",
    ),
    Rule(
        "FSDP2 has no pipeline",
        lambda recipe, layout: _not_by_torch(recipe, layout) | (layout.pp == 1),
        "torch's FSDP2 works without a pipeline, but got zero={layout.zero} and pp={layout.pp}",
        lambda recipe, layout: "try pp 1",
    ),
    Rule(
        "FSDP2 splits no experts",
        lambda recipe, layout: _not_by_torch(recipe, layout) | (layout.ep == 1),
        "torch's FSDP2 works without expert parallelism, but got zero={layout.zero} and"
        " ep={layout.ep}",
        lambda recipe, layout: "try ep 1, or stack megatron",
    ),
    Rule(
        "FSDP2 needs untied embeddings",
        lambda recipe, layout: _not_by_torch(recipe, layout) | (not recipe.model.tied_embeddings),
        "torch's FSDP2 needs embedding and head apart, but {recipe.model.name} shares them",
        lambda recipe, layout: "try stack megatron",
    ),
    Rule(
        "FSDP2 has no fp16",
        lambda recipe, layout: _not_by_torch(recipe, layout) | (recipe.precision != "fp16"),
        "torch's FSDP2 under Megatron-LM has no fp16, but got it",
        lambda recipe, layout: "try bf16, or stack megatron",
    ),
)
"""Source of all: [megatron-core] training/arguments.py validate_args,
core/optimizer/optimizer_config.py.
"""
