"""The matrix products of a layer on one rank: attention's projections, grouped or latent, and those
of MLPs and experts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from planner.cost.layer.kernels import gemm_s, grouped_gemm_s, memory_s
from planner.cost.params.trained import trains
from planner.layout import Layouts, Numeric
from planner.specs.megatron import fsdp_fuses
from planner.specs.recipe import Recipe


class Product(NamedTuple):
    """C[rows, n] = A[rows, k] B[k, n] with the weights B, its two gradients later; `groups` of them
    side by side for experts.
    """

    rows: Numeric
    n: Numeric
    k: Numeric
    side: str = "own"
    """column: inputs are gathered over tp under sp; row: outputs are scattered; own: neither."""
    groups: Numeric = 1
    low: bool = True
    """Whether it runs in the recipe's precision: routers stay in 16 bits."""
    trained: bool = True
    """Whether the weights get a gradient."""


def outside(layout: Layouts) -> Numeric:
    """By how much sequence parallelism splits what tensor parallelism does not: tp, or 1."""
    return layout.sequence_shards


def attention_products(recipe: Recipe, layout: Layouts, count: Numeric) -> tuple[Product, ...]:
    """Projections of the attention for `count` tokens.

    Formula: (a + 2k) d / tp from h; h from a d / tp; values e wide where they have a size of their
             own, none where keys are the values, neither where an earlier layer's are read; a gate
             as wide as the queries;
             latent: q from h, a (n + r) / tp from q, c + r from h, a (n + v) / tp from c, h from a
             v / tp
    Source:  [narayanan2021] sec. 2.3; [deepseek2024] sec. 2.1.1; [megatron-core] MLASelfAttention
    Assumes: query, key and value in one product; latents' down-projections are on every tp rank,
             over its own tokens under sp.
    """
    products = _attention_products(recipe, layout, count)
    return (
        products
        if trains(recipe, "attention")
        else tuple(product._replace(trained=False) for product in products)
    )


def _attention_products(recipe: Recipe, layout: Layouts, count: Numeric) -> tuple[Product, ...]:
    model, tp = recipe.model, layout.tp
    h, mla = model.hidden_size, model.mla
    queries = model.query_size / tp
    if mla is None:
        wide = sum(model.attention_inputs) / tp
        return Product(count, wide, h, "column"), Product(count, h, model.output_size / tp, "row")
    own, heads = count / outside(layout), model.num_heads / tp
    q = mla.q_lora_rank
    first = (
        (Product(own, q, h), Product(count, queries, q, "column"))
        if q
        else (Product(count, queries, h, "column"),)
    )
    gates = (Product(count, heads, h, "column"),) if mla.head_gates else ()
    return (
        *first,
        *gates,
        Product(own, mla.kv_lora_rank + mla.qk_rope_dim, h),
        Product(count, heads * (mla.qk_nope_dim + mla.v_head_dim), mla.kv_lora_rank, "column"),
        Product(count, h, heads * mla.v_head_dim, "row"),
    )


def mlp_products(
    recipe: Recipe, layout: Layouts, count: Numeric, ffn_size: int
) -> tuple[Product, ...]:
    """A dense MLP, or shared experts, of so many hidden units.

    Formula: (2 or 1) f / tp from h; h from f / tp
    Source:  [narayanan2021] sec. 2.3
    Assumes: both branches of a gated MLP in one product.
    """
    h, ffn, trained = recipe.model.hidden_size, ffn_size / layout.tp, trains(recipe, "mlp")
    wide = recipe.model.mlp_branches * ffn
    return Product(count, wide, h, "column", trained=trained), Product(
        count, h, ffn, "row", trained=trained
    )


def products_s(
    recipe: Recipe, layout: Layouts, products: tuple[Product, ...]
) -> tuple[Numeric, Numeric, Numeric, tuple[Numeric, Numeric]]:
    """Forward, input-gradient and weight-gradient time of linears; last, both gradients of those
    split by columns.

    Formula: C[T,n] = X[T,k] W; dX[T,k] = dY W'; dW[n,k] += dY' X with read and write of the 4-byte
             main gradient, none of frozen weights
    Source:  [narayanan2021] sec. 2.3; accumulation into main gradients [megatron-core]
    Assumes: the measured product's own output is 2 bytes; the rest of the accumulation is memory
             traffic.
    """
    forward: Numeric = 0.0
    inputs: Numeric = 0.0
    weights: Numeric = 0.0
    columns: tuple[Numeric, Numeric] = (0.0, 0.0)
    for product in products:
        forward = forward + product_s(recipe, product, product.rows, product.n, product.k)
        back = product_s(recipe, product, product.rows, product.k, product.n)
        weight = _weight_s(recipe, layout, product) if product.trained else 0.0 * back
        inputs, weights = inputs + back, weights + weight
        columns = (columns[0] + back, columns[1] + weight) if product.side == "column" else columns
    return forward, inputs, weights, columns


OUTPUT_BYTES = 2.0
"""A gradient as the product writes it, bytes a weight."""


def accumulate_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """Memory traffic of a weight gradient beyond the product's own output, bytes a weight.

    Formula: accumulate_bytes, and 2 OUTPUT_BYTES where the product does not add to the main
             gradient itself; under Megatron-LM's FSDP, which adds nothing but writes into the
             bucket that it reduces, grad_reduce_bytes - OUTPUT_BYTES by the product itself, else
             grad_reduce_bytes + OUTPUT_BYTES: a copy
    Source:  [megatron-core] core/tensor_parallel/layers.py, core/distributed/fsdp
    Assumes: the gradient of each weight goes by HBM.
    """
    traffic, bucket = recipe.software.traffic, recipe.software.states.grad_reduce_bytes
    added = traffic.accumulate_bytes + 2 * OUTPUT_BYTES * (not traffic.accumulation_fused)
    if recipe.framework != "megatron":
        return added
    written = traffic.accumulation_fused and fsdp_fuses(recipe)
    copied = bucket - OUTPUT_BYTES if written else bucket + OUTPUT_BYTES
    return np.where(layout.sharded(2), copied, added)


def _weight_s(recipe: Recipe, layout: Layouts, product: Product) -> Numeric:
    accumulated = memory_s(
        recipe.hardware,
        accumulate_bytes(recipe, layout) * product.n * product.k * product.groups,
    )
    return product_s(recipe, product, product.n, product.k, product.rows) + accumulated


def product_s(recipe: Recipe, product: Product, m: Numeric, n: Numeric, k: Numeric) -> Numeric:
    """One product of these sizes: in the recipe's precision or 16 bits, grouped where there are
    groups.
    """
    precision = recipe.precision if product.low or recipe.precision in ("fp16", "fp32") else "bf16"
    if isinstance(product.groups, int) and product.groups == 1:
        return gemm_s(recipe.hardware, precision, m, n, k, prepared=True)
    return grouped_gemm_s(recipe.hardware, precision, product.groups, m, n, k)


def weights(products: tuple[Product, ...]) -> Numeric:
    """Elements of their weights on one rank."""
    return sum((product.n * product.k * product.groups for product in products), 0.0)


def casts(
    products: tuple[Product, ...], layout: Layouts, count: Numeric
) -> tuple[Numeric, Numeric]:
    """Elements a token that are quantized: inputs in the forward, output gradients in the backward
    pass.

    Formula: sum of rows / T k, sum of rows / T n; what is gathered later, or was scattered, is
             quantized by its own rank's share
    Source:  [transformer-engine] quantizers
    Assumes: gathered columns' inputs with sp are cast before the gather.
    """
    shared = outside(layout)
    forward: Numeric = 0.0
    backward: Numeric = 0.0
    for product in products:
        share = product.rows / count * product.groups * product.low
        forward = forward + share * product.k / (shared if product.side == "column" else 1)
        backward = backward + share * product.n / (shared if product.side == "row" else 1)
    return forward, backward
