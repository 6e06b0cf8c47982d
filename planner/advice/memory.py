"""Whether it fits: memory by stage against the GPU, and the cheapest changes that let it fit."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from planner import switch_gains
from planner.advice import nearby_layouts
from planner.advice.findings import Finding, Severity, Verdict, Way
from planner.advice.flag_names import changed, flag_line, switch_words
from planner.advice.legality import MAX_WAYS, way_to
from planner.advice.nearby_layouts import Near
from planner.cost.terms import Estimate
from planner.interpret.interpret import Launch
from planner.units import GIB

MIN_MARGINAL_PROBABILITY = 0.1
"""To run out of memory: a launch is marginal from here on."""
MAX_OOM_PROBABILITY = 0.9
"""Above it a launch does not fit."""


def verdict(estimate: Estimate) -> Verdict:
    """By the probability to run out of memory: below 0.1 it fits, above 0.9 it does not."""
    if (
        estimate.host_bytes > estimate.host_limit_bytes
        or estimate.oom_probability > MAX_OOM_PROBABILITY
    ):
        return "oom"
    return "marginal" if estimate.oom_probability >= MIN_MARGINAL_PROBABILITY else "fits"


def findings(launch: Launch, estimate: Estimate, more_bytes: float = 0.0) -> list[Finding]:
    """more_bytes: what was measured beyond the prediction, which a way out must free too."""
    judged = verdict(estimate)
    if judged == "fits":
        return []
    offered = [*_cheapest(launch), *_switches(launch), *_more(launch)]
    if more_bytes:
        most = float(estimate.memory_bytes - 2 * more_bytes) / GIB
        offered = [way for way in offered if way.memory_gib is not None and way.memory_gib <= most]
    message = _needs(launch, estimate)
    gain = None
    if offered:
        kind = launch.reading.kind
        listed = "; ".join(f"{flag_line(kind, way.values)} ({way.says})" for way in offered)
        message += f". It would fit with: {listed}"
        freed = offered[0].memory_gib
        if freed is not None:
            gain = {
                "memory_gib_freed": estimate.memory_bytes / GIB - freed,
                "step_s": offered[0].step_s,
            }
    severity: Severity = "error" if judged == "oom" else "warning"
    return [Finding(severity, "memory fits the GPU", message, tuple(offered), gain)]


def _needs(launch: Launch, estimate: Estimate) -> str:
    """What is needed against what there is, its largest parts, and the stage that needs it."""
    if estimate.host_bytes > estimate.host_limit_bytes:
        return (
            f"what is offloaded takes {estimate.host_bytes / GIB:,.0f} GiB of a node's memory,"
            f" which has {estimate.host_limit_bytes / GIB:,.0f} GiB"
        )
    parts = [(f.name, float(getattr(estimate.memory, f.name))) for f in fields(estimate.memory)]
    largest = sorted(parts, key=lambda part: -part[1])[:4]
    listed = [f"{name.removesuffix('_bytes')} {size / GIB:.1f} GiB" for name, size in largest]
    stages = estimate.stages
    where = ""
    if len(stages) > 1:
        fullest = max(stages, key=lambda stage: stage.memory_bytes)
        where = f" on pipeline rank {fullest.stage} of {len(stages)}"
    return (
        f"{estimate.memory_bytes / GIB:.1f} GiB{where} against"
        f" {estimate.memory_limit_bytes / GIB:.1f} GiB usable of a"
        f" {launch.recipe.hardware.gpu.name}: out of memory with probability"
        f" {estimate.oom_probability:.0%} ({', '.join(listed)})"
    )


def _cheapest(launch: Launch) -> list[Way]:
    """Of every kind of change of one knob the fastest that fits; of two knobs where one is not
    enough.
    """
    for depth in (1, 2):
        neighbours = nearby_layouts.around(launch.recipe, launch.layout, depth)
        kinds: dict[Any, Near] = {}
        for neighbour in sorted(neighbours, key=lambda neighbour: neighbour.step_s):
            if neighbour.fits and neighbour.words:
                kinds.setdefault(_kind(neighbour), neighbour)
        if kinds:
            break
    ways = [way_to(launch, neighbour) for neighbour in kinds.values()]
    return [way for way in ways if way.values][:MAX_WAYS]


def _kind(neighbour: Near) -> tuple[tuple[str, int], ...]:
    """Which knobs change; recomputation by granularity, as its costs are far apart."""
    kind = {word: 0 for word in neighbour.words if not word.startswith("recompute_")}
    if "recompute" in kind:
        kind["recompute"] = neighbour.words["recompute"]
    return tuple(sorted(kind.items()))


def _switches(launch: Launch) -> list[Way]:
    """Switches that keep the numbers and let it fit, the fastest first."""
    gains = switch_gains.other_values(launch.recipe, launch.layout)
    ways = []
    for gain in sorted(gains, key=lambda gain: gain.step_s):
        words = switch_words(launch, gain.settings)
        if words and gain.keeps_arithmetic and gain.saved_gib >= switch_gains.PAYS_GIB:
            says = f"a step of {gain.step_s:.3g} s, {gain.saved_gib:.1f} GiB less{gain.doubt}"
            ways.append(Way(words, says, gain.step_s))
    return ways[:MAX_WAYS]


def _more(launch: Launch) -> list[Way]:
    larger = nearby_layouts.more_gpus(launch.recipe, launch.layout)
    if larger is None:
        return []
    says = (
        f"{larger.recipe.gpus} GPUs, {larger.memory_gib:.1f} GiB each, a step of"
        f" {larger.step_s:.3g} s"
    )
    return [Way(changed(launch, larger.words), says, larger.step_s, larger.memory_gib)]
