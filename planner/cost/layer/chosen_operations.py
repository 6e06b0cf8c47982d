"""Recomputation by operations, as torchtitan chooses them: outputs of attention, of every second
product and of what was sent are kept, all else is repeated.
"""

from __future__ import annotations

from planner.cost.layer.gemms import Product, mlp_products
from planner.cost.layer.mixers import sequence_products
from planner.cost.params.mixers import scanned_size
from planner.layout import Layouts, Numeric
from planner.specs.mixers import NoMixer
from planner.specs.recipe import Recipe


def products_in_order(recipe: Recipe, layout: Layouts, ffn_size: int) -> tuple[Product, ...]:
    """The single products of attention and of an MLP of so many hidden units (0: none), in the
    order in which a layer runs them.

    Formula: q, k, v, output (latent attention's as they are); each branch of the MLP, its output
    Source:  [torchtitan] models/common/attention.py, feed_forward.py
    Assumes: query, key and value are products of their own, as in Llama 3 and DeepSeek-V3.
    """
    model, count = recipe.model, recipe.tokens_per_rank(layout)
    attention = sequence_products(recipe, layout, count)
    if model.mla is None and model.mixer is None:
        joined, output = attention
        apart = (joined._replace(n=width / layout.tp) for width in model.attention_inputs)
        attention = (*apart, output)
    if not ffn_size:
        return attention
    wide, last = mlp_products(recipe, layout, count, ffn_size)
    branch = wide._replace(n=wide.n / model.mlp_branches)
    return (*attention, *[branch] * model.mlp_branches, last)


def repeated_products(recipe: Recipe, layout: Layouts, ffn_size: int) -> tuple[Product, ...]:
    """Every second product, from the second on."""
    return products_in_order(recipe, layout, ffn_size)[1::2]


def kept_operations_bytes(recipe: Recipe, layout: Layouts, ffn_size: int) -> Numeric:
    """What a layer keeps beside its input and the exchange of experts, with an MLP of so many
    hidden units.

    Formula: 2 bytes an output of the first product, the third, ...; attention's output and its
             log-sum-exp in fp32; with sp both scattered sums
    Source:  [torchtitan] distributed/activation_checkpoint.py SelectiveAC
    Assumes: partial sums of tp are kept beside what is scattered of them.
    """
    model, count, tp = recipe.model, recipe.tokens_per_rank(layout), layout.tp
    kept = products_in_order(recipe, layout, ffn_size)[0::2]
    values = model.output_size / tp
    attention = count * (2.0 * values + 4.0 * model.num_heads / tp) * model.has_attention
    scanned = count * 2.0 * scanned_size(model) / tp
    blocks = (2 if ffn_size else 1) - isinstance(model.mixer, NoMixer)
    scattered = count * 2.0 * blocks * model.hidden_size / tp * layout.sequence_split
    return sum(2.0 * product.rows * product.n for product in kept) + attention + scanned + scattered
