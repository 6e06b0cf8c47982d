"""Collectives of data parallelism in a step, whatever hides them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.cost.combinations import REPLICA_KNOBS, combinations, spread
from planner.cost.network import collectives, sites
from planner.cost.params.per_rank import expert_ranks
from planner.cost.params.stages import Split
from planner.cost.params.trained import trained_ends, trained_layers
from planner.cost.step.data_parallel import moves
from planner.cost.step.reduction import gradient_reduction_s, late_share
from planner.layout import Layout, Numeric
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


def exchanged(recipe: Recipe, layout: Layout, layers: Split) -> Exchanged:
    """Reductions and gathers of the first rank, computed once for each combination of the knobs
    that they depend on.

    Formula: gradient_reduction_s() and an all-gather of the parameters, experts' besides; moves()
             of sharded weights; late_share()
    Source:  [rajbhandari2020]
    Assumes: as dp_comm_s().
    """
    more = ("v", "m") if recipe.hardware.fabric.sites > 1 else ("v",) if layers.experts else ()
    first, inverse = combinations(layout, (*REPLICA_KNOBS, *more))
    if inverse is None:
        return _exchanged(recipe, layout, layers)
    few = replace(
        spread(layers, first), experts=spread(layers.experts, first) if layers.experts else None
    )
    return spread(_exchanged(recipe, layout[first], few), inverse)


def _exchanged(recipe: Recipe, layout: Layout, layers: Split) -> Exchanged:
    members = sites.group(recipe, layout, layout.tp, layout.dp * layout.cp)
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
    recipe: Recipe, layout: Layout, members: collectives.Group, params: Numeric
) -> tuple[Numeric, Numeric]:
    """Reduction of the gradients of so many parameters among their ranks, and gathering of the
    parameters.
    """
    gathered = collectives.gather_s(recipe.hardware, members, params * recipe.element_bytes)
    return gradient_reduction_s(recipe, layout, members, params), np.where(
        np.asarray(layout.zero) >= 1, gathered, 0.0
    )
