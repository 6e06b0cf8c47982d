"""Time of the optimizer's update: the memory that it moves, and Muon's matrix products."""

from __future__ import annotations

import numpy as np

from planner.cost.layer.gemms import Product
from planner.cost.layer.kernels import gemm_s, memory_s
from planner.cost.layer.kinds import layer_products
from planner.cost.memory.offload import optimizer_away
from planner.cost.memory.optimizer_states import saved_bytes
from planner.cost.params.per_rank import expert_ranks, instances
from planner.cost.params.stages import Layers, Split
from planner.cost.params.trained import trained_front, trained_layers
from planner.layout import Layouts, Numeric
from planner.specs.recipe import Recipe

NEWTON_SCHULZ = 5
"""Iterations of Muon's orthogonalization: [jordan2024], and Megatron-LM's default
--muon-num-ns-steps.
"""


def moved_bytes(recipe: Recipe, params: Numeric, matrices: Numeric) -> Numeric:
    """Memory traffic of the update of so many parameters.

    Formula: the software's optimizer_bytes a parameter, less twice the bytes saved (read and
             written)
    Source:  [simumax] passes of Adam
    Assumes: other updates are fused as Adam's is.
    """
    return np.maximum(
        recipe.software.traffic.optimizer_bytes * params
        - 2 * saved_bytes(recipe, params, matrices),
        0.0,
    )


def orthogonalization_s(
    recipe: Recipe, layout: Layouts, layers: Layers, shards: tuple[Numeric, Numeric]
) -> Numeric:
    """Muon's Newton-Schulz iterations over the matrices of so many layers, shared by so many ranks;
    those of experts by other ones.

    Formula: 5 (2 X X' + 2 A A + 2 B X): of a matrix s x l, s <= l, 4 s^2 l + 2 s^3 FLOPs each; at
             least the largest matrix
    Source:  [jordan2024]; [megatron-core] --muon-num-ns-steps 5, --muon-tp-mode blockwise: each tp
             rank its own part; core/optimizer/layer_wise_optimizer.py: whole matrices are dealt to
             ranks
    Assumes: under Megatron-LM 32-bit products at half the rate of 16-bit ones
             (--muon-fp32-matmul-prec medium), else 16 bits.
    """
    if recipe.optimizer != "muon":
        return 0.0
    slower = 2.0 if recipe.framework == "megatron" else 1.0
    mine, routed = [], []
    largest: Numeric = 0.0
    for kind in recipe.kinds:
        own: Numeric = 0.0
        of_experts: Numeric = 0.0
        for product in layer_products(kind, layout):
            spent = _matrix_s(recipe, product)
            largest = np.maximum(largest, spent / product.groups)
            grouped = _grouped(product)
            own, of_experts = own + spent * (not grouped), of_experts + spent * grouped
        mine.append(own)
        routed.append(of_experts)
    shared = layers.times(mine) / shards[0] + layers.times(routed) / shards[1]
    return slower * np.maximum(shared, largest)


def optimizer_s(recipe: Recipe, layout: Layouts, layers: Split) -> Numeric:
    """The optimizer step of the first or the last pipeline rank, whichever takes longer; offloaded
    states are updated elsewhere, offload.update_s().
    """
    first, last = (_update_s(recipe, layout, rank) for rank in (layers.first, layers.last))
    return np.maximum(first, last) * (1 - optimizer_away(recipe, layout))


def _update_s(recipe: Recipe, layout: Layouts, layers: Layers) -> Numeric:
    """Update of the parameters of so many layers and the embedding, as memory traffic.

    Formula: moved_bytes() of the trained parameters of the shard + (gradient_bytes to zero +
             gradient_step_bytes) a gradient held, over HBM; Muon's products besides,
             orthogonalization_s()
    Source:  [simumax] passes of zeroing, norm, clip, Adam, cast
    Assumes: a head on the last rank is as large as the embedding on the first.
    """
    software = recipe.software
    matrices, routed = trained_layers(recipe, layout, layers)
    most = matrices + trained_front(recipe, layout)
    copies = instances(recipe, layout)
    shards = layout.shards(1) / copies
    alike: Numeric = 1
    held = most / np.where(layout.sharded(2), shards, 1)
    updated = most / shards
    if recipe.model.moe:
        alike = np.where(layout.sharded(1), expert_ranks(layout) / copies, 1)
        held = held + routed / np.where(layout.sharded(2), alike, 1)
        updated = updated + routed / alike
        matrices = matrices + routed * shards / alike
    passes = (software.states.gradient_bytes + software.traffic.gradient_step_bytes) * held
    here = memory_s(recipe.hardware, moved_bytes(recipe, updated, matrices / shards) + passes)
    return here + orthogonalization_s(recipe, layout, layers, (shards, alike))


def _grouped(product: Product) -> bool:
    return not (isinstance(product.groups, int) and product.groups == 1)


def _matrix_s(recipe: Recipe, product: Product) -> Numeric:
    """Iterations over one product's weights (all its groups), on one rank."""
    precision = "fp16" if recipe.precision == "fp16" else "bf16"
    spent = sum(
        gemm_s(recipe.hardware, precision, *sizes) for sizes in iteration(product.n, product.k)
    )
    return NEWTON_SCHULZ * spent * product.groups


def iteration(n: Numeric, k: Numeric) -> tuple[tuple[Numeric, Numeric, Numeric], ...]:
    """Rows, columns and inner size of the products of one iteration over a matrix of n x k: X X',
    its square, their polynomial times X.
    """
    short, long = np.minimum(n, k), np.maximum(n, k)
    return (short, short, long), (short, short, short), (short, long, short)
