"""What the torch benchmark is asked, and how its answer becomes a measurement."""

from __future__ import annotations

from statistics import median
from typing import Any, Literal

from planner import estimate
from planner.action import to_csv
from planner.cost import pipeline
from planner.errors import InputError
from planner.layout import SCHEDULES, Layout
from planner.specs.recipe import Recipe
from planner.tune import torch_support
from planner.tune.measurement import Measurement
from planner.tune.runners import compose, proxy

MODULE = "planner.tune.workers.torch_worker"
"""What a child runs."""


def request(
    recipe: Recipe,
    layout: Layout,
    devices: int,
    steps: int,
    warmup: int,
    device: Literal["cpu", "cuda"] = "cpu",
) -> dict[str, Any]:
    """Plain JSON for the worker; `ranks` says how many processes. Raises InputError for what the
    torch benchmark cannot run.

    devices: how many are here; steps, warmup: of the training loop, or passes of each stack of
    layers where the plan is too large.
    """
    if devices < 1 or steps < 1 or warmup < 0:
        raise InputError(
            f"devices and steps must be at least 1, warmup at least 0, but got {devices}, {steps}"
            f" and {warmup}"
        )
    reason = torch_support.refused(recipe, layout, devices)
    if reason:
        raise InputError(reason)
    stand_in = proxy.decide(recipe, layout, devices)
    if stand_in.runs_plan:
        kind, (ranks, order), pieces = "step", _order(recipe, layout), []
    else:
        kind, ranks, order, pieces = "layers", [0], "", proxy.pieces(recipe)
    return {
        "kind": kind,
        "recipe": recipe.model_dump(mode="json"),
        "layout": layout.named(),
        "ranks": stand_in.ranks,
        "share": stand_in.share,
        "device": device,
        "element": torch_support.element(recipe, device),
        "steps": steps,
        "warmup": warmup,
        "seed": 1234,
        "optimizer": "adam",
        "rate": 1e-3,
        "profile": True,
        "rank_of_stage": ranks,
        "order": order,
        "pieces": pieces,
        "recompute": proxy.recomputed(layout),
        "proxy": stand_in.words,
        "notes": list(torch_support.notes(recipe, layout, device)),
    }


def _order(recipe: Recipe, layout: Layout) -> tuple[list[int], str]:
    """Which pipeline rank has which stage, and torch's CSV of an order that none of its own
    schedule classes has.
    """
    if layout.pp == 1:
        return [0] * layout.v, ""
    reason = pipeline.refused(recipe, layout)
    if reason:
        raise InputError(reason)
    seconds, transfer, _ = estimate.stage_times(recipe, layout)
    order = pipeline.order(layout, seconds, transfer)
    name = SCHEDULES[layout.schedule]
    own = name in torch_support.TORCH
    if name == "1f1b":  # whose class wants a micro-batch a stage
        own = layout.m >= layout.pp
    return list(map(int, order.rank_of_stage)), "" if own else to_csv(order)


def measurement(result: dict[str, Any]) -> Measurement:
    """The worker's result as a measurement of the plan; where only layers ran, composed to the
    whole step.
    """
    if result["request"]["kind"] == "layers":
        return compose.composed(result)
    steps_s = tuple(map(float, result["steps_s"]))
    return Measurement(
        step_s=median(steps_s),
        steps_s=steps_s,
        memory_bytes=result["memory_bytes"],
        memory_kind=result["memory_kind"],
        forward_s=result["forward_s"],
        backward_s=result["backward_s"],
        optimizer_s=result["optimizer_s"],
        communication_s=result["communication_s"],
        stages=tuple(result["stages"]),
        losses=tuple(result["losses"]),
        device=result["device"],
        versions=result["versions"],
        notes=tuple(result["request"]["notes"]),
    )
