"""Time of what stands at the ends of the model: embedding on the first stage, final norm, head and
loss on the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from planner.cost.layer.gemms import Product, accumulate_bytes, products_s
from planner.cost.layer.kernels import gemm_s, memory_s
from planner.cost.layer.layer import LayerTime
from planner.cost.layer.streams import entry_matrices, exit_matrices
from planner.cost.network import collectives
from planner.cost.params.layer import padded_vocab
from planner.cost.params.trained import trains
from planner.layout import Layouts, Numeric
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe

NO_TOWER = LayerTime(**dict.fromkeys((f.name for f in fields(LayerTime)), 0.0))


@dataclass(frozen=True, slots=True)
class EndsTime:
    """Seconds per micro-batch."""

    embedding_forward_s: Numeric
    """With the vision tower, where there is one."""
    embedding_backward_s: Numeric
    head_forward_s: Numeric
    head_backward_s: Numeric
    head_weight_s: Numeric
    """Weight gradient of the head, within head_backward_s."""
    deferred_s: Numeric = 0.0
    """Of a step: weight gradients of the head that wait for the drain of the pipeline."""
    tower: LayerTime = NO_TOWER
    """The vision tower's part of embedding_forward_s and embedding_backward_s."""


def ends_time(recipe: Recipe, layout: Layouts) -> EndsTime:
    """Embedding look-up and its gradient; head products, loss over the split vocabulary, three
    small all-reduces.

    Formula: head: GEMM T x V/tp x h, its two gradients (one when frozen); loss_bytes T V/tp / HBM;
             embedding: rows moved + its collective; gathered logits: all-gather of 2 T V and the
             loss over V on every rank; head_recomputed: product and gather once more
    Source:  [narayanan2021] sec. 2.3; [megatron-core] vocab_parallel_cross_entropy;
             [aleph-alpha-scaling] TransformerLMHead
    Assumes: the head in bf16 (fp8 leaves it out); the loss's all-reduces carry 4 bytes a token.
    """
    hardware, software, model = recipe.hardware, recipe.software, recipe.model
    precision = recipe.precision if recipe.precision in ("fp16", "fp32") else "bf16"
    count, h, vocab = (
        recipe.tokens_per_rank(layout),
        model.hidden_size,
        padded_vocab(model, layout.tp) / layout.tp,
    )
    members = collectives.group(hardware, 1, layout.tp)
    size = count * h * recipe.element_bytes
    sp = layout.sequence_split
    gather = collectives.gather_s(hardware, members, size)
    reduce = collectives.all_reduce_s(hardware, members, size)
    crossed = np.where(sp, gather, reduce)
    rows = memory_s(hardware, 2 * recipe.element_bytes * count * h)
    gathered = software.quirks.gathered_logits
    loss = memory_s(
        hardware, software.traffic.loss_bytes * count * vocab * (layout.tp if gathered else 1)
    )
    small = 3 * collectives.all_reduce_s(hardware, members, 4.0 * count)
    joined = (
        collectives.gather_s(hardware, members, recipe.element_bytes * count * vocab * layout.tp)
        if gathered
        else small
    )
    product = gemm_s(hardware, precision, count, vocab, h)
    entry, leave = (_around(recipe, layout, x) for x in (entry_matrices, exit_matrices))
    again = (product + joined) * layout.recomputes_all * software.quirks.head_recomputed
    weight = gemm_s(hardware, precision, vocab, h, count) + memory_s(
        hardware, accumulate_bytes(recipe, layout) * vocab * h
    )
    weight = weight * trains(recipe, "head")
    return EndsTime(
        embedding_forward_s=rows + crossed + entry[0],
        embedding_backward_s=(rows * 3 + np.where(sp, gather, 0.0)) * trains(recipe, "embedding")
        + entry[1],
        head_forward_s=product + loss / 2 + joined + np.where(sp, gather, 0.0) + leave[0],
        head_backward_s=gemm_s(hardware, precision, count, h, vocab)
        + weight
        + loss / 2
        + crossed
        + again
        + leave[1],
        head_weight_s=weight,
    )


def _around(
    recipe: Recipe,
    layout: Layouts,
    matrices: Callable[[ModelSpec], tuple[tuple[int, int], ...]],
) -> tuple[Numeric, Numeric]:
    """Forward and backward time of the products that make streams and layers' inputs, or join
    them, each with a norm of its output.

    Formula: product of each; outputs written and read three times
    Source:  [hf-transformers] Gemma3nTextModel
    Assumes: nothing of it is split but by sp.
    """
    count = recipe.tokens_per_rank(layout) / layout.sequence_shards
    products = tuple(Product(count, n, k, low=False) for n, k in matrices(recipe.model))
    if not products:
        return 0.0 * count, 0.0 * count
    forward, inputs, weights, _ = products_s(recipe, layout, products)
    wide = sum(product.n for product in products)
    normed = memory_s(recipe.hardware, 6 * recipe.element_bytes * count * wide)
    return forward + normed, inputs + weights + 2 * normed


def deferred_count(recipe: Recipe, layout: Layouts) -> Numeric:
    """Micro-batches whose weight gradient of the head waits for the drain.

    Formula: min(m, wgrad_deferral_limit), all without a limit; none without a pipeline
    Source:  [megatron-core] core/tensor_parallel/layers.py
    Assumes: heads of multi-token prediction wait as the other does.
    """
    overlap = recipe.software.overlap
    if not overlap.head_deferred:
        return 0.0
    most = overlap.head_deferred_limit or np.inf
    return np.minimum(layout.m, most) * layout.pipelined


def with_deferred(recipe: Recipe, layout: Layouts, ends: EndsTime) -> EndsTime:
    """The ends' mean time where weight gradients of the head wait: head_weight_s of the others
    alone, deferred_s of those that wait.
    """
    if not recipe.software.overlap.head_deferred:
        return ends
    count = deferred_count(recipe, layout)
    moved = ends.head_weight_s * count / layout.m
    return replace(
        ends,
        head_backward_s=ends.head_backward_s - moved,
        head_weight_s=ends.head_weight_s - moved,
        deferred_s=ends.head_weight_s * count,
    )


def deferred_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """What waits with them on the last stage.

    Formula: deferred_count() heads T (h / sequence shards + V / tp) element_bytes: a head's input
             and the gradient of its logits
    Source:  [megatron-core] core/tensor_parallel/layers.py: embedding_activation_buffer,
             grad_output_buffer
    Assumes: all of them wait at once.
    """
    model = recipe.model
    count = recipe.tokens_per_rank(layout) * recipe.element_bytes
    widths = model.hidden_size / layout.sequence_shards + padded_vocab(model, layout.tp) / layout.tp
    return deferred_count(recipe, layout) * (1 + model.mtp_layers) * count * widths
