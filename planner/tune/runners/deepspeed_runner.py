"""`--runner deepspeed`: a real DeepSpeed engine on the synthetic model that `emit` writes, with the
configuration that `emit` writes.
"""

from __future__ import annotations

from typing import Any, Literal

from planner.emit import deepspeed, deepspeed_config
from planner.layout import Layout
from planner.rules.table import breaches
from planner.specs.deepspeed import in_megatron
from planner.specs.recipe import Recipe
from planner.tune.runners import whole_plan
from planner.tune.runners.torch_runner import measurement as measurement

MODULE = "planner.tune.workers.deepspeed_worker"
"""What a child runs."""


def request(
    recipe: Recipe,
    layout: Layout,
    devices: int,
    steps: int,
    warmup: int,
    device: Literal["cpu", "cuda"] = "cpu",
) -> dict[str, Any]:
    """Plain JSON for the worker; `ranks` says how many processes. Raises InputError for a plan that
    is not DeepSpeed's own to run, that breaks one of its rules, or that needs more devices than are
    here."""
    whole_plan.check(refused(recipe, layout, devices), steps, warmup)
    flags = [*deepspeed.model_flags(recipe), *deepspeed.run_flags(recipe, layout)]
    return {
        "kind": "step",
        "ranks": int(layout.gpus),
        "device": device,
        "steps": steps,
        "warmup": warmup,
        "seed": 1234,
        "layout": layout.named(),
        "flags": [word for flag in flags for word in flag],
        "config": deepspeed_config.config(recipe, layout),
        "notes": notes(device),
    }


def refused(recipe: Recipe, layout: Layout, devices: int) -> str:
    """Why the engine does not run a plan here, with the nearest way out; empty when it does."""
    if recipe.framework != "deepspeed":
        return (
            "--runner deepspeed measures plans of DeepSpeed, but this one is for"
            f" {recipe.framework}; use --runner torch or {recipe.framework}"
        )
    broken = breaches(recipe, layout)
    if broken:
        return broken[0].message
    if in_megatron(recipe, layout):
        return (
            f"--runner deepspeed runs DeepSpeed's engine alone, but tp={layout.tp} with"
            f" pp={layout.pp} is run by Megatron-DeepSpeed; use --runner torch, or a layout with tp"
            " 1 or pp 1"
        )
    missing = deepspeed.missing_features(recipe.model)
    if missing and layout.gpus <= devices:
        return (
            f"DeepSpeed's benchmark must build the model, but {recipe.model.name} has"
            f" {', '.join(missing)}"
        )
    return whole_plan.too_large("deepspeed", layout, devices)


def notes(device: Literal["cpu", "cuda"]) -> list[str]:
    """In what the benchmark differs from the plan."""
    if device == "cpu":
        return ["torch's Adam, uncompiled, and gloo in place of DeepSpeed's own kernels"]
    return []
