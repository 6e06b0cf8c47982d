"""Where the time goes, the three changes that gain most, and what the best plan for the same
question would give.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner import switch_gains
from planner.advice import nearby_layouts
from planner.advice.findings import Best, Finding, Way
from planner.advice.flag_names import changed, flag_line, switch_words
from planner.advice.legality import way_to
from planner.advice.memory import MAX_OOM_PROBABILITY
from planner.cost.terms import Estimate
from planner.estimate import closed_form
from planner.interpret.interpret import Launch
from planner.layout import Layout
from planner.reasons import describe, limit
from planner.search import best_plan

PAYS = 0.01
"""Of a step: a smaller gain is none, given the model's error."""
TOP = 3
STARVED = 0.2


def findings(launch: Launch, now: Estimate) -> list[Finding]:
    """The bottleneck, then the changes that gain most, one of a kind."""
    base = float(now.step_s)
    offered = [*_switches(launch, base), *_layouts(launch, now)]
    sayable = [pair for pair in offered if pair[1].values]
    offered = sorted(sayable, key=lambda pair: pair[0])[:TOP]
    gains = [_gain(launch, base, step_s, way) for step_s, way in offered]
    return [_bottleneck(now), *_bubble(launch, now), *gains]


def best(launch: Launch, now: Estimate | None) -> Best | None:
    """The best layout of all for the same model, GPUs and batch; None where none fits, or none is
    better than what is stated.
    """
    plan = best_plan(launch.recipe)
    if plan is None:
        return None
    better = now is None or not now.fits or plan.estimate.step_s < now.step_s * (1 - PAYS)
    return Best(plan.layout, plan.estimate) if better else None


def best_finding(launch: Launch, plan: Best | None, now: Estimate | None) -> list[Finding]:
    if plan is None:
        return []
    text = (
        f"the best plan for the same question is {describe(plan.layout)}: a step of"
        f" {plan.estimate.step_s:.3g} s"
    )
    if now and now.fits and plan.estimate.step_s < now.step_s:
        text += f", {1 - plan.estimate.step_s / now.step_s:.0%} less than now"
    words = _difference(launch.layout, plan.layout)
    return [Finding("hint", "best plan", text, (Way(changed(launch, words)),))]


RECOMPUTE = ("recompute", "recompute_modules", "recompute_layers")


WORDS = (
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "v",
    "mbs",
    "zero",
    *RECOMPUTE,
    "offload",
    "account_for_embedding",
    "account_for_loss",
    "first_layers",
    "last_layers",
    "sp",
)


def _difference(layout: Layout, other: Layout) -> dict[str, Any]:
    differ = [word for word in WORDS if getattr(layout, word) != getattr(other, word)]
    if "zero" in differ and other.dp * other.cp == 1 and other.zero < 2:
        differ.remove("zero")  # of one rank there is nothing to shard
    if any(word in RECOMPUTE for word in differ):
        differ += RECOMPUTE
    return {word: getattr(other, word) for word in differ}


def _bottleneck(now: Estimate) -> Finding:
    text = (
        f"a step takes {now.step_s:.3g} s (80% of such runs: {now.step_s_low:.3g} to"
        f" {now.step_s_high:.3g} s), {now.tokens_per_s_per_gpu:,.0f} tokens/s and"
        f" {now.model_tflops_per_gpu:.0f} TFLOP/s a GPU, {now.mfu:.1%} MFU; beyond the model's own"
        f" products the most goes to {limit(now)}"
    )
    return Finding("hint", "bottleneck", text)


def _bubble(launch: Launch, now: Estimate) -> list[Finding]:
    """What only the batch can change."""
    layout = launch.layout
    if layout.pp == 1 or now.bubble_share < STARVED:
        return []
    wanted = layout.dp * layout.mbs * layout.pp * (8 if layout.v == 1 else 4)
    formula = (layout.pp - 1) / (layout.v * layout.m + layout.pp - 1)
    text = (
        f"the pipeline idles {now.bubble_share:.0%} of the time: {layout.m} micro-batches for"
        f" {layout.pp} stages, (p-1)/(v m + p-1) = {formula:.1%}, at best {1 - formula:.1%} busy;"
        f" more micro-batches shrink it, so a larger global batch (such as {wanted}) or fewer"
        " stages"
    )
    ways = (Way(changed(launch, {"gbs": wanted}), "more micro-batches"),)
    return [Finding("warning", "more micro-batches", text, ways)]


def _layouts(launch: Launch, now: Estimate) -> list[tuple[float, Way]]:
    """The fastest of each kind of change that fits at least as surely as now; of equally fast ones
    that with fewest changes.
    """
    allowed = now.oom_probability if now.oom_probability < MAX_OOM_PROBABILITY else 0.0
    kinds: dict[str, tuple[float, Way]] = {}
    # closed forms, in proportion to the simulated step
    scale = float(now.step_s) / float(closed_form(launch.recipe, launch.layout).step_s)
    neighbours = nearby_layouts.around(launch.recipe, launch.layout, 1)
    for closed in sorted(neighbours, key=lambda near: near.step_s):
        near = replace(closed, step_s=closed.step_s * scale)
        fits = near.fits or near.oom_probability <= allowed
        if near.words and fits and near.step_s < now.step_s * (1 - PAYS):
            kinds.setdefault(next(iter(near.words)), (near.step_s, way_to(launch, near)))
    return list(kinds.values())


def _switches(launch: Launch, base: float) -> list[tuple[float, Way]]:
    """Of each switch the value that keeps the arithmetic and saves most, where it pays."""
    best: dict[str, tuple[float, Way]] = {}
    gains = switch_gains.other_values(launch.recipe, launch.layout, step_s=base)
    for gain in sorted(gains, key=lambda gain: gain.step_s):
        if not gain.keeps_arithmetic or gain.saved_s < base * PAYS or gain.name in best:
            continue
        words = switch_words(launch, gain.settings)
        if words:
            way = Way(words, f"a step of {gain.step_s:.3g} s{gain.doubt}", gain.step_s)
            best[gain.name] = (gain.step_s, way)
    return list(best.values())


def _gain(launch: Launch, base: float, step_s: float, way: Way) -> Finding:
    text = (
        f"{flag_line(launch.reading.kind, way.values)} saves {base - step_s:.3g} s of a step"
        f" ({1 - step_s / base:.0%}): {way.says}"
    )
    return Finding(
        "hint", "faster", text, (way,), {"step_s_saved": base - step_s, "share": 1 - step_s / base}
    )
