"""What attention keeps where an index chooses its keys."""

from __future__ import annotations

import numpy as np

from planner.cost.layer.attention import absorbed, attended, core
from planner.cost.layer.sparse import INDEX_ROWS, index_gathered, index_loss
from planner.layout import Layouts, Numeric
from planner.specs.model import Indexer, Mla
from planner.specs.recipe import Recipe


def absorbed_bytes(recipe: Recipe, layout: Layouts, mla: Mla) -> Numeric:
    """Queries and the key of absorbed latent attention.

    Formula: 2 a n / tp of the queries' own width, 2 a (c + r) / tp absorbed, 2 (c + r) the key
    Source:  [megatron-core] core/transformer/experimental_attention_variant/absorbed_mla.py
    Assumes: the part with positions is copied into the absorbed queries.
    """
    heads, key = recipe.model.num_heads / layout.tp, mla.kv_lora_rank + mla.qk_rope_dim
    return recipe.tokens_per_rank(layout) * 2.0 * (heads * (mla.qk_nope_dim + key) + key)


def latent_output_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """The output of absorbed latent attention, before it is projected to values.

    Formula: 2 a c / tp
    Source:  [megatron-core] core/transformer/experimental_attention_variant/dsa.py
    Assumes: 16 bits.
    """
    mla = absorbed(recipe)
    heads = recipe.model.num_heads / layout.tp
    return recipe.tokens_per_rank(layout) * 2.0 * heads * mla.kv_lora_rank if mla else 0.0


def index_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """What choosing the keys of a layer leaves for the backward pass.

    Formula: 4 k of the chosen keys; masks 2 s, of blocks each head's; where its loss trains it 2 i
             e of queries, 2 e of the key, 4 i of weights, and 2 (h + q) of gathered inputs under sp
    Source:  [megatron-core] core/transformer/experimental_attention_variant/dsa.py;
             [hf-transformers] GlmMoeDsaAttention, MiniMaxM3VLIndexer
    Assumes: later layers that take the choice keep no copy.
    """
    model, kernel = recipe.model, core(recipe)
    index, count = model.index, recipe.tokens_per_rank(layout)
    if index is None:
        return 0.0 * count
    kept: Numeric = 0.0
    if kernel == "masked":
        heads = model.num_heads / layout.tp if model.block_sparse else 1
        kept = kept + 2.0 * attended(recipe) * heads
    elif isinstance(index, Indexer) and model.chooses_keys:
        kept = kept + 4.0 * min(index.keys_per_query, attended(recipe))
    if index_loss(recipe) != "none":
        gathered = 2.0 * index_gathered(model) * (np.asarray(layout.sequence_shards) > 1)
        kept = (
            kept + 2.0 * (index.num_heads + 1) * index.head_dim + 4.0 * index.num_heads + gathered
        )
    return count * kept


def index_temporary_bytes(recipe: Recipe, layout: Layouts) -> Numeric:
    """Scores while keys are chosen.

    Formula: 4 s a row, of at most INDEX_ROWS rows, and as much backward of the keys compared; of
             code without kernels 8 s i of all rows
    Source:  [megatron-core] core/transformer/experimental_attention_variant/dsa.py;
             [hf-transformers] GlmMoeDsaIndexer
    Assumes: two tensors of scores at a time.
    """
    index, count = recipe.model.index, recipe.tokens_per_rank(layout)
    if index is None or not recipe.model.chooses_keys:
        return 0.0 * count
    s = attended(recipe)
    if core(recipe) == "chosen":
        return 2 * 4.0 * np.minimum(count, INDEX_ROWS) * s
    return 8.0 * count * s * index.num_heads
