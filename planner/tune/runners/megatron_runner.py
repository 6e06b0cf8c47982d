"""`--runner megatron`: Megatron-LM's own program with the flags and variables that `emit`
writes, on synthetic data; few steps.
"""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Literal

from planner.emit import environment, megatron
from planner.emit.megatron_kinds import entry
from planner.errors import InputError
from planner.layout import Layout
from planner.rules.table import breaches
from planner.specs.recipe import Recipe
from planner.tune.measurement import Measurement
from planner.tune.runners import whole_plan

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
    whole_plan.check(refused(recipe, layout, devices), steps, warmup)
    before = max(warmup, FIRST)
    iterations = ("--train-iters", str(before + steps))  # stated twice: the last one counts
    return {
        "kind": "step",
        "ranks": int(layout.gpus),
        "device": device,
        "steps": steps,
        "warmup": before,
        "layout": layout.named(),
        "flags": [*chain.from_iterable(megatron.flags(recipe, layout)), *iterations],
        "environment": dict(environment.megatron(recipe, layout)),
        "checkout": str(clone(checkout)),
        "entry": entry(recipe),
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
    broken = breaches(recipe, layout)
    return broken[0].message if broken else whole_plan.too_large("megatron", layout, devices)


def measurement(result: dict[str, Any]) -> Measurement:
    """Of the lines that Megatron-LM printed; InputError when they hold no whole step."""
    request = result["request"]
    steps_s: list[float] = []
    losses: list[float] = []
    for step in result["steps"]:
        if step["number"] > request["warmup"]:
            steps_s.append(float(step["step_s"]))
            if step["loss"] is not None:
                losses.append(step["loss"])
    if not steps_s:
        raise InputError(
            f"Megatron-LM must print a line a step beyond the first {request['warmup']},"
            f" but got {len(result['steps'])} lines of steps"
        )
    return Measurement(
        step_s=median(steps_s),
        steps_s=tuple(steps_s),
        memory_bytes=result["memory_bytes"],
        memory_kind=result["memory_kind"],
        losses=tuple(losses),
        device=result["device"],
        versions=result["versions"],
        notes=tuple(request["notes"]),
    )
