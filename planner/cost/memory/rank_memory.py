"""Memory of the worst pipeline rank: parameters, activations in flight, working set, what is not
tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from statistics import NormalDist

import numpy as np

from planner.cost.layer.embedding_and_head import deferred_bytes
from planner.cost.layer.kernels import erf
from planner.cost.memory.activations import Activations, Kept
from planner.cost.memory.offload import in_bf16_pipeline, optimizer_away
from planner.cost.memory.quantized_weights import beyond_16_bits
from planner.cost.memory.states import Rank as Rank
from planner.cost.memory.states import rank_holds, reduced_bytes
from planner.cost.memory.states import state_bytes as state_bytes
from planner.cost.params.layer import front_params, head_params, mtp_stage_params
from planner.cost.params.lora import sent_bytes
from planner.cost.params.per_rank import expert_ranks, layers_params, mtp_routed
from planner.cost.params.stages import Layers, Split, one_of_each
from planner.cost.params.trained import trained_layers
from planner.cost.params.vision import tower_in
from planner.cost.params.whole import whole_params
from planner.cost.schedule_terms import in_flight
from planner.cost.terms import ACCEPTED_OOM_PROBABILITY, Memory
from planner.cost.unique_rows import REPLICA_KNOBS, once_per
from planner.layout import Layouts, Numeric
from planner.specs.megatron import exchange_overlaps
from planner.specs.recipe import Recipe
from planner.specs.software import Software
from planner.units import GIB, MIB


def largest_layer(recipe: Recipe, layout: Layouts) -> Numeric:
    """Parameters of the largest kind of layer on one rank."""
    model = recipe.model
    return reduce(
        np.maximum, (sum(layers_params(model, layout, layer)) for layer in one_of_each(model))
    )


def dummy_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """What autograd gets for the weight gradients of one layer where products add to the main
    gradient: of what is trained.
    """
    largest: Numeric = 0.0
    for layer in one_of_each(recipe.model):
        largest = np.maximum(largest, sum(trained_layers(recipe, layout, layer)))
    return recipe.software.states.dummy_gradient_bytes * largest


def _gathered_params(software: Software) -> float:
    """Whole parameters that are held at a time at most."""
    sharding = software.sharding
    return min(sharding.gathered_params, sharding.reuse_elements or sharding.gathered_params)


def gathered_bytes(recipe: Recipe, layout: Layouts, rank: Rank) -> Numeric:
    """Whole weights that a rank holds for a moment when they are sharded, and whole gradients
    beside them.

    Formula: 2 bytes (gathered_layers layers + gathered_params, at most what the rank has, +
             embedding and head of the rank) + whole_params() of its layers, all the time; a vision
             tower layer by layer, which are smaller
    Source:  [torch-fsdp] limit_all_gathers; [deepspeed] stage3_max_live_parameters
    Assumes: 2-byte copies; tables stay gathered from forward to backward.
    """
    software, layer = recipe.software, largest_layer(recipe, layout)
    inside = sum(layers_params(recipe.model, layout, rank.layers))
    whole = rank.layers.times(whole_params(each, layout) for each in recipe.kinds)
    held = (
        np.minimum(software.sharding.gathered_layers, rank.layers.total) * layer
        + whole
        + np.minimum(_gathered_params(software), inside - whole)
        + rank.params
        - inside
        - rank.has_embedding * tower_in(recipe)
    )
    return (
        sent_bytes(recipe)
        * held
        * layout.sharded(3)
        * (software.sharding.gathered_layers + software.sharding.gathered_params > 0)
    )


def bucket_bytes(recipe: Recipe, layout: Layouts, trained: Numeric) -> Numeric:
    """Buffers in which gradients, or updated weights, travel.

    Formula: where the software states elements: so many of the reduction's bytes, reduce_buffers
             of them, at most one under ZeRO 3 and in a pipeline, there of what is trained at most;
             one in a bf16 pipeline, which reduces by itself; else min(2 bytes a trained parameter,
             bucket)
    Source:  [deepspeed] runtime/zero/stage_1_and_2.py setup_buckets, stage3.py, pipe/engine.py
             _bf16_reduce_grads; [megatron-core] distributed optimizer
    Assumes: held the whole step.
    """
    software, alike = recipe.software, layout.sharded(1) & (layout.replicas > 1)
    elements, buffers = software.sharding.reduce_elements, software.sharding.reduce_buffers
    if not elements:
        return alike * np.minimum(trained * 2.0, software.allocator.bucket_mib * MIB)
    count = np.where(layout.sharded(3) | layout.pipelined, min(buffers, 1.0), buffers)
    count = np.where(layout.pipelined & (recipe.precision == "bf16"), 1.0, count)
    size = np.where(layout.pipelined, np.minimum(elements, trained), elements)
    return alike * count * size * reduced_bytes(recipe, layout)


def kept_bytes(
    layout: Layouts,
    acts: Activations,
    layers: Layers,
    has_embedding: Numeric,
    has_head: Numeric = 0.0,
) -> Numeric:
    """Activations of one micro-batch that a virtual stage of so many layers keeps.

    Formula: recomputed layers * input + other layers * kept + embedding's and vision tower's;
             multi-token prediction's with the head
    Source:  [korthikanti2022] sec. 5; [megatron-core] --recompute-num-layers counts within a
             virtual stage
    Assumes: as many of each kind are recomputed as of all layers of the stage.
    """
    total = layers.total
    limited = np.where(np.asarray(layout.recompute_layers) > 0, layout.recompute_layers, total)
    recomputed = np.where(layout.recomputes_all, np.minimum(limited, total), 0.0)
    share = recomputed / np.maximum(total, 1e-9)
    inputs = layers.times(kind.input_bytes for kind in acts.kinds)
    whole = layers.times(kind.layer_bytes for kind in acts.kinds)
    ends = has_embedding * acts.embedding_bytes + has_head * acts.mtp_bytes
    return share * inputs + (1 - share) * whole + ends


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes of a rank that micro-batches do not change, and its trained parameters."""

    weights: Numeric
    gradients: Numeric
    optimizer: Numeric
    trained: Numeric
    buffers: Numeric


def _resident_knobs(recipe: Recipe) -> tuple[str, ...]:
    """What states depend on; which layers have experts depends on v too."""
    return (*REPLICA_KNOBS, "offload", *(("v",) if recipe.model.moe else ()))


@once_per(_resident_knobs)
def resident_of(recipe: Recipe, layout: Layouts, ranks: tuple[Rank, ...]) -> tuple[Resident, ...]:
    """resident() of several pipeline ranks."""
    return tuple(resident(recipe, layout, rank) for rank in ranks)


def resident(recipe: Recipe, layout: Layouts, rank: Rank) -> Resident:
    """States and buffers of one pipeline rank.

    Formula: state_bytes() of what rank_holds(), routed experts over their own ranks;
             beyond_16_bits() of the layers; bucket_bytes() + workspace + dummy_bytes() +
             gathered_bytes()
    Source:  [megatron-core] distributed optimizer
    Assumes: as those.
    """
    software = recipe.software
    shared, routed = rank_holds(recipe, layout, rank)
    weights, gradients, optimizer = state_bytes(
        recipe, layout, shared.trained, None, shared.frozen, shared.matrices, shared.narrow
    )
    if recipe.model.moe:
        more = state_bytes(
            recipe,
            layout,
            routed.trained,
            expert_ranks(layout),
            routed.frozen,
            routed.matrices,
            routed.narrow,
        )
        weights, gradients, optimizer = weights + more[0], gradients + more[1], optimizer + more[2]
    dense, experts = layers_params(recipe.model, layout, rank.layers)
    weights = weights + beyond_16_bits(recipe, layout, dense, layout.replicas)
    if recipe.model.moe:
        weights = weights + beyond_16_bits(recipe, layout, experts, expert_ranks(layout))
    trained = shared.trained + routed.trained
    buffers = bucket_bytes(recipe, layout, trained) + software.allocator.workspace_mib * MIB
    buffers = buffers + dummy_bytes(recipe, layout) + gathered_bytes(recipe, layout, rank)
    return Resident(weights, gradients, optimizer, trained, buffers)


def rank_memories(
    recipe: Recipe,
    layout: Layouts,
    acts: Activations,
    ranks: tuple[Rank, ...],
    states: tuple[Resident, ...] | None = None,
) -> list[Memory]:
    """Memory terms of several pipeline ranks; states: resident_of() them, where it is known."""
    states = states or resident_of(recipe, layout, ranks)
    pairs = zip(ranks, states, strict=True)
    return [rank_memory(recipe, layout, acts, rank, state) for rank, state in pairs]


def rank_memory(
    recipe: Recipe,
    layout: Layouts,
    acts: Activations,
    rank: Rank,
    states: Resident | None = None,
) -> Memory:
    """Memory terms of one pipeline rank; states: resident() of it, where it is known.

    Formula: states + in flight * layers * kept, with more_in_flight() + max(head, backward's
             temporaries + kept logits, unit_gradient_bytes a parameter once one micro-batch's kept
             is gone, the vision tower's once that of the layers is, update_bytes() once all is gone
             that passes hold) + buffers + graph_bytes() + pipeline_bytes() + fragmentation +
             context + communicators
    Source:  [korthikanti2022] sec. 4; reserved over allocated from measured runs
    Assumes: with full recomputation one layer's working set at a time; the peak is at a backward
             pass.
    """
    software = recipe.software
    states = states or resident(recipe, layout, rank)
    weights, gradients, optimizer, buffers = (
        states.weights,
        states.gradients,
        states.optimizer,
        states.buffers,
    )
    v = layout.v
    kept: Numeric = (
        kept_bytes(
            layout,
            acts,
            rank.layers / v,
            rank.has_embedding / v,
            rank.has_head / v,
        )
        * v
    )
    inner = reduce(np.maximum, (_inner_bytes(layout, kind) for kind in acts.kinds))
    working = np.maximum(inner + rank.has_head * acts.logits_bytes, rank.has_head * acts.head_bytes)
    gathered = rank.layers.times(kind.gathered_bytes for kind in acts.kinds)
    kept = kept + gathered * ~layout.pipelined
    working = np.maximum(working, software.states.unit_gradient_bytes * states.trained - kept)
    behind_tower = kept - rank.has_embedding * acts.embedding_bytes
    working = np.maximum(working, rank.has_embedding * acts.tower_bytes - behind_tower)
    activation = (rank.in_flight + more_in_flight(recipe, layout, rank)) * kept
    activation = activation + rank.has_head * deferred_bytes(recipe, layout)
    if software.states.update_bytes:
        freed = activation + gathered_bytes(recipe, layout, rank)
        working = np.maximum(working, update_bytes(recipe, layout, states.trained) - freed)
    buffers = buffers + graph_bytes(recipe, layout, rank, activation + working)
    buffers = buffers + pipeline_bytes(recipe, layout, acts, rank)
    allocated = weights + gradients + optimizer + activation + working + buffers
    communicators = (
        layout.tensor_split.astype(float) + (layout.replicas > 1) + 2 * layout.pipelined + 1
    )
    communicators = (
        communicators + 2 * (np.asarray(layout.ep) > 1) if recipe.model.moe else communicators
    )
    return Memory(
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activation,
        working_bytes=working,
        buffers_bytes=buffers,
        fragmentation_bytes=allocated * (software.allocator.reserved_share - 1),
        context_bytes=software.allocator.context_gib * GIB,
        nccl_bytes=communicators * software.allocator.communicator_mib * MIB,
    )


def update_bytes(recipe: Recipe, layout: Layouts, trained: Numeric) -> Numeric:
    """What the update of a rank's share of so many parameters holds beside their states.

    Formula: update_bytes a parameter of its share; under ZeRO 3 of update_elements at most
    Source:  [deepspeed] runtime/zero/stage3.py _prepare_fp32_grad_for_sub_group,
             stage_1_and_2.py step: gradients joined in 16 bits, then converted to 32
    Assumes: one group of parameters; an optimizer in host memory, and that of a bf16 pipeline,
             hold nothing here.
    """
    each = recipe.software.states.update_bytes
    share = trained / layout.shards(1)
    tile = np.minimum(share, recipe.software.sharding.update_elements)
    here = layout.sharded(1) * (1 - optimizer_away(recipe, layout))
    here = here * (np.asarray(in_bf16_pipeline(recipe, layout)) == 0)
    return each * np.where(layout.sharded(3), tile, share) * here


def pipeline_bytes(recipe: Recipe, layout: Layouts, acts: Activations, rank: Rank) -> Numeric:
    """What a pipeline of torch holds beside the activations of its layers.

    Formula: inputs of a layer: for each stage that receives them m, of which those in flight are
             the layers' own; for each that sends m gradients, and in flight its outputs
    Source:  [torch-pipelining] stage.py: args_recv_info, grad_recv_info, fwd_cache
    Assumes: stages of a rank have as many micro-batches in flight each.
    """
    if not recipe.software.kept.pipeline_buffers:
        return 0.0
    received, sent = layout.v - rank.has_embedding, layout.v - rank.has_head
    waiting = np.maximum(layout.m - rank.in_flight, 0.0)
    count = received * waiting + sent * (layout.m + rank.in_flight)
    return count * acts.kinds[0].input_bytes * layout.pipelined


def _inner_bytes(layout: Layouts, kind: Kept) -> Numeric:
    """Peak inside the backward pass of one layer, beyond what is kept for it.

    Formula: temporaries + what recomputation brings back
    Source:  [korthikanti2022] sec. 5
    Assumes: one layer at a time.
    """
    full = np.where(layout.recomputes_all, kind.whole_bytes - kind.input_bytes, 0.0)
    chosen = np.where(layout.recomputes_modules, kind.whole_bytes - kind.layer_bytes, 0.0)
    return kind.temporary_bytes + full + chosen


def hosted_bytes(acts: Activations, ranks: tuple[Rank, ...]) -> Numeric:
    """Activations in host memory of the pipeline rank that sends most.

    Formula: in flight * (layers * moved) of each kind
    Source:  [megatron-core] core/pipeline_parallel/fine_grained_activation_offload.py
    Assumes: every micro-batch in flight is there.
    """
    most: Numeric = 0.0
    for rank in ranks:
        held = rank.layers.times(kind.hosted.moved_bytes for kind in acts.kinds)
        most = np.maximum(most, rank.in_flight * held)
    return most


def more_in_flight(recipe: Recipe, layout: Layouts, rank: Rank) -> Numeric:
    """Whole stages of activations more than the schedule holds, where the exchange of experts runs
    beside another micro-batch.

    Formula: one layer, 1 / layers, while there are micro-batches left
    Source:  [megatron-core] get_pp_rank_microbatches: one forward step more before 1F1B, after
             which each layer of a forward chunk is kept as one of a backward chunk is freed
    Assumes: both chunks advance alike.
    """
    overlaps = exchange_overlaps(recipe, layout)
    layer = 1 / np.maximum(rank.layers.total, 1)
    return np.minimum(layer, layout.m - rank.in_flight) * overlaps


def graph_bytes(recipe: Recipe, layout: Layouts, rank: Rank, activations: Numeric) -> Numeric:
    """What CUDA graphs hold beside the tensors that training keeps anyway.

    Formula: graph_tensors hidden states of 2 bytes for each layer and micro-batch in flight +
             graph_pool_share of activations and working set
    Source:  [megatron-core] TECudaGraphHelper: static inputs for each layer and micro-batch in
             flight, reused once its backward pass is over
    Assumes: saved tensors in the graphs' pool take the place of those in the allocator's.
    """
    allocator = recipe.software.allocator
    hidden = recipe.tokens_per_rank(layout) * recipe.model.hidden_size * 2 / layout.sequence_shards
    static = allocator.graph_tensors * hidden * rank.layers.total * rank.in_flight
    return static + allocator.graph_pool_share * activations


def ranks(recipe: Recipe, layout: Layouts, layers: Split) -> tuple[Rank, Rank, Rank]:
    """The three ranks that can be the worst: the first, the second, the last.

    Formula: in flight falls with the rank, so the second stands for all between
    Source:  [megatron-core]
    Assumes: middle ranks alike.
    """
    alone, two = np.asarray(layout.pp) == 1, np.asarray(layout.pp) <= 2
    second = np.minimum(1, np.maximum(layout.pp - 2, 0))
    return (
        rank_of(recipe, layout, layers.first, in_flight(layout, 0), 1.0, alone),
        rank_of(recipe, layout, layers.middle, in_flight(layout, second), two, alone),
        rank_of(recipe, layout, layers.last, in_flight(layout, layout.pp - 1), alone, 1.0),
    )


def rank_of(
    recipe: Recipe,
    layout: Layouts,
    layers: Layers,
    in_flight: Numeric,
    has_embedding: Numeric,
    has_head: Numeric,
) -> Rank:
    """A rank of so many layers; multi-token prediction is where the head is.

    Formula: layers + front_params() (has_embedding) + head and prediction (has_head)
    Source:  [megatron-core] GPTModel
    Assumes: the final norm is counted with the head.
    """
    model = recipe.model
    dense, routed = layers_params(model, layout, layers)
    routed = routed + has_head * mtp_routed(model, layout)
    front, last = front_params(recipe, layout.tp), head_params(model, layout)
    if model.mtp_layers:
        last = last + mtp_stage_params(model, layout) - mtp_routed(model, layout)
    params = dense + routed + has_embedding * front + has_head * last
    return Rank(layers, params, in_flight, has_embedding, has_head, routed)


def worst(memories: list[Memory]) -> Memory:
    """The memory of the rank that needs most, term by term of that one rank.

    Formula: terms of argmax(device_bytes)
    Source:  [megatron-core]
    Assumes: the ranks given are the candidates.
    """
    best = memories[0]
    for other in memories[1:]:
        more = other.device_bytes > best.device_bytes
        names = Memory.__dataclass_fields__
        best = Memory(**{n: np.where(more, getattr(other, n), getattr(best, n)) for n in names})
    return best


def at(memories: Memory, rank: int) -> Memory:
    """One rank's terms out of columns over the ranks."""
    return Memory(
        **{
            n: np.broadcast_to(getattr(memories, n), np.shape(memories.weights_bytes))[rank]
            for n in Memory.__dataclass_fields__
        }
    )


def oom_probability(
    recipe: Recipe, memory: Memory, limit_bytes: Numeric, guessed_bytes: Numeric = 0.0
) -> Numeric:
    """Chance that the allocator asks for more than the device has. guessed_bytes: deviation of what
    guesses take, guesses.deviation_bytes().

    Formula: P(allocated * ratio + rest > limit), ratio normal with mean reserved_share, deviation
             reserved_spread_share joined with guessed_bytes / allocated
    Source:  fit to reserved over allocated of measured runs, with the model's own error
    Assumes: independent of the layout.
    """
    allocator = recipe.software.allocator
    room = limit_bytes - memory.context_bytes - memory.nccl_bytes
    guessed = guessed_bytes / memory.allocated_bytes
    spread = np.hypot(allocator.reserved_spread_share, guessed)
    z = (allocator.reserved_share - room / memory.allocated_bytes) / spread
    return 0.5 * (1 + erf(z / np.sqrt(2.0)))


def most_allocated_bytes(recipe: Recipe, memory: Memory, limit_bytes: float) -> Numeric:
    """What tensors may take for a layout to fit: the inverse of oom_probability().

    Formula: (limit - rest) / (reserved_share + z reserved_spread_share), z the normal quantile of
             1 - ACCEPTED_OOM_PROBABILITY
    Source:  derived from oom_probability()
    Assumes: guesses take nothing.
    """
    allocator = recipe.software.allocator
    deviations = NormalDist().inv_cdf(1 - ACCEPTED_OOM_PROBABILITY)
    room = limit_bytes - memory.context_bytes - memory.nccl_bytes
    return room / (allocator.reserved_share + deviations * allocator.reserved_spread_share)
