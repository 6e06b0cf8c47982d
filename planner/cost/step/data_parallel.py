"""Data-parallel communication of a step: gradients reduced over the replicas, sharded weights
gathered (ZeRO 1 once a step; ZeRO 3 and FSDP for the forward and again for the backward pass of
every micro-batch), and how much of it computation hides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.layer.embedding_and_head import EndsTime
from planner.cost.layer.kernels import memory_s
from planner.cost.layer.layer import LayerTime
from planner.cost.memory.quantized_weights import gathered_as
from planner.cost.memory.states import accumulated_bytes, gradients_deferred, reduced_bytes
from planner.cost.network import collectives, sites
from planner.cost.params.layer import ends_params, padded_vocab
from planner.cost.params.lora import sent_bytes
from planner.cost.params.per_rank import expert_ranks, instances, layers_params, shard_copies
from planner.cost.params.stages import Split, one
from planner.cost.params.trained import (
    trained_ends,
    trained_front,
    trained_layers,
    trains,
)
from planner.cost.params.whole import whole_params
from planner.cost.unique_rows import REPLICA_KNOBS, once_per
from planner.layout import Layouts, Mask, Numeric
from planner.specs.deepspeed import all_reduces
from planner.specs.layers import kinds
from planner.specs.recipe import Recipe
from planner.units import MIB, MICRO


def moved_s(
    recipe: Recipe, members: collectives.Group, size_bytes: Numeric, calls: Numeric
) -> Numeric:
    """All-gather or reduce-scatter of so many bytes of sharded weights among the group, in `calls`
    collectives.

    Formula: calls * gather(bytes / calls / shard_bandwidth_share), the share only between nodes
    Source:  [patarasuk2009], [nccl-tuning]
    Assumes: calls of equal size.
    """
    share = np.where(members.nodes > 1, recipe.software.sharding.bandwidth_share, 1.0)
    return calls * collectives.gather_s(recipe.hardware, members, size_bytes / calls / share)


def gathered_s(
    recipe: Recipe, members: collectives.Group, params: Numeric, sent: Numeric, calls: Numeric
) -> Numeric:
    """Gather of so many sharded weights of `sent` bytes among the group, in `calls` collectives.

    Formula: moved_s() of sent gather_share; conversion over HBM
    Source:  [rajbhandari2020]; ZeRO++ (arXiv 2306.10209)
    Assumes: converting hides with the gather.
    """
    sharding = recipe.software.sharding
    size = params * sent * sharding.gather_share
    return moved_s(recipe, members, size, calls) + memory_s(
        recipe.hardware, params * sharding.gather_convert_bytes
    )


def scattered_s(
    recipe: Recipe, layout: Layouts, members: collectives.Group, params: Numeric, calls: Numeric
) -> Numeric:
    """Reduction of so many gradients of sharded weights, in `calls` collectives at most.

    Formula: moved_s() of reduced_bytes() reduce_share, in messages of reduce_elements where the
             software states them; conversion over HBM
    Source:  [rajbhandari2020]; [deepspeed] runtime/zero/stage3.py reduce_bucket_size; ZeRO++ (arXiv
             2306.10209)
    Assumes: converting hides with the reduction.
    """
    sharding = recipe.software.sharding
    if sharding.reduce_elements:
        calls = np.minimum(calls, np.maximum(params, 1.0) / sharding.reduce_elements)
    size = params * reduced_bytes(recipe, layout) * sharding.reduce_share
    return moved_s(recipe, members, size, calls) + memory_s(
        recipe.hardware, params * sharding.reduce_convert_bytes
    )


def copies_summed_s(
    recipe: Recipe,
    layout: Layouts,
    stride: Numeric,
    ranks: Numeric,
    params: Numeric,
    calls: Numeric,
) -> Numeric:
    """Sum over the copies of what is sharded, of the shards of so many parameters' gradients that
    so many ranks hold, stride apart.

    Formula: calls * all_reduce(reduced_bytes() params / (ranks / k) / calls) among k = instances()
    Source:  [megatron-core] core/distributed/param_and_grad_buffer.py; [torch-fsdp]
             _fully_shard/_fsdp_collectives.py foreach_reduce: in the precision of the
             reduce-scatter, after each
    Assumes: ranks of a copy are neighbours, copies lie apart by all of them.
    """
    sharding = recipe.software.sharding
    if sharding.instances == 1 and sharding.shard_copies == 1:
        return 0.0
    copies = instances(recipe, layout)
    owners = ranks / copies
    others = sites.group(recipe, layout, stride * owners, copies)
    share = params * reduced_bytes(recipe, layout) / owners
    return calls * collectives.all_reduce_s(recipe.hardware, others, share / calls)


@dataclass(frozen=True, slots=True)
class Moves:
    """Seconds of the collectives of sharded weights: of one layer, and of what is outside the
    layers.
    """

    gather_s: Numeric
    again_s: Numeric
    """The second gather, for the backward pass."""
    reduce_s: Numeric
    outside_s: Numeric
    """The gather of what is outside the layers."""
    outside_reduce_s: Numeric
    whole_s: Numeric
    """Once a step: of the layers' weights that stay whole."""


def moves(recipe: Recipe, layout: Layouts, layers: Split) -> Moves:
    """How long each collective takes, whatever hides it.

    Formula: gathered_s() of a layer's weights that do not stay whole, among the dp cp ranks of a
             copy and again among hpz; scattered_s() and copies_summed_s() of its trained gradients;
             of the ends' likewise, and once a step a gather of what stays whole
    Source:  [rajbhandari2020] sec. 7.2.2; [torch-fsdp] _fully_shard/_fsdp_collectives.py
             foreach_reduce
    Assumes: as sharded_comm_s().
    """
    software, ends, ranks, tp = (
        recipe.software,
        ends_params(recipe, layout),
        layout.replicas,
        layout.tp,
    )
    layer = layers.first / np.maximum(layers.first.total, 1e-9)  # the mean one
    dense, routed = layers_params(recipe.model, layout, layer)
    moved, more_moved = trained_layers(recipe, layout, layer)
    copies = shard_copies(recipe, layout)
    members = sites.group(recipe, layout, tp, ranks / copies)
    near = collectives.group(recipe.hardware, tp, np.minimum(layout.hpz, ranks))
    calls = software.sharding.calls
    whole = layer.times(whole_params(each, layout) for each in recipe.kinds)
    sharded = np.maximum(dense - whole, 0.0)
    sent = gathered_as(recipe, layout, sent_bytes(recipe))
    if recipe.lora and recipe.lora.base != "nf4":
        sent = software.states.frozen_bytes
    gather = gathered_s(recipe, members, sharded, sent, calls) * (sharded > 0)
    again: Numeric = np.where(
        np.asarray(layout.hpz) > 1,
        gathered_s(recipe, near, sharded, sent, calls) * (sharded > 0),
        gather,
    )
    reduce = scattered_s(recipe, layout, members, moved, calls)
    reduce = reduce + copies_summed_s(recipe, layout, tp, ranks, moved, calls)
    if recipe.model.moe:
        stride, owners = layout.etp * layout.ep, expert_ranks(layout)
        alike = sites.group(recipe, layout, stride, owners / copies)
        more = gathered_s(recipe, alike, routed, sent, calls)
        gather, again = gather + more, again + more
        reduce = reduce + scattered_s(recipe, layout, alike, more_moved, calls)
        reduce = reduce + copies_summed_s(recipe, layout, stride, owners, more_moved, calls)
    trained = trained_ends(recipe, layout)
    outside = gathered_s(recipe, members, ends, 2.0, 1.0)
    outside_reduce = scattered_s(recipe, layout, members, trained, 1.0)
    outside_reduce = outside_reduce + copies_summed_s(recipe, layout, tp, ranks, trained, 1.0)
    kept_whole = gathered_s(recipe, members, layers.first.total * whole, sent, 1.0) * (whole > 0)
    return Moves(gather, again, reduce, outside, outside_reduce, kept_whole)


def sharded_comm_s(
    recipe: Recipe, layout: Layouts, layers: Split, layer: LayerTime, moved: Moves | None = None
) -> tuple[Numeric, Numeric]:
    """Gathers and reductions of a step: what is exposed, and what hides. moved: moves(), where they
    are known.

    Formula: a layer's gather g hides behind the forward of another; the second one g' and its
             reduction r, summed over the copies of HSDP, behind the backward of another; g' is
             among the hpz ranks of ZeRO++'s second copy where there is one, else g; routed experts
             among edp ranks; reduced is what is trained alone, gathered the frozen weights too;
             exposed of each micro-batch: what outlasts them, the first gather and the last
             reduction, those of embedding and head; gradients_deferred() are reduced once, in a
             pipeline beside nothing
    Source:  [rajbhandari2020] sec. 7.2.2; [torch-fsdp] backward prefetch, one gather ahead
    Assumes: gathers and reductions share one communication stream; the table stays gathered from
             forward to backward.
    """
    software, each = recipe.software, moved or moves(recipe, layout, layers)
    ahead = software.sharding.overlap_share * (software.sharding.prefetch_elements > 0)
    forward = np.minimum(each.gather_s, layer.forward_s) * ahead
    again = np.minimum(each.again_s * ahead, layer.backward_s)
    reduced = each.reduce_s * software.overlap.grad_share
    reduced = np.minimum(reduced, layer.backward_s - again)
    late = gradients_deferred(recipe, layout)
    times = np.where(late, 1, layout.m)
    overlapped = times * ~(late & layout.pipelined)
    hidden = layout.m * (forward + again) + overlapped * reduced
    count = layers.first.total
    hidden = np.maximum(count - 1, 0) * hidden
    gathers = count * (each.gather_s + each.again_s) + each.outside_s
    reductions = count * each.reduce_s + each.outside_reduce_s
    total = layout.m * gathers + times * reductions + each.whole_s
    return total - hidden, hidden


TENSORS = 6
"""Parameter tensors of a layer: four linears, two norms."""


def tensors_of(layers: Split) -> Numeric:
    """Parameter tensors of the first rank without its routed experts', tables of both ends too."""
    return layers.first.total * TENSORS + 2.0


def routed_tensors(recipe: Recipe, layout: Layouts, layers: Split) -> Numeric:
    """Parameter tensors of the first rank's routed experts: two products each."""
    each = (model.moe.num_experts if model.moe else 0 for model in kinds(recipe.model).values())
    return layers.first.times(each) * 2.0 / layout.ep


def buckets(recipe: Recipe, layout: Layouts, params: Numeric, tensors: Numeric) -> Numeric:
    """Buckets of so many parameters in so many tensors, as far as they are told.

    Formula: ddp_num_buckets, or params / ddp_bucket_size, where no FSDP shards gradients;
             DeepSpeed's reduce_bucket_size where the optimizer is sharded; at least 1, at most one
             a tensor
    Source:  [megatron-core] training/training.py resolve_ddp_bucket_size,
             core/distributed/param_and_grad_buffer.py: a bucket closes after a whole tensor;
             [deepspeed] runtime/zero/stage_1_and_2.py: a larger tensor goes by itself
    Assumes: later stages and virtual stages, which reduce all at once, wait for the first.
    """
    sharding = recipe.software.sharding
    if sharding.reduce_elements:
        count, there = params / sharding.reduce_elements, layout.sharded(1)
    elif sharding.bucket_params or sharding.buckets:
        count = sharding.buckets or params / sharding.bucket_params
        there = ~layout.sharded(2)
    else:
        return 1.0
    return np.where(there, np.maximum(np.minimum(count, tensors), 1.0), 1.0)


def gradient_reduction_s(
    recipe: Recipe,
    layout: Layouts,
    members: collectives.Group,
    params: Numeric,
    tensors: Numeric = np.inf,
) -> Numeric:
    """Sum of so many parameters' gradients, in so many tensors, over the group, once.

    Formula: n collectives of 1/n of the bytes, reduce-scatters with sharding unless the software
             all-reduces, else all-reduces; n = bytes / reduce_mib or buckets() beside the backward
             pass, 1 after it
    Source:  [rajbhandari2020]; [nanotron] sync_gradients_across_dp, and torch's
             DistributedDataParallel with its buckets without sharding
    Assumes: messages alike.
    """
    software, sharded = recipe.software, layout.sharded(1)
    moved = params * reduced_bytes(recipe, layout)
    pieces = (
        np.maximum(moved / (software.sharding.reduce_mib * MIB), 1.0)
        if software.sharding.reduce_mib
        else buckets(recipe, layout, params, tensors)
    )
    messages = np.where(sharded & software.sharding.reduced_at_end, 1.0, pieces)
    all_reduced = messages * collectives.all_reduce_s(recipe.hardware, members, moved / messages)
    scattered = messages * collectives.gather_s(recipe.hardware, members, moved / messages)
    return np.where(sharded & ~all_reduces(recipe, layout), scattered, all_reduced)


def late_share(recipe: Recipe, layout: Layouts, layers: Split) -> Numeric:
    """Share of the first rank's parameters whose gradients come last, after which no backward pass
    is left to hide their reduction.

    Formula: (layer + embedding) / (layers layer + embedding, and head without a pipeline); at least
             one bucket, where they are told
    Source:  [megatron-core] --overlap-grad-reduce; [nanotron] DistributedDataParallel: buckets in
             the order of the backward pass
    Assumes: a tied table's gradient is whole with the embedding's; routed experts are reduced as
             the rest.
    """
    each = sum(trained_layers(recipe, layout, one(recipe.model, 0)))
    inside = sum(trained_layers(recipe, layout, layers.first))
    total = np.maximum(inside + trained_ends(recipe, layout), 1.0)
    late = np.minimum(each + trained_front(recipe, layout), total) / total
    sharding = recipe.software.sharding
    if not (sharding.buckets or sharding.bucket_params):
        return late
    pieces = buckets(recipe, layout, total, tensors_of(layers))
    return np.where(layout.sharded(2), late, np.maximum(late, 1 / pieces))


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What a step's data-parallel collectives take, whatever hides them; no matter of
    micro-batches.
    """

    reduce_s: Numeric
    gather_s: Numeric
    late_share: Numeric
    layer_gather_s: Numeric
    """Of one layer whose weights are sharded; likewise the next two."""
    layer_again_s: Numeric
    layer_reduce_s: Numeric
    outside_s: Numeric
    outside_reduce_s: Numeric
    whole_s: Numeric


def _knobs(recipe: Recipe) -> tuple[str, ...]:
    """What the collectives depend on: between sites v and m too, with experts v."""
    if recipe.hardware.fabric.sites > 1:
        return (*REPLICA_KNOBS, "v", "m")
    return (*REPLICA_KNOBS, "v") if recipe.model.moe else REPLICA_KNOBS


@once_per(_knobs)
def exchanged(recipe: Recipe, layout: Layouts, layers: Split) -> Exchanged:
    """Reductions and gathers of the first rank.

    Formula: gradient_reduction_s() and an all-gather of the parameters, experts' besides; moves()
             of sharded weights; late_share()
    Source:  [rajbhandari2020]
    Assumes: as dp_comm_s().
    """
    params, routed = trained_layers(recipe, layout, layers.first)
    reduce, gather = _reductions(
        recipe,
        layout,
        (layout.tp, layout.replicas),
        params,
        tensors_of(layers),
        trained_ends(recipe, layout),
    )
    if recipe.model.moe:
        alike = (layout.etp * layout.ep, expert_ranks(layout))
        tensors = routed_tensors(recipe, layout, layers)
        more = _reductions(recipe, layout, alike, routed, tensors)
        reduce, gather = reduce + more[0], gather + more[1]
    each = moves(recipe, layout, layers)
    late = late_share(recipe, layout, layers)
    return Exchanged(
        reduce,
        gather,
        late,
        each.gather_s,
        each.again_s,
        each.reduce_s,
        each.outside_s,
        each.outside_reduce_s,
        each.whole_s,
    )


def _reductions(
    recipe: Recipe,
    layout: Layouts,
    alike: tuple[Numeric, Numeric],
    inside: Numeric,
    tensors: Numeric,
    ends: Numeric = 0.0,
) -> tuple[Numeric, Numeric]:
    """Reduction of the gradients of so many parameters of the layers, and outside them, in so many
    tensors, among the ranks that hold them alike (how far apart, how many), and gathering of the
    parameters.

    Formula: of k copies of the sharded states both within ranks / k; then copies_summed_s()
    Source:  [megatron-core] core/distributed/param_and_grad_buffer.py
    Assumes: ranks of a copy are neighbours.
    """
    (stride, ranks), params = alike, inside + ends
    members = sites.group(recipe, layout, stride, ranks / instances(recipe, layout))
    wide = recipe.element_bytes
    sent = gathered_as(recipe, layout, wide) * inside + wide * ends
    pieces = buckets(recipe, layout, params, tensors)
    elements = recipe.software.sharding.gather_elements
    calls = np.maximum(params / elements, 1.0) if elements else pieces
    gathered = calls * collectives.gather_s(recipe.hardware, members, sent / calls)
    reduced = gradient_reduction_s(recipe, layout, members, params, tensors)
    reduced = reduced + copies_summed_s(recipe, layout, stride, ranks, params, pieces)
    return reduced, np.where(layout.sharded(1), gathered, 0.0)


def _reduced_after(recipe: Recipe, layout: Layouts) -> Mask:
    """Whether gradients are reduced after the backward pass, beside nothing: by the software, where
    they are whole or in a pipeline, or where a sum in 32 bits is (DeepSpeed's BF16_Optimizer), or
    the pipeline reduces them at its end (torch).
    """
    software = recipe.software
    after = layout.sharded(1) & software.sharding.reduced_at_end
    whole = (layout.pipelined | ~layout.sharded(1)) & software.quirks.shards_overlap_alone
    summed = (np.asarray(layout.zero) == 1) & (accumulated_bytes(recipe, layout) > 0)
    deferred = layout.sharded(2) & layout.pipelined & gradients_deferred(recipe, layout)
    mask: Mask = after | whole | summed | deferred
    return mask


def dp_comm_s(
    recipe: Recipe, layout: Layouts, layers: Split, layer: LayerTime, ends: EndsTime
) -> tuple[Numeric, Numeric]:
    """Gradient reduction and parameter gathering over dp cp, of experts over edp: what is exposed,
    and what hides.

    Formula: reduce-scatter of grad_reduce_bytes (all-reduce without sharding, or where the software
             has it) + all-gather of 2 bytes a parameter, gathered_as() of the layers, once a step;
             hidden behind one micro-batch's backward and forward of the rank as far as the software
             overlaps, but for the tensors whose gradients come last, embedding and first layer; the
             CPU joins slices of gathered tensors; sharded weights: sharded_comm_s()
    Source:  [rajbhandari2020]; [megatron-core] --overlap-grad-reduce, --overlap-param-gather;
             [nanotron] all_gather_coalesced
    Assumes: of what is trained; the first pipeline rank decides, the others wait less; sharded
             gradients are reduced every micro-batch.
    """
    software, sums = recipe.software, exchanged(recipe, layout, layers)
    size = layout.replicas
    group: Mask = np.asarray(size) > 1
    if recipe.model.moe:
        group = group | (expert_ranks(layout) > 1)
    window = np.where(layout.sharded(2) & ~gradients_deferred(recipe, layout), layout.m, 1)
    reduce = sums.reduce_s * window
    count = layers.first.total
    gather = sums.gather_s + size * count * TENSORS * software.launch.gather_us * MICRO * (
        layout.sharded(1)
    )
    beside_backward = window * (count * layer.backward_s + ends.embedding_backward_s)
    overlapped = software.overlap.grad_share * ~_reduced_after(recipe, layout)
    hidden = np.minimum(reduce * (1 - sums.late_share), beside_backward) * overlapped
    hidden = (
        hidden
        + np.minimum(gather * (1 - sums.late_share), count * layer.forward_s)
        * software.overlap.param_share
    )
    moved = Moves(
        sums.layer_gather_s,
        sums.layer_again_s,
        sums.layer_reduce_s,
        sums.outside_s,
        sums.outside_reduce_s,
        sums.whole_s,
    )
    exposed_sharded, hidden_sharded = sharded_comm_s(recipe, layout, layers, layer, moved)
    sharded = layout.sharded(3)
    exposed = np.where(sharded, exposed_sharded, reduce + gather - hidden)
    return exposed * group, np.where(sharded, hidden_sharded, hidden) * group


def embedding_comm_s(recipe: Recipe, layout: Layouts) -> Numeric:
    """Gradients of a tied table, summed over first and last stage.

    Formula: all-reduce of padded_vocab h / tp elements between two ranks
    Source:  [megatron-core] finalize_model_grads
    Assumes: not hidden.
    """
    model = recipe.model
    size = (
        padded_vocab(model, layout.tp)
        / layout.tp
        * model.hidden_size
        * recipe.software.states.grad_reduce_bytes
    )
    stride = layout.tp * layout.cp * layout.dp * np.maximum(layout.pp - 1, 1)
    pair, summed = (
        sites.ends_pair(recipe, layout, stride),
        model.tied_embeddings and trains(recipe, "embedding"),
    )
    return collectives.all_reduce_s(recipe.hardware, pair, size) * layout.pipelined * summed
