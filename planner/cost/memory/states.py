"""Bytes of weights, gradients and optimizer states on a rank, trained and frozen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.memory.offload import (
    in_bf16_pipeline,
    optimizer_away,
    sums_bytes,
    weights_away,
)
from planner.cost.memory.optimizer_states import saved_bytes
from planner.cost.params.layer import embedding_params, head_params, norm_params
from planner.cost.params.lora import NF4
from planner.cost.params.per_rank import instances, shard_copies
from planner.cost.params.stages import Layers
from planner.cost.params.trained import (
    adapters_params,
    frozen_params,
    trained_layers,
    trains,
    trains_all,
)
from planner.cost.params.vision import tower_in
from planner.layout import Layouts, Mask, Numeric
from planner.specs.layers import kinds
from planner.specs.recipe import Recipe
from planner.specs.software import Software


@dataclass(frozen=True, slots=True)
class Rank:
    """A pipeline rank as memory sees it."""

    layers: Layers
    params: Numeric
    in_flight: Numeric
    """Micro-batches' activations held at the peak, in whole stages."""
    has_embedding: Numeric
    has_head: Numeric
    expert_params: Numeric = 0.0
    """Of the parameters those of routed experts, which edp ranks share in place of dp cp."""


@dataclass(frozen=True, slots=True)
class Held:
    """Parameters that a rank holds, of one kind of sharing."""

    trained: Numeric
    frozen: Numeric = 0.0
    matrices: Numeric | None = None
    """Of the trained ones those of the layers; None: all."""
    narrow: Numeric = 0.0
    """Of the frozen ones those that are kept in 4 bits."""


def rank_holds(recipe: Recipe, layout: Layouts, rank: Rank) -> tuple[Held, Held]:
    """What a rank holds trained and frozen: over dp cp, and routed experts.

    Formula: all of it trained; with adapters these, and all else frozen; else frozen parts of the
             layers and of the rank's ends
    Source:  [hu2021] sec. 4: pre-trained weights get no gradients
    Assumes: layers of multi-token prediction count with embedding and head.
    """
    params, routed = rank.params - rank.expert_params, rank.expert_params
    matrices = (
        trained_layers(recipe, layout, rank.layers)[0] if recipe.optimizer == "muon" else None
    )
    if trains_all(recipe):
        return Held(params, 0.0, matrices), Held(routed)
    frozen, more = frozen_params(recipe, layout, rank.layers)
    adapters = adapters_params(recipe, layout, rank.layers)
    four_bits = float(recipe.lora is not None and recipe.lora.base == "nf4")
    narrow = (
        frozen
        - rank.layers.times(
            model.norms_per_layer * norm_params(model) for model in kinds(recipe.model).values()
        )
    ) * four_bits
    frozen = frozen + rank.has_embedding * embedding_params(recipe.model, layout.tp) * (
        not trains(recipe, "embedding")
    )
    frozen = frozen + rank.has_embedding * tower_in(recipe) * (not trains(recipe, "vision"))
    frozen = frozen + rank.has_head * head_params(recipe.model, layout) * (
        not trains(recipe, "head")
    )
    trained = np.maximum(
        params - frozen + adapters[0], 0.0
    )  # all frozen, the sums differ by a rounding
    return Held(trained, frozen, matrices, narrow), Held(
        np.maximum(routed - more + adapters[1], 0.0), more, None, more * four_bits
    )


def state_bytes(
    recipe: Recipe,
    layout: Layouts,
    params: Numeric,
    alike: Numeric | None = None,
    frozen: Numeric = 0.0,
    matrices: Numeric | None = None,
    narrow: Numeric = 0.0,
) -> tuple[Numeric, Numeric, Numeric]:
    """Weights, gradients, optimizer states of so many trained and frozen parameters on a rank,
    which `alike` ranks hold (dp cp when None).

    Formula: weight_bytes + gradient_bytes + optimizer_state_bytes a parameter, less what another
             optimizer saves; ZeRO 1 shards the last, over the ranks of an instance, 2 gradients but
             for gradients_deferred(), 3 weights; frozen ones are weights alone, of 2 bytes, of 0.52
             in nf4; weights that are a master are sharded from ZeRO 2 on, and below 3 their
             gathered copy is held whole; a bf16 pipeline of DeepSpeed adds sums_bytes and shards
             the optimizer under ZeRO 0 too; offloaded states are not on the device, nor are their
             gradients from ZeRO 2 on; hpZ adds weights over its group; FSDP shards over the ranks
             of one of shard_copies()
    Source:  [rajbhandari2020]; [megatron-core] 6 + 12/(dp cp) with the distributed optimizer;
             [torch-fsdp]; [deepspeed]; [dettmers2023]
    Assumes: even shards, of Muon's whole matrices too.
    """
    software, ranks = _software(recipe), layout.replicas if alike is None else alike
    shards = ranks / shard_copies(recipe, layout)
    zero = np.asarray(layout.zero)
    master = software.sharding.gathered_bytes > 0
    stored = (
        software.states.weight_bytes * params
        + (4.0 if recipe.precision == "fp32" else software.states.frozen_bytes) * (frozen - narrow)
        + NF4 * narrow
    )
    weights: Numeric = stored / np.where(zero >= (2 if master else 3), shards, 1)
    weights = weights + (
        software.sharding.gathered_bytes * (params + frozen - narrow) + master * NF4 * narrow
    ) * (zero < 3)
    weights = weights * (1 - weights_away(layout)) + 2.0 * (params + frozen) / layout.hpz * (
        np.asarray(layout.hpz) > 1
    )
    gradient_bytes = (
        software.states.gradient_bytes
        + sums_bytes(recipe, layout)
        + accumulated_bytes(recipe, layout)
    )
    split = (zero >= 2) & ~gradients_deferred(recipe, layout)
    gradients = (
        gradient_bytes
        * params
        / np.where(split, shards, 1)
        * (1 - optimizer_away(recipe, layout) * (zero >= 2))
    )
    held = software.states.optimizer_state_bytes * params - saved_bytes(
        recipe, params, params if matrices is None else matrices
    )
    owners = ranks / instances(recipe, layout)
    states = held / np.where((zero >= 1) | (in_bf16_pipeline(recipe, layout) > 0), owners, 1)
    return weights, gradients, states * (1 - optimizer_away(recipe, layout))


def gradients_deferred(recipe: Recipe, layout: Layouts) -> Mask:
    """Whether sharded gradients stay whole until a step's last micro-batch.

    Formula: by the software, or by it in a pipeline
    Source:  [torch-pipelining] stage.py: set_requires_gradient_sync(False) in every
             backward pass, then perform_reduce_grad()
    Assumes: the whole gradients are of gradient_bytes; their shards take their place.
    """
    sharding = recipe.software.sharding
    mask: Mask = sharding.gradients_deferred | (
        layout.pipelined & sharding.gradients_deferred_in_pipeline
    )
    return mask


def reduced_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """Bytes of a gradient as it is reduced.

    Formula: 4 under fp32; sequence_reduce_bytes where ranks share a sequence and the software has
             it, else grad_reduce_bytes
    Source:  [deepspeed] runtime/engine.py _configure_distributed_model
    Assumes: all gradients alike.
    """
    states = recipe.software.states
    if recipe.precision == "fp32":
        return 4.0
    shared = (np.asarray(layout.cp) > 1) & (states.sequence_reduce_bytes > 0)
    return np.where(shared, states.sequence_reduce_bytes, states.grad_reduce_bytes)


def accumulated_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """Bytes of a gradient that are held for adding micro-batches, beyond gradient_bytes.

    Formula: accumulated_bytes whole under ZeRO 1; in place of gradient_bytes from ZeRO 2 on
    Source:  [deepspeed] runtime/bf16_optimizer.py, zero/stage3.py grad_partitions_flat_buffer
    Assumes: a pipeline has sums_bytes(), an optimizer on the host adds there.
    """
    states, zero = recipe.software.states, np.asarray(layout.zero)
    if recipe.precision == "fp32":
        return 0.0
    beyond = max(states.accumulated_bytes - states.gradient_bytes, 0.0)
    each = np.where(zero == 1, states.accumulated_bytes, np.where(zero >= 2, beyond, 0.0))
    return each * ~layout.pipelined * (np.asarray(layout.offload) == 0)


def _software(recipe: Recipe) -> Software:
    """Under fp32 weights are their own master: 4 + 4 + 8 bytes."""
    if recipe.precision != "fp32":
        return recipe.software
    alone = {
        "states.weight_bytes": 4.0,
        "states.gradient_bytes": 4.0,
        "states.optimizer_state_bytes": 8.0,
        "sharding.gathered_bytes": 0.0,
    }
    return recipe.software.with_figures(alone)
