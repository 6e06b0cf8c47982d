"""Whether it fits: memory by stage against the GPU, and the cheapest changes that let it fit."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from planner.advice import nearby_layouts
from planner.advice.findings import Finding, Verdict, Way
from planner.advice.flag_names import changed, said
from planner.advice.legality import MAX_WAYS, way
from planner.advice.nearby_layouts import Near
from planner.cost.terms import Estimate
from planner.interpret.interpret import Launch
from planner.units import GIB

MARGINAL = 0.1
LOST = 0.9


def verdict(estimate: Estimate) -> Verdict:
    """By the probability to run out of memory: below 0.1 it fits, above 0.9 it does not."""
    if estimate.host_bytes > estimate.host_limit_bytes or estimate.oom_probability > LOST:
        return "oom"
    return "marginal" if estimate.oom_probability >= MARGINAL else "fits"


def findings(launch: Launch, estimate: Estimate) -> list[Finding]:
    if verdict(estimate) == "fits":
        return []
    offered = [*_cheapest(launch), *_more(launch)]
    listed = "; ".join(f"{said(launch.reading.kind, one.values)} ({one.says})" for one in offered)
    lost = estimate.oom_probability > LOST or estimate.host_bytes > estimate.host_limit_bytes
    gain = _gain(estimate, offered)
    return [
        Finding(
            "error" if lost else "warning",
            "memory fits the GPU",
            f"{_needs(launch, estimate)}" + (f". It would fit with: {listed}" if listed else ""),
            tuple(offered),
            gain,
        )
    ]


def _needs(launch: Launch, estimate: Estimate) -> str:
    """What is needed against what there is, its largest parts, and the stage that needs it."""
    if estimate.host_bytes > estimate.host_limit_bytes:
        return (
            f"offloaded states take {estimate.host_bytes / GIB:,.0f} GiB of a node's memory, which"
            f" has {estimate.host_limit_bytes / GIB:,.0f} GiB"
        )
    parts = {
        f.name.removesuffix("_bytes"): float(getattr(estimate.memory, f.name)) / GIB
        for f in fields(estimate.memory)
    }
    largest = sorted(parts.items(), key=lambda pair: -pair[1])[:4]
    stages = estimate.stages
    at = max(stages, key=lambda one: one.memory_bytes).stage if len(stages) > 1 else None
    where = f" on pipeline rank {at} of {len(stages)}" if at is not None else ""
    return (
        f"{estimate.memory_bytes / GIB:.1f} GiB{where} against"
        f" {estimate.memory_limit_bytes / GIB:.1f} GiB usable of a"
        f" {launch.recipe.hardware.gpu.name}: out of memory with probability"
        f" {estimate.oom_probability:.0%} ("
        + ", ".join(f"{name} {size:.1f} GiB" for name, size in largest)
        + ")"
    )


def _cheapest(launch: Launch) -> list[Way]:
    """Of every kind of change of one knob the fastest that fits; of two knobs where one is not
    enough.
    """
    found = [
        neighbour
        for neighbour in nearby_layouts.around(launch.recipe, launch.layout, 1)
        if neighbour.fits and neighbour.words
    ]
    if not found:
        found = [
            neighbour
            for neighbour in nearby_layouts.around(launch.recipe, launch.layout, 2)
            if neighbour.fits
        ]
    kinds: dict[Any, Near] = {}
    for one in sorted(found, key=lambda one: one.step_s):
        kinds.setdefault(_kind(one), one)
    return [way(launch, neighbour) for neighbour in list(kinds.values())[:MAX_WAYS]]


def _kind(neighbour: Near) -> tuple[tuple[str, int], ...]:
    """Which knobs change; recomputation by granularity, as its costs are far apart."""
    words = {
        word: value for word, value in neighbour.words.items() if not word.startswith("recompute_")
    }
    return tuple(
        sorted((word, value if word == "recompute" else 0) for word, value in words.items())
    )


def _more(launch: Launch) -> list[Way]:
    found = nearby_layouts.more_gpus(launch.recipe, launch.layout)
    if found is None:
        return []
    values = changed(launch, found.words)
    return [
        Way(
            values,
            f"{found.recipe.gpus} GPUs, {found.memory_gib:.1f} GiB each, a step of"
            f" {found.step_s:.3g} s",
            found.step_s,
            found.memory_gib,
        )
    ]


def _gain(estimate: Estimate, offered: list[Way]) -> dict[str, Any] | None:
    if not offered or offered[0].memory_gib is None:
        return None
    return {
        "memory_gib_freed": estimate.memory_bytes / GIB - offered[0].memory_gib,
        "step_s": offered[0].step_s,
    }
