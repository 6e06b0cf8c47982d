"""Model FLOPs: what training needs, without recomputation."""

from __future__ import annotations

from planner.cost.params import matmul_params
from planner.specs.recipe import Recipe


def attention_flops_per_token(recipe: Recipe) -> float:
    """Attention products of one token over the whole causal sequence, forward and backward, full count.

    Formula: 12 L s (a d)
    Source:  [narayanan2021] eq. 3
    Assumes: the full s x s square; causal masks need half.
    """
    model = recipe.model
    return 12.0 * model.num_layers * recipe.seq_length * model.query_size


def model_flops(recipe: Recipe, *, full_attention: bool) -> float:
    """Floating-point operations of one step over all GPUs.

    Formula: tokens (6 P + attention), attention halved when causal is counted
    Source:  [narayanan2021] eq. 3 without recomputation
    Assumes: the look-up of the embedding is not counted, the head is.
    """
    attention = attention_flops_per_token(recipe) * (1.0 if full_attention else 0.5)
    return recipe.tokens * (6.0 * matmul_params(recipe.model) + attention)
