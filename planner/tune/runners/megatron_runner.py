"""`--runner megatron`: Megatron-LM's own pretrain_gpt.py with the flags and variables that `emit`
writes, on synthetic data; few steps.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from typing import Any, Literal

from planner.emit import environment, megatron
from planner.errors import InputError
from planner.layout import Layout
from planner.rules.table import breaches
from planner.specs.recipe import Recipe
from planner.tune.measurement import Measurement

MODULE = "planner.tune.workers.megatron_worker"
"""What a child runs."""
ENTRY = "pretrain_gpt.py"
FIRST = 2
"""Steps that are always left out: the first builds and compiles, and its line counts the start-up
of the program.
"""


def request(
    recipe: Recipe,
    layout: Layout,
    devices: int,
    steps: int,
    warmup: int,
    device: Literal["cpu", "cuda"] = "cuda",
    checkout: str | Path | None = None,
) -> dict[str, Any]:
    """Plain JSON for the worker; `ranks` says how many processes.

    checkout: a clone of Megatron-LM, else MEGATRON_PATH, the variable of the launch files. Raises
    InputError without one, for a plan of another framework, one that breaks a rule, and one that
    needs more devices than are here.
    """
    if why := refused(recipe, layout, devices):
        raise InputError(why)
    if steps < 1 or warmup < 0:
        raise InputError(
            f"steps must be at least 1 and warmup at least 0, but got {steps} and {warmup}"
        )
    before = max(warmup, FIRST)
    flags = [
        *megatron.flags(recipe, layout),
        ("--train-iters", str(before + steps)),
    ]  # repeated, the last one counts
    return {
        "kind": "step",
        "ranks": int(layout.gpus),
        "device": device,
        "steps": steps,
        "warmup": before,
        "layout": layout.named(),
        "flags": [word for flag in flags for word in flag],
        "environment": dict(environment.megatron(recipe, layout)),
        "checkout": str(clone(checkout)),
        "notes": ["synthetic data"],
    }


def clone(checkout: str | Path | None) -> Path:
    """The folder that holds pretrain_gpt.py; InputError when there is none."""
    path = checkout or os.environ.get("MEGATRON_PATH")
    if not path:
        raise InputError(
            "--runner megatron must know a clone of Megatron-LM, but none is stated; give"
            " --megatron-path DIR"
        )
    folder = Path(path).expanduser().resolve()
    if not (folder / ENTRY).is_file():
        raise InputError(
            f"--megatron-path must be a clone of Megatron-LM, but {folder} has no {ENTRY}"
        )
    return folder


def refused(recipe: Recipe, layout: Layout, devices: int) -> str:
    """Why Megatron-LM does not run a plan here, with the nearest way out; empty when it does."""
    if recipe.framework != "megatron":
        return (
            "--runner megatron measures plans of Megatron-LM, but this one is for"
            f" {recipe.framework}; use --runner torch"
        )
    if broken := breaches(recipe, layout):
        return broken[0].message
    if layout.gpus > devices:
        return (
            f"--runner megatron runs the whole plan, which needs {layout.gpus} devices, but"
            f" {devices} are here; use --runner torch, which measures the parts that fit"
        )
    return ""


def measurement(result: dict[str, Any]) -> Measurement:
    """Of the lines that Megatron-LM printed; InputError when they hold no whole step."""
    kept = [step for step in result["steps"] if step["number"] > result["request"]["warmup"]]
    if not kept:
        got = f"{len(result['steps'])} lines of steps"
        raise InputError(
            f"Megatron-LM must print a line a step beyond the first {result['request']['warmup']},"
            f" but got {got}"
        )
    steps_s = [float(step["step_s"]) for step in kept]
    return Measurement(
        step_s=median(steps_s),
        steps_s=tuple(steps_s),
        memory_bytes=result["memory_bytes"],
        memory_kind=result["memory_kind"],
        losses=tuple(step["loss"] for step in kept if step["loss"] is not None),
        device=result["device"],
        versions=result["versions"],
        notes=tuple(result["request"]["notes"]),
    )
