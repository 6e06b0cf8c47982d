"""Optimizers beside Adam: the states that they keep, the memory that their step moves, Muon's
products.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from planner.cost.layer.attention import tokens
from planner.cost.layer.gemms import Product, attention_products, mlp_products
from planner.cost.layer.kernels import gemm_s, memory_s
from planner.cost.layer.moe import experts
from planner.cost.memory.offload import optimizer_away
from planner.cost.params.per_rank import expert_ranks
from planner.cost.params.stages import Split
from planner.cost.params.trained import trained_embedding, trained_layers
from planner.layout import Layouts, Numeric
from planner.specs.recipe import Recipe

ADAM = 8.0
"""Bytes a parameter of Adam's two moments in 32 bits."""
MOMENTS = {"adam-8bit": 2.0 + 8.0 / 256, "lion": 4.0, "sgd": 4.0, "muon": 4.0, "adafactor": 4.0}
"""Bytes a parameter of the moments of others. 8-bit Adam: two bytes and two 4-byte scales a block
of 256; Adafactor under a flat partition, which has no rows and columns, keeps its second moment
whole.

Source: [dettmers2022]; [deepspeed] runtime/zero: partitions are flat; [torch-optim] Adafactor, SGD;
[megatron-core] --sgd-momentum 0.9; [jordan2024] Muon
"""
NEWTON_SCHULZ = 5
"""Iterations of Muon's orthogonalization: [jordan2024], and Megatron-LM's default
--muon-num-ns-steps.
"""


def moments_bytes(recipe: Recipe) -> float:
    """Bytes a parameter of a matrix's moments, where they are not those that the stack says.

    Formula: 8 Adam; 4 one moment (Lion, SGD, Muon); 2 + 8/256 8-bit Adam; Adafactor 4 flat, else 0
             (rows and columns alone)
    Source:  [dettmers2022], [torch-optim], [jordan2024]
    Assumes: SGD with momentum; Adafactor without a first moment.
    """
    if recipe.optimizer == "adafactor" and recipe.framework == "torch":
        return 0.0  # sharded by rows, factors stay factors
    return MOMENTS.get(recipe.optimizer, ADAM)


def saved_bytes(recipe: Recipe, params: Numeric, matrices: Numeric) -> Numeric:
    """How many bytes fewer than the stack's Adam the states of so many parameters take, of which so
    many are matrices of the layers.

    Formula: (8 - moments_bytes) params; Muon's only of the matrices: Adam updates the others
    Source:  [jordan2024]; [megatron-core] core/optimizer/layer_wise_optimizer.py
    Assumes: embedding, head, norms and biases are no matrices of the layers.
    """
    return (ADAM - moments_bytes(recipe)) * (matrices if recipe.optimizer == "muon" else params)


def moved_bytes(recipe: Recipe, params: Numeric, matrices: Numeric) -> Numeric:
    """Memory traffic of the update of so many parameters.

    Formula: the stack's optimizer_bytes a parameter, less twice the bytes saved (read and written)
    Source:  [simumax] passes of Adam
    Assumes: other updates are fused as Adam's is.
    """
    return np.maximum(
        recipe.stack.optimizer_bytes * params - 2 * saved_bytes(recipe, params, matrices), 0.0
    )


def orthogonalization_s(
    recipe: Recipe,
    layout: Layouts,
    layers: Numeric,
    expert_layers: Numeric,
    shards: tuple[Numeric, Numeric],
) -> Numeric:
    """Muon's Newton-Schulz iterations over the matrices of so many layers, shared by so many ranks;
    those of experts by other ones.

    Formula: 5 (2 X X' + 2 A A + 2 B X): of a matrix s x l, s <= l, 4 s^2 l + 2 s^3 FLOPs each; at
             least one layer's largest matrix
    Source:  [jordan2024]; [megatron-core] --muon-num-ns-steps 5, --muon-tp-mode blockwise: each tp
             rank its own part; core/optimizer/layer_wise_optimizer.py: whole matrices are dealt to
             ranks
    Assumes: under Megatron-LM 32-bit products at half the rate of 16-bit ones
             (--muon-fp32-matmul-prec medium), else 16 bits.
    """
    if recipe.optimizer != "muon":
        return 0.0
    model, count = recipe.model, tokens(recipe, layout)
    slower = 2.0 if recipe.framework == "megatron" else 1.0
    attention, dense = (
        attention_products(recipe, layout, count),
        mlp_products(recipe, layout, count, model.ffn_size),
    )
    kinds = experts(recipe, layout, model.moe).products[len(attention) :] if model.moe else ()
    times = [_matrix_s(recipe, one) for one in (*attention, *dense, *kinds)]
    largest = reduce(
        np.maximum,
        (time / one.groups for time, one in zip(times, (*attention, *dense, *kinds), strict=True)),
    )
    n, both = len(attention), len(attention) + len(dense)
    routed = sum(
        (time for time, one in zip(times[both:], kinds, strict=True) if _grouped(one)), 0.0
    )
    other = sum(
        (time for time, one in zip(times[both:], kinds, strict=True) if not _grouped(one)), 0.0
    )
    mine = (
        layers * sum(times[:n])
        + (layers - expert_layers) * sum(times[n:both])
        + expert_layers * other
    )
    return slower * np.maximum(mine / shards[0] + expert_layers * routed / shards[1], largest)


def optimizer_s(recipe: Recipe, layout: Layouts, layers: Split) -> Numeric:
    """The optimizer step as memory traffic.

    Formula: moved_bytes() of the trained parameters of the shard + (gradient_bytes to zero +
             gradient_step_bytes) a gradient held, over HBM; Muon's products besides,
             orthogonalization_s()
    Source:  [simumax] passes of zeroing, norm, clip, Adam, cast
    Assumes: the rank with most layers; offloaded states are updated elsewhere, offload.update_s().
    """
    stack = recipe.stack
    with_experts = np.maximum(layers.experts.first, layers.experts.last) if layers.experts else 0.0
    count = np.maximum(layers.first, layers.last)
    matrices, routed = trained_layers(recipe, layout, count, with_experts)
    most = matrices + trained_embedding(recipe, layout)
    shards = layout.shards(1)
    alike: Numeric = 1
    held = most / np.where(layout.sharded(2), shards, 1)
    updated = most / shards
    if layers.experts:
        alike = np.where(layout.sharded(1), expert_ranks(layout), 1)
        held = held + routed / np.where(layout.sharded(2), alike, 1)
        updated = updated + routed / alike
        matrices = matrices + routed * shards / alike
    passes = (stack.gradient_bytes + stack.gradient_step_bytes) * held
    here = memory_s(recipe.hardware, moved_bytes(recipe, updated, matrices / shards) + passes)
    return (here + orthogonalization_s(recipe, layout, count, with_experts, (shards, alike))) * (
        1 - optimizer_away(layout)
    )


def _grouped(one: Product) -> bool:
    return not (isinstance(one.groups, int) and one.groups == 1)


def _matrix_s(recipe: Recipe, one: Product) -> Numeric:
    """Iterations over one product's weights (all its groups), on one rank."""
    precision = "fp16" if recipe.precision == "fp16" else "bf16"
    spent = sum(gemm_s(recipe.hardware, precision, *sizes) for sizes in iteration(one.n, one.k))
    return NEWTON_SCHULZ * spent * one.groups


def iteration(n: Numeric, k: Numeric) -> tuple[tuple[Numeric, Numeric, Numeric], ...]:
    """Rows, columns and inner size of the products of one iteration over a matrix of n x k: X X',
    its square, their polynomial times X.
    """
    short, long = np.minimum(n, k), np.maximum(n, k)
    return (short, short, long), (short, short, short), (short, long, short)
