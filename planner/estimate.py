"""The one way to an Estimate: closed form for columns, the simulated order for one layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from planner.cost import pipeline
from planner.cost.flops import layer_flops, model_flops, tower_flops
from planner.cost.layer.embedding_and_head import EndsTime, ends_time, with_deferred
from planner.cost.layer.kernels import peak_flops_per_s
from planner.cost.layer.kinds import Times, layer_time
from planner.cost.layer.layer import LayerTime
from planner.cost.layer.multi_token import with_mtp
from planner.cost.layer.vision import tower_time, with_tower
from planner.cost.memory import host_activations, offload, rank_memory
from planner.cost.memory.activations import Activations, activations, tower_kept_bytes
from planner.cost.network import sites
from planner.cost.params.layer import layer_params, routed_layer_params
from planner.cost.params.stages import Split, split
from planner.cost.params.vision import tower_in
from planner.cost.step import step
from planner.cost.terms import ACCEPTED_OOM_PROBABILITY, Estimate, Memory, Stage, StepTime
from planner.cost.unique_rows import remembered
from planner.layout import Layout, Layouts, Numeric
from planner.specs import guesses
from planner.specs.layers import counts, kinds
from planner.specs.recipe import Recipe
from planner.specs.residuals import residual_range
from planner.units import GIB, TERA


def limit_bytes(recipe: Recipe) -> float:
    """Device memory that a layout may take: the device's, or less where the question says so."""
    own = recipe.hardware.gpu.usable_bytes
    return min(own, recipe.max_memory_gib * GIB) if recipe.max_memory_gib else own


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Times and bytes of one micro-batch on a rank, whatever the pipeline."""

    ends: EndsTime
    activations: Activations
    layers: tuple[LayerTime, ...]
    """One of each kind."""
    tower: LayerTime
    """In front of the first stage."""


def layer_knobs(recipe: Recipe) -> tuple[str, ...]:
    """What a layer's time and memory depend on."""
    layer = ("tp", "cp", "cp_a2a", "ep", "etp", "mbs", "sp", "recompute", "recompute_modules")
    megatron = recipe.framework == "megatron"  # its FSDP copies gradients
    knobs = (*layer, "shards_gradients") if megatron else layer
    return (*knobs, "pp") if recipe.software.launch.collective_us_crossing else knobs


@remembered(layer_knobs)
def micro_batch(recipe: Recipe, layout: Layouts) -> MicroBatch:
    """A layer of each kind that the model has, and the model's ends."""
    acts = activations(recipe, layout)
    layers = tuple(
        host_activations.with_copies(kind, layer_time(kind, layout), kept.hosted)
        for kind, kept in zip(recipe.kinds, acts.kinds, strict=True)
    )
    return MicroBatch(ends_time(recipe, layout), acts, layers, tower_time(recipe, layout))


@dataclass(frozen=True, slots=True)
class KindOfLayer:
    """What one layer of a kind costs a rank, of one layout."""

    name: str
    layers: int
    """In the model, without multi-token prediction."""
    params: int
    """On one rank."""
    forward_s: float
    """Of one micro-batch."""
    backward_s: float
    """With what is recomputed."""
    kept_bytes: float
    """Of one micro-batch, between forward and backward."""
    flops: float
    """Of one micro-batch, forward and backward, over the GPUs that share it."""


def kinds_of_layers(recipe: Recipe, layout: Layout) -> tuple[KindOfLayer, ...]:
    """A layer of each kind, in the order of the first of each."""
    known = parts(recipe, layout)
    layers, each, acts = known[0], known[1].kinds, known[3]
    share = float(step.recompute_share(layout, layers))
    micro_batches = recipe.global_batch_size / layout.mbs
    costs = []
    for index, (name, model) in enumerate(kinds(recipe.model).items()):
        params = layer_params(model, layout.tp) + routed_layer_params(model, layout.ep, layout.etp)
        kept, time = acts.kinds[index], each[index]
        whole = np.where(layout.recomputes_all, kept.input_bytes, kept.layer_bytes)
        costs.append(
            KindOfLayer(
                name,
                counts(recipe.model)[index],
                int(params),
                float(time.forward_s),
                float(time.backward_s),
                float(share * whole + (1 - share) * kept.layer_bytes),
                layer_flops(recipe.kinds[index]) / micro_batches,
            )
        )
    return (*costs, *tower_of_first_stage(recipe, layout))


def tower_of_first_stage(recipe: Recipe, layout: Layout) -> tuple[KindOfLayer, ...]:
    """What the vision tower adds to the first stage, all its layers as one; nothing of text
    alone.
    """
    if recipe.tower is None:
        return ()
    time, (held, _) = tower_time(recipe, layout), tower_kept_bytes(recipe, layout)
    flops = tower_flops(recipe, full_attention=False) * layout.mbs / recipe.global_batch_size
    costs = (float(time.forward_s), float(time.backward_s), float(held), flops)
    return (KindOfLayer("vision tower", 1, tower_in(recipe), *costs),)


Parts = tuple[Split, Times, EndsTime, Activations]


def parts(recipe: Recipe, layout: Layouts) -> Parts:
    """What every estimate is built from: the split of layers, layers' times, the ends' time, a
    micro-batch's activations.
    """
    each, layers = micro_batch(recipe, layout), split(recipe, layout)
    repeated = step.recompute_share(layout, layers)
    kinds = tuple(_partly(layer, repeated) for layer in each.layers)
    waiting = with_deferred(recipe, layout, each.ends)
    ends = with_tower(with_mtp(recipe, layout, waiting, kinds), each.tower)
    return layers, Times(kinds, layers), ends, each.activations


def _partly(layer: LayerTime, repeated: Numeric) -> LayerTime:
    """The mean layer of which a share is recomputed."""
    return replace(layer, recompute_s=layer.recompute_s * repeated)


def closed_time(recipe: Recipe, layout: Layouts, known: Parts) -> StepTime:
    """The step of one layout or of a batch by closed form. known: its parts()."""
    layers, layer, ends, _ = known
    pipeline = step.closed_pipeline(recipe, layout, layers, layer, ends)
    return step.step_time(recipe, layout, layers, layer.first, ends, pipeline)


def closed_form(recipe: Recipe, layout: Layouts) -> Estimate:
    """Estimate of one layout or of a batch, every field a number or a column."""
    known = parts(recipe, layout)
    layers, _, _, acts = known
    time = closed_time(recipe, layout, known)
    ranks = rank_memory.ranks(recipe, layout, layers)
    hosted = rank_memory.hosted_bytes(acts, ranks)

    def memory_of(other: Recipe) -> Memory:
        return rank_memory.worst(rank_memory.rank_memories(other, layout, acts, ranks))

    return assemble(recipe, layout, time, memory_of, hosted)


def oom_probability(
    recipe: Recipe, worst: Memory, memory_of: Callable[[Recipe], Memory]
) -> Numeric:
    """Chance that the worst rank runs out of memory. memory_of: as assemble()."""
    plain_recipes = [guesses.without(recipe, name) for name in guesses.guessed(recipe)]
    guessed = guesses.deviation_bytes(
        [worst.allocated_bytes - memory_of(other).allocated_bytes for other in plain_recipes]
    )
    return rank_memory.oom_probability(recipe, worst, limit_bytes(recipe), guessed)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Pipeline ranks that can need most memory, with what they hold whatever is recomputed."""

    ranks: tuple[rank_memory.Rank, ...]
    states: tuple[rank_memory.Resident, ...]


def fullest_ranks(recipe: Recipe, layout: Layouts, known: Parts) -> Ranks:
    """Of one layout or of a batch. known: its parts()."""
    ranks = rank_memory.ranks(recipe, layout, known[0])
    return Ranks(ranks, rank_memory.resident_of(recipe, layout, ranks))


def closed_memory(
    recipe: Recipe, layout: Layouts, known: Parts, held: Ranks | None = None
) -> tuple[Numeric, Numeric]:
    """Bytes of the worst rank of one layout or of a batch, and whether it fits, on the device and
    in host memory. known: its parts(); held: its fullest_ranks(), where they are known.
    """
    held, acts = held or fullest_ranks(recipe, layout, known), known[3]
    ranks = held.ranks

    def memory_of(other: Recipe) -> Memory:
        states = held.states if other is recipe else None
        return rank_memory.worst(rank_memory.rank_memories(other, layout, acts, ranks, states))

    worst = memory_of(recipe)
    chance = oom_probability(recipe, worst, memory_of)
    hosted = rank_memory.hosted_bytes(acts, ranks)
    host_bytes = offload.host_bytes(recipe, layout, hosted)
    in_host = host_bytes <= offload.host_limit_bytes(recipe)
    return worst.device_bytes, (chance < ACCEPTED_OOM_PROBABILITY) & in_host


def assemble(
    recipe: Recipe,
    layout: Layouts,
    time: StepTime,
    memory_of: Callable[[Recipe], Memory],
    hosted_bytes: Numeric,
) -> Estimate:
    """What follows from the terms: totals, rates, range, probability of running out of memory.
    memory_of: the worst rank's memory of the recipe, and of the same without a guess; hosted_bytes:
    activations of a rank in host memory.
    """
    step_s = time.step_s
    limit, worst = limit_bytes(recipe), memory_of(recipe)
    causal, full = (
        model_flops(recipe, full_attention=full_attention) for full_attention in (False, True)
    )
    per_gpu = causal / step_s / recipe.gpus
    low, high = residual_range(recipe, per_gpu)
    halves = (
        "bf16"
        if recipe.precision != "fp16" and "bf16" in recipe.hardware.gpu.peak_tflops
        else "fp16"
    )  # V100 has no bf16
    peak = peak_flops_per_s(recipe.hardware, halves)
    return Estimate(
        time=time,
        memory=worst,
        p2p=step.p2p(recipe, layout),
        model_flops=causal,
        model_flops_full_attention=full,
        step_s=step_s,
        step_s_low=step_s * low,
        step_s_high=step_s * high,
        tokens_per_s_per_gpu=recipe.tokens / step_s / recipe.gpus,
        model_tflops_per_gpu=per_gpu / TERA,
        mfu=per_gpu / peak,
        mfu_full_attention=per_gpu / peak * (full / causal),
        bubble_share=time.bubble_s / (time.busy_s + time.bubble_s + time.pp_comm_s),
        memory_bytes=worst.device_bytes,
        memory_limit_bytes=limit,
        oom_probability=oom_probability(recipe, worst, memory_of),
        host_bytes=offload.host_bytes(recipe, layout, hosted_bytes),
        host_limit_bytes=offload.host_limit_bytes(recipe),
        used_share=recipe.used_share,
        assumed=recipe.assumed,
    )


def estimate(recipe: Recipe, layout: Layout, exact: bool = False) -> Estimate:
    """Time and memory of a layout, or of a batch of them (then every field is a column).

    exact: one layout only; its pipeline is simulated with the true stage times, and every stage is
    listed.
    """
    if not exact:
        return _with_guesses(recipe, layout, closed_form(recipe, layout))
    why_not = pipeline.refused(recipe, layout)
    if why_not:
        result = plain(_with_guesses(recipe, layout, closed_form(recipe, layout)))
        return replace(result, assumed=(*result.assumed, why_not, *sites.notes(recipe, layout)))
    result = plain(_with_guesses(recipe, layout, _simulated(recipe, layout)))
    return replace(result, assumed=(*result.assumed, *sites.notes(recipe, layout)))


def _with_guesses(recipe: Recipe, layout: Layouts, estimate: Estimate) -> Estimate:
    """The estimate with the range that guesses make wider, guesses.widened(), each said."""
    guessed = guesses.guessed(recipe)
    if not guessed:
        return estimate
    on_s, *off_s = (
        closed_time(each, layout, parts(each, layout)).step_s
        for each in (recipe, *(guesses.without(recipe, name) for name in guessed))
    )
    low, high = guesses.widened(
        estimate.step_s_low / estimate.step_s, estimate.step_s_high / estimate.step_s, on_s, off_s
    )
    said = []
    for (name, value), off in zip(guessed.items(), off_s, strict=True):
        worth_s = float(np.max(np.abs(off - on_s)))
        if worth_s > guesses.PAYS * float(np.max(on_s)):
            said.append(guesses.says(name, value, worth_s))
    return replace(
        estimate,
        step_s_low=estimate.step_s * low,
        step_s_high=estimate.step_s * high,
        assumed=(*estimate.assumed, *said),
    )


def stage_times(recipe: Recipe, layout: Layout) -> tuple[np.ndarray, float, bool]:
    """For the simulator: (S, 4) seconds of every virtual stage, one transfer, and whether transfers
    block.
    """
    _, layer, ends, _ = parts(recipe, layout)
    return (
        pipeline.durations(recipe, layout, layer, ends),
        float(step.transfer_s(recipe, layout)),
        pipeline.blocking(recipe, layout),
    )


def _simulated(recipe: Recipe, layout: Layout) -> Estimate:
    split, layer, ends, acts = parts(recipe, layout)
    simulation = pipeline.simulated(recipe, layout, layer, ends, acts)
    time = step.step_time(recipe, layout, split, layer.first, ends, simulation.pipeline)
    [each] = rank_memory.rank_memories(recipe, layout, acts, (simulation.ranks,))
    held = np.broadcast_to(each.device_bytes, layout.pp)
    layers, params, in_flight = (
        np.broadcast_to(column, layout.pp)
        for column in (
            simulation.ranks.layers.total,
            simulation.ranks.params,
            simulation.ranks.in_flight,
        )
    )
    fullest = int(np.argmax(held))

    def memory_of(other: Recipe) -> Memory:
        [ranks] = rank_memory.rank_memories(other, layout, acts, (simulation.ranks,))
        return rank_memory.at(ranks, fullest)

    hosted = float(np.max(rank_memory.hosted_bytes(acts, (simulation.ranks,))))
    result = assemble(recipe, layout, time, memory_of, hosted)
    stages = tuple(
        Stage(
            rank,
            int(layers[rank]),
            int(params[rank]),
            float(held[rank]),
            float(simulation.forward_s[rank]),
            float(simulation.backward_s[rank]),
            float(in_flight[rank]),
        )
        for rank in range(layout.pp)
    )
    return replace(plain(result), stages=stages)


def plain(estimate: Estimate) -> Estimate:
    """An estimate of one layout with Python numbers in place of numpy's."""
    picked = {f.name: getattr(estimate, f.name) for f in fields(estimate)}
    return type(estimate)(**{k: _plain(x) for k, x in picked.items()})


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{f.name: _plain(getattr(value, f.name)) for f in fields(value)})
    return value.item() if isinstance(value, np.generic | np.ndarray) else value
