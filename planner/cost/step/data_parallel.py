"""Sharded weights (ZeRO 3, FSDP full shard): gathered for the forward and again for the backward
pass of every micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.layer.layer import LayerTime
from planner.cost.network import collectives, sites
from planner.cost.params.layer import ends_params
from planner.cost.params.lora import sent_bytes
from planner.cost.params.per_rank import expert_ranks, layers_params
from planner.cost.params.stages import Split
from planner.cost.params.trained import trained_ends, trained_layers
from planner.layout import Layouts, Numeric
from planner.specs.recipe import Recipe


def moved_s(
    recipe: Recipe, members: collectives.Group, size_bytes: Numeric, calls: float
) -> Numeric:
    """All-gather or reduce-scatter of so many bytes of sharded weights among the group, in `calls`
    collectives.

    Formula: calls * gather(bytes / calls / shard_bandwidth_share), the share only between nodes
    Source:  [patarasuk2009], [nccl-tuning]
    Assumes: calls of equal size.
    """
    share = np.where(members.nodes > 1, recipe.stack.shard_bandwidth_share, 1.0)
    return calls * collectives.gather_s(recipe.hardware, members, size_bytes / calls / share)


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


def moves(recipe: Recipe, layout: Layouts, layers: Split) -> Moves:
    """How long each collective takes, whatever hides it.

    Formula: moved_s() of a layer's weights, among dp cp ranks and again among hpz, and of its
             trained gradients; of the ends' likewise
    Source:  [rajbhandari2020] sec. 7.2.2
    Assumes: as sharded_comm_s().
    """
    stack, ends, ranks, tp = (
        recipe.stack,
        ends_params(recipe, layout),
        layout.replicas,
        layout.tp,
    )
    one, routed = layers_params(
        recipe.model,
        layout,
        1,
        layers.experts.first / np.maximum(layers.first, 1e-9) if layers.experts else 0,
    )
    moved, more_moved = trained_layers(
        recipe,
        layout,
        1,
        layers.experts.first / np.maximum(layers.first, 1e-9) if layers.experts else 0.0,
    )
    members = sites.group(recipe, layout, tp, ranks)
    near = collectives.group(recipe.hardware, tp, np.minimum(layout.hpz, ranks))
    gather = moved_s(recipe, members, one * sent_bytes(recipe), stack.shard_calls)
    again: Numeric = np.where(
        np.asarray(layout.hpz) > 1,
        moved_s(recipe, near, one * sent_bytes(recipe), stack.shard_calls),
        gather,
    )
    reduce = moved_s(recipe, members, moved * stack.grad_reduce_bytes, stack.shard_calls)
    if layers.experts:
        alike = sites.group(recipe, layout, layout.etp * layout.ep, expert_ranks(layout))
        more = moved_s(recipe, alike, routed * sent_bytes(recipe), stack.shard_calls)
        gather, again = gather + more, again + more
        reduce = reduce + moved_s(
            recipe, alike, more_moved * stack.grad_reduce_bytes, stack.shard_calls
        )
    outside = moved_s(recipe, members, ends * 2.0, 1.0)
    outside = outside + moved_s(
        recipe, members, trained_ends(recipe, layout) * stack.grad_reduce_bytes, 1.0
    )
    return Moves(gather, again, reduce, outside)


def sharded_comm_s(
    recipe: Recipe, layout: Layouts, layers: Split, layer: LayerTime, moved: Moves | None = None
) -> tuple[Numeric, Numeric]:
    """Gathers and reductions of a step: what is exposed, and what hides. moved: moves(), where they
    are known.

    Formula: a layer's gather g hides behind the forward of another; the second one g' and its
             reduction r behind the backward of another; g' is among the hpz ranks of ZeRO++'s
             second copy where there is one, else g; routed experts among edp ranks; reduced is what
             is trained alone, gathered the frozen weights too; exposed of each micro-batch: what
             outlasts them, the first gather and the last reduction, those of embedding and head
    Source:  [rajbhandari2020] sec. 7.2.2; [torch-fsdp] backward prefetch, one gather ahead
    Assumes: gathers and reductions share one communication stream; the table stays gathered from
             forward to backward.
    """
    stack, each = recipe.stack, moved or moves(recipe, layout, layers)
    forward = np.minimum(each.gather_s, layer.forward_s) * stack.shard_overlap_share
    busy = each.again_s * stack.shard_overlap_share + each.reduce_s * stack.grad_overlap_share
    backward = np.minimum(busy, layer.backward_s)
    hidden = layout.m * np.maximum(layers.first - 1, 0) * (forward + backward)
    total = layout.m * (
        layers.first * (each.gather_s + each.again_s + each.reduce_s) + each.outside_s
    )
    return total - hidden, hidden
