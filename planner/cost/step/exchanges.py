"""Collectives of data parallelism in a step, whatever hides them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.network import collectives, sites
from planner.cost.params.per_rank import expert_ranks
from planner.cost.params.stages import Split
from planner.cost.params.trained import trained_ends, trained_layers
from planner.cost.step.data_parallel import moves
from planner.cost.step.reduction import gradient_reduction_s, late_share
from planner.cost.unique_rows import REPLICA_KNOBS, once_per
from planner.layout import Layouts, Numeric
from planner.specs.recipe import Recipe


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
    members = sites.group(recipe, layout, layout.tp, layout.replicas)
    params, routed = trained_layers(
        recipe, layout, layers.first, layers.experts.first if layers.experts else 0.0
    )
    reduce, gather = _reductions(recipe, layout, members, params + trained_ends(recipe, layout))
    if layers.experts:
        experts = sites.group(recipe, layout, layout.etp * layout.ep, expert_ranks(layout))
        more = _reductions(recipe, layout, experts, routed)
        reduce, gather = reduce + more[0], gather + more[1]
    each = moves(recipe, layout, layers)
    late = late_share(recipe, layout, layers)
    return Exchanged(
        reduce, gather, late, each.gather_s, each.again_s, each.reduce_s, each.outside_s
    )


def _reductions(
    recipe: Recipe, layout: Layouts, members: collectives.Group, params: Numeric
) -> tuple[Numeric, Numeric]:
    """Reduction of the gradients of so many parameters among their ranks, and gathering of the
    parameters.
    """
    gathered = collectives.gather_s(recipe.hardware, members, params * recipe.element_bytes)
    return gradient_reduction_s(recipe, layout, members, params), np.where(
        layout.sharded(1), gathered, 0.0
    )
