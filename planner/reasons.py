"""Why a plan: what limits it, what it wins over the next, in sentences with their figures."""

from __future__ import annotations

from dataclasses import fields

from planner.cost.terms import Estimate, StepTime
from planner.layout import OFFLOADS, RECOMPUTE, Layout
from planner.specs.recipe import Recipe
from planner.units import GIB

TERMS = StepTime.texts()
"""Each term of StepTime in words."""
STARVED = 0.2
"""A bubble above this share is worth a word about the batch."""
_USEFUL = ("gemm_s", "attention_s")


def _terms(time: StepTime) -> dict[str, float]:
    return {field.name: float(getattr(time, field.name)) for field in fields(time)}


def limit(best: Estimate) -> str:
    """What costs most beside the model's own matrix products and attention."""
    terms = _terms(best.time)
    for name in _USEFUL:
        del terms[name]
    name = max(terms, key=terms.__getitem__)
    return f"{TERMS[name]}: {terms[name] / float(best.step_s):.0%} of the step"


def why(recipe: Recipe, plans: list[tuple[Layout, Estimate]]) -> tuple[str, ...]:
    """Sentences about the first plan, beside the next."""
    layout, estimate = plans[0]
    peak = "bf16"
    if recipe.precision == "fp16" or peak not in recipe.hardware.gpu.peak_tflops:
        peak = "fp16"
    sentences = [
        (
            f"{estimate.mfu:.1%} of the {peak} peak by the causal count; beyond matrix products and"
            f" attention the most goes to {limit(estimate)}"
        ),
        _memory(layout, estimate),
    ]
    if layout.pp > 1:
        sentences.append(_pipeline(layout, estimate))
        if estimate.bubble_share >= STARVED:
            sentences.append(
                f"the batch leaves each pipeline only {layout.m} micro-batches; a larger"
                " --global-batch-size shrinks the bubble"
            )
    if recipe.framework == "deepspeed" and layout.pp > 1:
        sentences.append("DeepSpeed's pipeline is plain 1F1B: there is no interleaving, so v is 1")
    if estimate.host_bytes:
        sentences.append(_host(layout, estimate))
    if len(plans) > 1:
        sentences.append(_ahead(plans[0], plans[1]))
    return tuple(sentences)


def _memory(layout: Layout, estimate: Estimate) -> str:
    used, limit_gib = estimate.memory_bytes / GIB, estimate.memory_limit_bytes / GIB
    return (
        f"{used:.1f} of {limit_gib:.1f} GiB on the fullest stage,"
        f" {estimate.oom_probability:.0%} chance to run out;"
        f" recomputation {RECOMPUTE[layout.recompute]}"
    )


def _host(layout: Layout, estimate: Estimate) -> str:
    """What is in host memory, and what that costs."""
    what = OFFLOADS[layout.offload] if layout.offload else "of activations"
    used, limit_gib = estimate.host_bytes / GIB, estimate.host_limit_bytes / GIB
    return (
        f"offload {what}: {used:,.0f} of {limit_gib:,.0f} GiB of each node's memory,"
        f" {estimate.time.offload_s:.2f} s a step"
    )


def _pipeline(layout: Layout, estimate: Estimate) -> str:
    share = (layout.pp - 1) / (layout.v * layout.m + layout.pp - 1)
    return (
        f"pp {layout.pp}, v {layout.v}, m {layout.m}: bubble {estimate.bubble_share:.1%} of the"
        f" pipeline's time ((p-1)/(v m + p-1) = {share:.1%} with equal stages)"
    )


def _differences(first: Estimate, second: Estimate) -> list[tuple[str, float]]:
    """Seconds by which each term of the second is longer, the largest first."""
    before, after = _terms(first.time), _terms(second.time)
    differences = [(name, after[name] - before[name]) for name in before]
    return sorted(differences, key=lambda difference: -difference[1])


def describe(layout: Layout) -> str:
    """The knobs that tell layouts apart."""
    words = f"tp {layout.tp} pp {layout.pp} dp {layout.dp}"
    if layout.cp > 1:
        words += f" cp {layout.cp}"
    if layout.v > 1:
        words += f" v {layout.v}"
    words += f" mbs {layout.mbs}"
    if layout.zero > 1 or layout.offload:
        words += f" zero {zero(layout)}"
    if RECOMPUTE[layout.recompute] != "none":
        words += f" {RECOMPUTE[layout.recompute]} recompute"
        if layout.recompute_layers:
            words += f" ({layout.recompute_layers} layer{'s' * (layout.recompute_layers > 1)})"
    return words


def zero(layout: Layout) -> str:
    """The sharding stage with what DeepSpeed adds to it: `3 params-cpu`, `3 hpz 8`."""
    words = f"{layout.zero}"
    if layout.offload:
        words += f" {OFFLOADS[layout.offload]}"
    if layout.hpz > 1:
        words += f" hpz {layout.hpz}"
    return words


def _ahead(best: tuple[Layout, Estimate], second: tuple[Layout, Estimate]) -> str:
    gap = float(second[1].step_s / best[1].step_s - 1)
    if gap < 0:
        return (
            f"{-gap:.1%} behind the fastest ({describe(second[0])}), less than the model can tell:"
            " this one is simpler"
        )
    saved = []
    for name, seconds in _differences(best[1], second[1])[:2]:
        if seconds > 0.001 * best[1].step_s:
            saved.append(f"{seconds * 1e3:,.0f} ms less in {TERMS[name]}")
    reason = " and ".join(saved) or "less memory at the same speed"
    return f"{gap:.1%} faster than the next ({describe(second[0])}): {reason}"


def behind(best: Estimate, other: Estimate) -> str:
    """How much slower than the best, and through which term most."""
    gap = float(other.step_s / best.step_s - 1)
    if gap < 0:
        return f"{-gap:.1%} faster than the best, less than the model can tell"
    name, seconds = _differences(best, other)[0]
    costs = "the same terms"
    if seconds > 0:
        costs = f"{seconds * 1e3:,.0f} ms more in {TERMS[name]}"
    return f"{gap:.1%} slower than the best: {costs}"
