"""Why a plan: what limits it, what it wins over the next, in sentences with their figures."""

from __future__ import annotations

from dataclasses import fields

from planner.cost.terms import Estimate, StepTime
from planner.layout import OFFLOADS, RECOMPUTE, Layout
from planner.specs.recipe import Recipe
from planner.units import GIB

TERMS = StepTime.texts()
"""Each term of StepTime in words."""
Ladder = tuple[tuple[int, float, bool], ...]
"""(v, seconds of the step, whether it fits), v rising."""
PAYS = 0.002
"""A gain smaller than this is none."""
STARVED = 0.2
"""A bubble above this share is worth a word about the batch."""
_USEFUL = ("gemm_s", "attention_s")


def _terms(time: StepTime) -> dict[str, float]:
    return {f.name: float(getattr(time, f.name)) for f in fields(time)}


def limit(best: Estimate) -> str:
    """What costs most beside the model's own matrix products and attention."""
    lost = {name: s for name, s in _terms(best.time).items() if name not in _USEFUL}
    name = max(lost, key=lambda n: lost[n])
    return f"{TERMS[name]}: {lost[name] / float(best.step_s):.0%} of the step"


def why(
    recipe: Recipe, plans: list[tuple[Layout, Estimate]], rank: int, ladder: Ladder = ()
) -> tuple[str, ...]:
    """Sentences about the plan of this rank (0 = best)."""
    layout, said = plans[rank]
    if rank:
        return (_behind(plans[0], plans[rank]),)
    peak = (
        "bf16"
        if recipe.precision != "fp16" and "bf16" in recipe.hardware.gpu.peak_tflops
        else "fp16"
    )
    sentences = [
        (
            f"{said.mfu:.1%} of the {peak} peak by the causal count; beyond matrix products and"
            f" attention the most goes to {limit(said)}"
        ),
        _memory(layout, said),
    ]
    if layout.pp > 1:
        sentences += [_pipeline(layout, said), *_starved(layout, said)]
    sentences += _deepspeed(recipe, layout, said)
    if len(ladder) > 1:
        sentences.append(_virtual(ladder))
    if len(plans) > 1:
        sentences.append(_ahead(plans[0], plans[1]))
    return tuple(sentences)


def _memory(layout: Layout, said: Estimate) -> str:
    held, limit_gib = said.memory_bytes / GIB, said.memory_limit_bytes / GIB
    return (
        f"{held:.1f} of {limit_gib:.1f} GiB on the fullest stage, {said.oom_probability:.0%} chance"
        f" to run out; recomputation {RECOMPUTE[layout.recompute]}"
    )


def _deepspeed(recipe: Recipe, layout: Layout, said: Estimate) -> list[str]:
    """What is the framework's own: no virtual stages, states on the host."""
    if recipe.framework != "deepspeed":
        return []
    out = ["DeepSpeed's pipeline is plain 1F1B: there is no interleaving, so v is 1"] * (
        layout.pp > 1
    )
    if layout.offload:
        held, most = said.host_bytes / GIB, said.host_limit_bytes / GIB
        memory = f"{held:,.0f} of {most:,.0f} GiB of each node's memory"
        out.append(
            f"offload {OFFLOADS[layout.offload]}: {memory}, {said.time.offload_s:.2f} s a step"
        )
    return out


def _pipeline(layout: Layout, said: Estimate) -> str:
    share = (layout.pp - 1) / (layout.v * layout.m + layout.pp - 1)
    return (
        f"pp {layout.pp}, v {layout.v}, m {layout.m}: bubble {said.bubble_share:.1%} of the"
        f" pipeline's time ((p-1)/(v m + p-1) = {share:.1%} with equal stages)"
    )


def _starved(layout: Layout, said: Estimate) -> list[str]:
    """What only the asker can change: the batch decides how many micro-batches fill the
    pipeline.
    """
    if said.bubble_share < STARVED:
        return []
    return [
        f"the batch leaves each pipeline only {layout.m} micro-batches; a larger"
        " --global-batch-size shrinks the bubble"
    ]


def _virtual(ladder: Ladder) -> str:
    """Where raising v stops paying: the first v that fits and that no larger one beats by more than
    PAYS.
    """
    fastest = min(
        (seconds for _, seconds, fits in ladder if fits),
        default=min(seconds for _, seconds, _ in ladder),
    )
    enough = next(
        v
        for v, seconds, fits in ladder
        if seconds <= fastest * (1 + PAYS) and (fits or not any(one[2] for one in ladder))
    )
    steps = ", ".join(
        f"v {v} {seconds:.4g} s{'' if fits else ' but does not fit'}" for v, seconds, fits in ladder
    )
    beyond = (
        f"raising v beyond {enough} does not pay"
        if enough < ladder[-1][0]
        else f"v pays up to {enough}"
    )
    return f"{beyond} on this network (pipeline simulated: {steps})"


def _differences(one: Estimate, other: Estimate) -> list[tuple[str, float]]:
    a, b = _terms(one.time), _terms(other.time)
    return sorted(((name, b[name] - a[name]) for name in a), key=lambda pair: -pair[1])


def describe(layout: Layout) -> str:
    """The knobs that tell layouts apart."""
    more = f" v {layout.v}" if layout.v > 1 else ""
    kind = RECOMPUTE[layout.recompute]
    part = (
        f" ({layout.recompute_layers} layer{'s' * (layout.recompute_layers > 1)})"
        if layout.recompute_layers
        else ""
    )
    again = "" if kind == "none" else f" {kind} recompute{part}"
    cp = f" cp {layout.cp}" if layout.cp > 1 else ""
    return (
        f"tp {layout.tp} pp {layout.pp} dp {layout.dp}{cp}{more} mbs"
        f" {layout.mbs}{sharded(layout)}{again}"
    )


def sharded(layout: Layout) -> str:
    """Sharding beyond the optimizer's, in words: ` zero 3 params-cpu`; empty where there is
    none.
    """
    away = f" {OFFLOADS[layout.offload]}" if layout.offload else ""
    copies = f" hpz {layout.hpz}" if layout.hpz > 1 else ""
    return f" zero {layout.zero}{away}{copies}" if layout.zero > 1 or away else ""


def _ahead(best: tuple[Layout, Estimate], second: tuple[Layout, Estimate]) -> str:
    gap = float(second[1].step_s / best[1].step_s - 1)
    won = [(name, s) for name, s in _differences(best[1], second[1]) if s > 0.001 * best[1].step_s][
        :2
    ]
    saved = (
        " and ".join(f"{s * 1e3:,.0f} ms less in {TERMS[name]}" for name, s in won)
        or "less memory at the same speed"
    )
    return f"{gap:.1%} faster than the next ({describe(second[0])}): {saved}"


def _behind(best: tuple[Layout, Estimate], other: tuple[Layout, Estimate]) -> str:
    gap = float(other[1].step_s / best[1].step_s - 1)
    lost = [(name, s) for name, s in _differences(best[1], other[1]) if s > 0][:1]
    costs = f"{lost[0][1] * 1e3:,.0f} ms more in {TERMS[lost[0][0]]}" if lost else "the same terms"
    return f"{gap:.1%} slower than the best: {costs}"
