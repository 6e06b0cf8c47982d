"""Where the time goes, the three changes that gain most, and what the best plan for the same
question would give.
"""

from __future__ import annotations

from typing import Any

from planner.advice import nearby_layouts
from planner.advice.findings import Best, Finding, Way
from planner.advice.flag_names import changed, said
from planner.advice.legality import way
from planner.cost.terms import Estimate
from planner.estimate import closed_form, estimate
from planner.interpret.interpret import Launch
from planner.layout import Layout
from planner.reasons import describe, limit
from planner.search import fitting

PAYS = 0.01
"""Of a step: a smaller gain is none, given the model's error."""
TOP = 3
LOST = 0.9
"""Above this probability to run out of memory what does not fit either is no advice."""
STARVED = 0.2
SWITCHES: dict[str, dict[str, dict[str, Any]]] = {
    "overlap_grad_reduce": {"stack": {"grad_overlap_share": 1.0}},
    "overlap_param_gather": {"stack": {"grad_overlap_share": 1.0, "param_overlap_share": 1.0}},
    "tp_comm_overlap": {"stack": {"tp_overlap_share": 0.7, "tp_grad_overlap_share": 1.0}},
}
"""Megatron's switches that change no layout: what they change of the stack."""


def findings(launch: Launch, now: Estimate) -> list[Finding]:
    """The bottleneck, then the changes that gain most, one of a kind."""
    base = float(closed_form(launch.recipe, launch.layout).step_s)
    offered = sorted(
        [*_switches(launch, base), *_layouts(launch, base, now)], key=lambda pair: pair[0]
    )[:TOP]
    told = [_gain(launch, base, step_s, one) for step_s, one in offered]
    return [_bottleneck(now), *_bubble(launch, now), *told]


def best(launch: Launch, now: Estimate | None) -> Best | None:
    """The best layout of all for the same model, GPUs and batch; None where none fits, or none is
    better than what is stated.
    """
    found = fitting(launch.recipe, launch.recipe.gpus)
    if found is None:
        return None
    layout, said_of = found
    told = estimate(launch.recipe, layout, exact=True)
    better = now is None or not now.fits or told.step_s < now.step_s * (1 - PAYS)
    return Best(layout, told if told.fits else said_of) if better else None


def best_finding(launch: Launch, found: Best | None, now: Estimate | None) -> list[Finding]:
    if found is None:
        return []
    words = _difference(launch.layout, found.layout)
    won = 1 - found.estimate.step_s / now.step_s if now and now.fits else 0.0
    gained = f", {won:.0%} less than now" if won > 0 else ""
    text = (
        f"the best plan for the same question is {describe(found.layout)}: a step of"
        f" {found.estimate.step_s:.3g} s{gained}"
    )
    return [Finding("hint", "best plan", text, (way_of(launch, words),))]


def way_of(launch: Launch, words: dict[str, Any]) -> Way:
    return Way(changed(launch, words))


def _difference(one: Layout, other: Layout) -> dict[str, Any]:
    words = (
        "tp",
        "pp",
        "cp",
        "ep",
        "etp",
        "v",
        "mbs",
        "zero",
        "recompute",
        "recompute_modules",
        "recompute_layers",
        "offload",
        "account_for_embedding",
        "account_for_loss",
        "first_layers",
        "last_layers",
        "sp",
    )
    alone = ("zero",) if other.dp * other.cp == 1 and other.zero < 2 else ()
    differ = {
        word: getattr(other, word)
        for word in words
        if getattr(one, word) != getattr(other, word) and word not in alone
    }
    if any(word.startswith("recompute") for word in differ):
        differ |= {
            word: getattr(other, word)
            for word in ("recompute", "recompute_modules", "recompute_layers")
        }
    return differ


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
    return [
        Finding(
            "warning",
            "more micro-batches",
            text,
            (Way(changed(launch, {"gbs": wanted}), "more micro-batches"),),
        )
    ]


def _layouts(launch: Launch, base: float, now: Estimate) -> list[tuple[float, Way]]:
    """The fastest of each kind of change that fits at least as surely as now; of equally fast ones
    that with fewest changes.
    """
    least = now.oom_probability if now.oom_probability < LOST else 0.0
    found = [
        neighbour
        for neighbour in nearby_layouts.around(launch.recipe, launch.layout, 1)
        if neighbour.words and (neighbour.fits or neighbour.oom_probability <= least)
    ]
    kinds: dict[str, tuple[float, Way]] = {}
    for one in sorted(found, key=lambda one: one.step_s):
        if one.step_s < base * (1 - PAYS):
            kinds.setdefault(next(iter(one.words)), (one.step_s, way(launch, one)))
    return list(kinds.values())


def _switches(launch: Launch, base: float) -> list[tuple[float, Way]]:
    if launch.recipe.framework != "megatron" or launch.recipe.stack.name != "megatron":
        return []
    out = []
    for flag, changes in SWITCHES.items():
        if (
            launch.plain.get(flag)
            or (flag == "tp_comm_overlap" and not launch.layout.sp)
            or (flag == "overlap_param_gather" and not launch.layout.zero)
        ):
            continue
        other = launch.recipe.model_copy(
            update={"stack": launch.recipe.stack.model_copy(update=changes["stack"])}
        )
        step_s = float(closed_form(other, launch.layout).step_s)
        if step_s < base * (1 - PAYS):
            needs = {"overlap_grad_reduce": True} if flag == "overlap_param_gather" else {}
            out.append((step_s, Way({**needs, flag: True}, f"a step of {step_s:.3g} s", step_s)))
    return out


def _gain(launch: Launch, base: float, step_s: float, one: Way) -> Finding:
    text = (
        f"{said(launch.reading.kind, one.values)} saves {base - step_s:.3g} s of a step"
        f" ({1 - step_s / base:.0%}): {one.says}"
    )
    return Finding(
        "hint", "faster", text, (one,), {"step_s_saved": base - step_s, "share": 1 - step_s / base}
    )
