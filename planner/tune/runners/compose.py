"""From measured layers to the step of a plan that is larger than the machine: measured times
replace the analytic ones, the pipeline is simulated, and what could not be measured stays the cost
model's."""

from __future__ import annotations

from dataclasses import fields, replace
from statistics import median
from typing import Any, NamedTuple

from planner import estimate
from planner.cost import pipeline
from planner.cost.layer import mean_layer
from planner.cost.layer.embedding_and_head import EndsTime, ends_time
from planner.cost.layer.layer import LayerTime, layer_time
from planner.cost.layer.moe import expert_layer_time
from planner.cost.layer.multi_token import with_mtp
from planner.cost.step import step
from planner.layout import Layout
from planner.specs.recipe import Recipe
from planner.tune.measurement import Measurement
from planner.tune.runners import measured_layers, proxy

_FORWARD = ("gemm_forward_s", "attention_forward_s", "elementwise_forward_s", "launch_forward_s")
_BACKWARD = (
    "gemm_input_s",
    "gemm_weight_s",
    "attention_backward_s",
    "elementwise_backward_s",
    "tax_backward_s",
    "launch_backward_s",
)


class Passes(NamedTuple):
    """Seconds of a micro-batch."""

    forward_s: float
    backward_s: float


def composed(result: dict[str, Any]) -> Measurement:
    """The plan's step from the worker's timed stacks of layers."""
    request = result["request"]
    recipe, layout = Recipe.model_validate(request["recipe"]), Layout.from_named(request["layout"])
    timed = {
        piece["name"]: Passes(median(piece["forward_s"]), median(piece["backward_s"]))
        for piece in result["pieces"]
    }
    layers, ends = layers_of(recipe, timed), ends_of(recipe, timed)
    holds = request["share"] == 1, request["recompute"]
    step_s, stages = step_of(recipe, layout, layers, ends, *holds)
    kept = (
        measured_layers.kept(recipe, result["pieces"]) if request["share"] == 1 else {}
    )  # a lone device holds what ranks would share
    measured = {**layers, **dict(zip(("embedding", "head"), ends, strict=True))}
    return Measurement(
        step_s=step_s,
        steps_s=tuple(float(step_s) for step_s in result["steps_s"]),
        memory_bytes=measured_layers.memory_bytes(recipe, layout, kept),
        memory_kind=result["memory_kind"],
        layers=measured_layers.layers(recipe, layout, measured, kept, *holds),
        composed=True,
        proxy=request["proxy"],
        stages=stages,
        device=result["device"],
        versions=result["versions"],
        notes=tuple(request["notes"]),
    )


def layers_of(recipe: Recipe, timed: dict[str, Passes]) -> dict[str, Passes]:
    """One layer of each kind: the difference of two depths over their distance."""
    apart = proxy.DEEP - proxy.SHALLOW
    pairs = {
        kind: (timed[f"{kind}-{proxy.DEEP}"], timed[f"{kind}-{proxy.SHALLOW}"])
        for kind in proxy.kinds(recipe)
    }
    return {
        kind: Passes(*(max(a - b, 0.0) / apart for a, b in zip(deep, low, strict=True)))
        for kind, (deep, low) in pairs.items()
    }


def ends_of(recipe: Recipe, timed: dict[str, Passes]) -> tuple[Passes, Passes]:
    """Embedding, and head with loss: the shallow stack with them less the stack without."""
    bare = timed[f"{proxy.kinds(recipe)[0]}-{proxy.SHALLOW}"]
    embedding, head = (
        Passes(*(max(a - b, 0.0) for a, b in zip(timed[end], bare, strict=True)))
        for end in ("embedding", "head")
    )
    return embedding, head


def step_of(
    recipe: Recipe,
    layout: Layout,
    measured: dict[str, Passes],
    ends: tuple[Passes, Passes],
    tp_measured: bool,
    recomputed: bool,
) -> tuple[float, tuple[dict[str, float], ...]]:
    """Seconds of the step, and of each stage's forward and backward, with measured layers and ends
    in the cost model's place.

    tp_measured: the layers' times hold their tensor-parallel communication. recomputed: their
    backward passes hold the repeated forward. The division of a backward pass into input and weight
    gradients, and of an end's time, stays the cost model's.
    """
    layers, known, _, acts = estimate.parts(recipe, layout)
    dense, experts = (
        layer_time(recipe, layout),
        (expert_layer_time(recipe, layout) if known.experts else None),
    )
    share = float(step.recompute_share(layout, layers))
    dense = (
        scaled(dense, measured["dense"], tp_measured, recomputed, share)
        if "dense" in measured
        else dense
    )
    experts = (
        scaled(experts, measured["experts"], tp_measured, recomputed, share) if experts else None
    )
    times = mean_layer.times(dense, experts, layers)
    both = with_mtp(recipe, layout, scaled_ends(ends_time(recipe, layout), *ends), experts or dense)
    if pipeline.refused(recipe, layout):
        return (
            float(
                step.step_time(
                    recipe,
                    layout,
                    layers,
                    times.first,
                    both,
                    step.closed_pipeline(recipe, layout, layers, times, both),
                ).step_s
            ),
            (),
        )
    timeline = pipeline.simulated(recipe, layout, times, both, acts)
    time = step.step_time(recipe, layout, layers, times.first, both, timeline.pipeline)
    stages = tuple(
        {
            "stage": float(rank),
            "forward_s": float(timeline.forward_s[rank]),
            "backward_s": float(timeline.backward_s[rank]),
        }
        for rank in range(layout.pp)
    )
    return float(time.step_s), stages


def scaled(
    layer: LayerTime, measured: Passes, tp_measured: bool, recomputed: bool, share: float
) -> LayerTime:
    """The analytic layer with its measured terms stretched so that their sum is what was measured.

    share: of recomputed layers, where the measured ones were not recomputed.
    """
    forward = (*_FORWARD, *(("tp_forward_s",) if tp_measured else ()))
    backward = (
        *_BACKWARD,
        *(("tp_backward_s",) if tp_measured else ()),
        *(("recompute_s",) if recomputed else ()),
    )
    longer, later = (
        _stretch(layer, forward, measured.forward_s),
        _stretch(layer, backward, measured.backward_s),
    )
    terms = {name: getattr(layer, name) * longer for name in forward} | {
        name: getattr(layer, name) * later for name in backward
    }
    repeated = {} if recomputed else {"recompute_s": layer.recompute_s * longer * share}
    return replace(layer, **terms, **repeated)


def _stretch(layer: LayerTime, names: tuple[str, ...], measured_s: float) -> float:
    known = sum(float(getattr(layer, name)) for name in names)
    return measured_s / known if known else 0.0


def scaled_ends(known: EndsTime, embedding: Passes, head: Passes) -> EndsTime:
    """The ends as measured; of the head's backward pass the cost model's share is its weight
    gradient.
    """
    weight = float(known.head_weight_s / known.head_backward_s) if known.head_backward_s else 0.0
    values = (
        embedding.forward_s,
        embedding.backward_s,
        head.forward_s,
        head.backward_s,
        head.backward_s * weight,
    )
    return EndsTime(**dict(zip((f.name for f in fields(EndsTime)), values, strict=True)))
