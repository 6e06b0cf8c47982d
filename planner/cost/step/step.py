"""From a layer to a step: stages, pipeline, data parallelism, optimizer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.layer.embedding_and_head import EndsTime
from planner.cost.layer.kinds import Times
from planner.cost.layer.layer import LayerTime
from planner.cost.layer.streams import between_stages
from planner.cost.network import collectives, sites
from planner.cost.params.stages import Layers, Split
from planner.cost.schedule_terms import exposed_transfer_s, idle_s, messages
from planner.cost.step.data_parallel import (
    dp_comm_s,
    embedding_comm_s,
)
from planner.cost.step.offload import fetch_s, update_s
from planner.cost.step.optimizer import optimizer_s
from planner.cost.terms import P2P, StepTime
from planner.layout import Layouts, Numeric
from planner.schedules.unequal import Chunks
from planner.specs.layers import counts
from planner.specs.recipe import Recipe
from planner.units import MICRO


@dataclass(frozen=True, slots=True)
class Pace:
    """Work of the slowest pipeline rank for one micro-batch."""

    slowest_s: Numeric
    layers: Numeric
    ends_s: Numeric
    """Embedding and head time in slowest_s."""
    layer: LayerTime
    """Its mean layer."""
    has_tower: Numeric = 0.0
    """1 where it has the vision tower, which ends_s then holds too."""


def rank_times(
    recipe: Recipe, layout: Layouts, layers: Split, layer: Times, ends: EndsTime
) -> tuple[Chunks, Chunks]:
    """Forward and backward seconds of the first, a middle and the last rank for one micro-batch.

    Formula: T_i = sum of layers_i t of each kind + embedding (first) + head (last)
    Source:  [narayanan2021] sec. 2.2
    Assumes: middle ranks alike: the mean of them.
    """
    several, others = layout.pp > 2, np.maximum(layout.pp - 2, 1)
    ends_of = zip(counts(recipe.model), layers.first.of, layers.last.of, strict=True)
    between = [np.maximum(all_ - first - last, 0.0) / others for all_, first, last in ends_of]
    pairs = zip(between, layers.middle.of, strict=True)
    middle = Layers(tuple(np.where(several, mean, whole) for mean, whole in pairs))
    ranks = (layers.first, middle, layers.last)
    forward = [layer.total(rank, lambda each: each.forward_s) for rank in ranks]
    backward = [layer.total(rank, lambda each: each.backward_s) for rank in ranks]
    return (
        Chunks(forward[0] + ends.embedding_forward_s, forward[1], forward[2] + ends.head_forward_s),
        Chunks(
            backward[0] + ends.embedding_backward_s, backward[1], backward[2] + ends.head_backward_s
        ),
    )


def pace(layout: Layouts, layers: Split, layer: Times, ends: EndsTime, work: Chunks) -> Pace:
    """Which rank sets the pace. work: forward and backward seconds of the ranks.

    Formula: the slowest of first, middle, last
    Source:  [narayanan2021] sec. 2.2
    Assumes: middle ranks as full as the fullest.
    """
    embedding = ends.embedding_forward_s + ends.embedding_backward_s
    head = ends.head_forward_s + ends.head_backward_s
    alone = np.equal(layout.pp, 1)
    mean = layer.middle
    each_s = mean.forward_s + mean.backward_s
    middle = np.where(np.greater(layout.pp, 2), layers.middle.total * each_s, 0.0)
    slowest = np.maximum(np.maximum(work.first, work.last), middle)
    is_first, is_last = work.first >= slowest, alone | (work.last >= slowest)
    ends_s = np.where(is_last, head + embedding * alone, np.where(is_first, embedding, 0.0))
    return Pace(
        slowest_s=np.where(alone, work.first + head, slowest),
        layers=np.where(
            is_last,
            layers.last.total,
            np.where(is_first, layers.first.total, layers.middle.total),
        ),
        ends_s=ends_s,
        layer=layer.of_slowest(is_first, is_last),
        has_tower=np.where(is_last, alone, is_first),
    )


def recompute_share(layout: Layouts, layers: Split) -> Numeric:
    """Share of a stage's layers that full recomputation repeats.

    Formula: min(recompute_layers, layers of a virtual stage) / layers of a virtual stage; all when
             0
    Source:  [megatron-core] --recompute-method block, --recompute-num-layers
    Assumes: the middle ranks' layers.
    """
    chunk = np.maximum(layers.middle.total / layout.v, 1)
    limited = layout.recomputes_all & (np.asarray(layout.recompute_layers) > 0)
    return np.where(limited, np.minimum(layout.recompute_layers, chunk) / chunk, 1.0)


def tensor_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """Size of one activation tensor between stages.

    Formula: mbs s/cp between_stages() element_bytes, over tp with sp
    Source:  [narayanan2021] sec. 2.2 and 4.1; [megatron-core]
    Assumes: per pipeline and tensor-parallel rank.
    """
    scattered = layout.sequence_split | recipe.software.quirks.p2p_scatter_over_tp
    size = recipe.tokens_per_rank(layout) * between_stages(recipe.model) * recipe.element_bytes
    return size / np.where(scattered, layout.tp, 1)


def p2p(recipe: Recipe, layout: Layouts) -> P2P:
    """Activation and gradient tensors between stages in a step.

    Formula: messages() of the schedule tensors of tensor_bytes(); a link carries its share of them,
             half each way, of p links with virtual stages, else p - 1
    Source:  [narayanan2021] sec. 2.2 and 4.1; [megatron-core]
    Assumes: per pipeline and tensor-parallel rank.
    """
    size, tensors = tensor_bytes(recipe, layout), messages(layout)
    links = np.where(layout.interleaved, layout.pp, np.maximum(layout.pp - 1, 1))
    return P2P(
        tensors_per_step=tensors,
        bytes_per_tensor=size,
        bytes_per_link_per_step=tensors / 2 / links * size,
        bytes_per_step=tensors * size,
    )


def transfer_s(recipe: Recipe, layout: Layouts) -> Numeric:
    """One activation between neighbouring stages, as every hop of a pipeline has it.

    Formula: near_transfer_s(); between sites as sites.hop_s() has it
    Source:  [narayanan2021] sec. 4.1
    Assumes: hops alike.
    """
    return sites.hop_s(
        recipe, layout, near_transfer_s(recipe, layout), tensor_bytes(recipe, layout)
    )


def near_transfer_s(recipe: Recipe, layout: Layouts) -> Numeric:
    """One activation between neighbouring stages at one site.

    Formula: send(bytes); with the scatter of 2021 an all-gather over tp follows
    Source:  [narayanan2021] sec. 4.1
    Assumes: the slowest boundary of the pipeline.
    """
    hardware, stride = recipe.hardware, layout.tp * layout.cp * layout.dp
    message = tensor_bytes(recipe, layout)
    sent = collectives.send_s(hardware, stride, layout.pp, message)
    gathered = collectives.gather_s(
        hardware, collectives.group(hardware, 1, layout.tp), message * layout.tp
    )
    joined = np.where(
        layout.sequence_split, 0.0, gathered * recipe.software.quirks.p2p_scatter_over_tp
    )
    return (sent + joined) * layout.pipelined


def straggler_share(recipe: Recipe, layout: Layouts) -> Numeric:
    """Slowdown from the slowest of many nodes.

    Formula: straggler_share * log2(nodes)
    Source:  fit to published runs
    Assumes: nodes alike.
    """
    return recipe.hardware.fabric.straggler_share * np.log2(
        np.maximum(layout.gpus / recipe.hardware.node.gpus, 1.0)
    )


def late_head_s(layout: Layouts, work: Pace, ends: EndsTime) -> Numeric:
    """What the drain does not hide of the head's weight gradients that wait for it.

    Formula: max(0, deferred - (p - 1) / v backward passes of a rank's layers)
    Source:  [megatron-core] core/pipeline_parallel/schedules.py finish_embedding_wgrad_compute
    Assumes: the last rank is done when the others still have one pass each.
    """
    drain = (layout.pp - 1) / layout.v * work.layers * work.layer.backward_s
    return np.maximum(ends.deferred_s - drain, 0.0)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How the ranks' work becomes a step: by closed form, or by simulating the order."""

    work: Pace
    bubble_s: Numeric
    pp_comm_s: Numeric


def closed_pipeline(
    recipe: Recipe, layout: Layouts, layers: Split, layer: Times, ends: EndsTime
) -> Pipeline:
    """The pipeline of columns: pace, bubble and exposed transfers by the schedules' closed forms.

    Formula: idle_s() and exposed_transfer_s() of rank_times()
    Source:  planner.schedules
    Assumes: middle ranks alike.
    """
    forward, backward = rank_times(recipe, layout, layers, layer, ends)
    ranks = forward + backward
    work = pace(layout, layers, layer, ends, ranks)
    weights = layer.total(Layers(counts(recipe.model)), lambda each: each.gemm_weight_s)
    weight = weights + ends.head_weight_s
    return Pipeline(
        work,
        idle_s(recipe.software, layout, forward, backward, weight / layout.pp),
        exposed_transfer_s(recipe.software, layout, transfer_s(recipe, layout), ranks),
    )


def step_time(
    recipe: Recipe,
    layout: Layouts,
    layers: Split,
    first: LayerTime,
    ends: EndsTime,
    pipeline: Pipeline,
) -> StepTime:
    """Every term of a step; `first` is the mean layer of the first rank. The vision tower's work
    stands with that of the layers.

    Formula: m (slowest rank) + bubble + transfers + exposed data-parallel communication + optimizer
             + overhead, times stragglers
    Source:  that of each term, in planner.cost
    Assumes: partial full recomputation is spread evenly over the layers.
    """
    work, layer = pipeline.work, pipeline.work.layer
    count, images = layout.m * work.layers, layout.m * work.has_tower

    def busy(*names: str) -> Numeric:
        of_layer, of_tower = (sum(getattr(x, name) for name in names) for x in (layer, ends.tower))
        return count * of_layer + images * of_tower

    tower_s = work.has_tower * (ends.tower.forward_s + ends.tower.backward_s)
    exposed, hidden = dp_comm_s(recipe, layout, layers, first, ends)
    terms = {
        "gemm_s": busy("gemm_forward_s", "gemm_input_s", "gemm_weight_s"),
        "attention_s": busy("attention_forward_s", "attention_backward_s"),
        "elementwise_s": busy("elementwise_forward_s", "elementwise_backward_s"),
        "head_s": layout.m * (work.ends_s - tower_s) + late_head_s(layout, work, ends),
        "recompute_s": busy("recompute_s"),
        "adapter_s": count * (layer.adapter_forward_s + layer.adapter_backward_s),
        "launch_s": busy("launch_forward_s", "launch_backward_s"),
        "tp_comm_s": count * (layer.tp_forward_s + layer.tp_backward_s),
        "cp_comm_s": count * (layer.cp_forward_s + layer.cp_backward_s),
        "ep_comm_s": count * (layer.ep_forward_s + layer.ep_backward_s),
        "overlap_tax_s": count * layer.tax_backward_s + recipe.software.overlap.tax_share * hidden,
        "pp_comm_s": pipeline.pp_comm_s,
        "bubble_s": pipeline.bubble_s,
        "dp_comm_s": exposed,
        "embedding_comm_s": embedding_comm_s(recipe, layout),
        "optimizer_s": optimizer_s(recipe, layout, layers),
        "offload_s": update_s(recipe, layout, layers)
        + fetch_s(recipe, layout, layers, first)
        + count * (layer.host_forward_s + layer.host_backward_s),
        "overhead_s": recipe.software.launch.step_overhead_us * MICRO + 0.0 * count,
    }
    return StepTime(**terms, straggler_s=sum(terms.values()) * straggler_share(recipe, layout))
