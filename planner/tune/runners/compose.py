"""From measured layers to the step of a plan that is larger than the machine: measured times
replace the analytic ones, the pipeline is simulated, and what could not be measured stays the cost
model's."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from planner import estimate
from planner.cost import pipeline
from planner.cost.layer.embedding_and_head import EndsTime, ends_time
from planner.cost.layer.kinds import Times, layer_time
from planner.cost.layer.layer import LayerTime
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

    def beyond(self, other: Passes, layers: int = 1) -> Passes:
        """A layer of what these take longer than the others; noise does not make it negative."""
        return Passes(
            max(self.forward_s - other.forward_s, 0.0) / layers,
            max(self.backward_s - other.backward_s, 0.0) / layers,
        )


def composed(result: dict[str, Any]) -> Measurement:
    """The plan's step from the worker's timed stacks of layers."""
    request = result["request"]
    recipe, layout = Recipe.model_validate(request["recipe"]), Layout.from_named(request["layout"])
    timed: dict[str, Passes] = {}
    for piece in result["pieces"]:
        timed[piece["name"]] = Passes(median(piece["forward_s"]), median(piece["backward_s"]))
    layers, ends = layers_of(recipe, timed), ends_of(recipe, timed)
    holds = request["share"] == 1, request["recompute"]
    step_s, stages = step_of(recipe, layout, layers, ends, *holds)
    kept: measured_layers.Kept = {}
    if request["share"] == 1:  # else a lone device holds what ranks would share
        kept = measured_layers.kept(recipe, result["pieces"])
    measured = {**layers, "embedding": ends[0], "head": ends[1]}
    return Measurement(
        step_s=step_s,
        steps_s=tuple(map(float, result["steps_s"])),
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
    layers: dict[str, Passes] = {}
    for kind in proxy.kinds(recipe):
        deep, shallow = timed[f"{kind}-{proxy.DEEP}"], timed[f"{kind}-{proxy.SHALLOW}"]
        layers[kind] = deep.beyond(shallow, proxy.DEEP - proxy.SHALLOW)
    return layers


def ends_of(recipe: Recipe, timed: dict[str, Passes]) -> tuple[Passes, Passes]:
    """Embedding, and head with loss: the shallow stack with them less the stack without."""
    bare = timed[f"{proxy.kinds(recipe)[0]}-{proxy.SHALLOW}"]
    return timed["embedding"].beyond(bare), timed["head"].beyond(bare)


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
    layers, _, _, acts = estimate.parts(recipe, layout)
    how = tp_measured, recomputed, float(step.recompute_share(layout, layers))
    kinds = tuple(
        scaled(layer_time(each, layout), measured[proxy.kind(each.model)], *how)
        for each in recipe.kinds
    )
    of_ranks = Times(kinds, layers)
    both = with_mtp(recipe, layout, scaled_ends(ends_time(recipe, layout), *ends), kinds)
    stages: list[dict[str, float]] = []
    if pipeline.refused(recipe, layout):
        pipelined = step.closed_pipeline(recipe, layout, layers, of_ranks, both)
    else:
        timeline = pipeline.simulated(recipe, layout, of_ranks, both, acts)
        pipelined = timeline.pipeline
        for rank in range(layout.pp):
            forward_s, backward_s = timeline.forward_s[rank], timeline.backward_s[rank]
            stages.append(
                {
                    "stage": float(rank),
                    "forward_s": float(forward_s),
                    "backward_s": float(backward_s),
                }
            )
    time = step.step_time(recipe, layout, layers, of_ranks.first, both, pipelined)
    return float(time.step_s), tuple(stages)


def scaled(
    layer: LayerTime, measured: Passes, tp_measured: bool, recomputed: bool, share: float
) -> LayerTime:
    """The analytic layer with its measured terms stretched so that their sum is what was measured.

    share: of recomputed layers, where the measured ones were not recomputed.
    """
    forward, backward = [*_FORWARD], [*_BACKWARD]
    if tp_measured:
        forward.append("tp_forward_s")
        backward.append("tp_backward_s")
    if recomputed:
        backward.append("recompute_s")
    stretch = _stretch(layer, forward, measured.forward_s)
    terms: dict[str, Any] = {"recompute_s": layer.recompute_s * stretch * share}
    for name in forward:
        terms[name] = getattr(layer, name) * stretch
    stretch = _stretch(layer, backward, measured.backward_s)
    for name in backward:
        terms[name] = getattr(layer, name) * stretch
    return replace(layer, **terms)


def _stretch(layer: LayerTime, names: list[str], measured_s: float) -> float:
    """By how much the measured time is longer than those terms."""
    known = sum(float(getattr(layer, name)) for name in names)
    return measured_s / known if known else 0.0


def scaled_ends(known: EndsTime, embedding: Passes, head: Passes) -> EndsTime:
    """The ends as measured; of the head's backward pass the cost model's share is its weight
    gradient.
    """
    weight = float(known.head_weight_s / known.head_backward_s) if known.head_backward_s else 0.0
    return EndsTime(*embedding, *head, head_weight_s=head.backward_s * weight)
