"""Activations that the adapters (LoRA) of a layer keep for the backward pass."""

from __future__ import annotations

from planner.cost.layer.lora import rows_per_rank
from planner.cost.params.lora import Adapter
from planner.layout import Layouts, Numeric
from planner.specs.recipe import Recipe


def adapters_kept_bytes(
    recipe: Recipe, layout: Layouts, adapters: tuple[Adapter, ...], copies: Numeric = 0.0
) -> Numeric:
    """What the adapters of a layer keep between forward and backward, beyond inputs that the layer
    keeps anyway.

    Formula: 2 bytes T r of each; with sp also the gathered input of the column-parallel linears, 2
             bytes T h each block
    Source:  [megatron-bridge] LoRALinear under sequence parallelism (its notes on memory: gathering
             again saves 36 layers' two inputs of Qwen3-8B, 4.73 GB of 47.5)
    Assumes: no dropout before the adapter.
    """
    if not adapters or not recipe.lora:
        return 0.0
    inner = sum(
        rows_per_rank(recipe, layout, adapter, copies)[0] * recipe.lora.rank * 2.0
        for adapter in adapters
    )
    blocks = len(
        {adapter.of for adapter in adapters if adapter.side == "column" and adapter.of != "routed"}
    )
    gathered = layout.sequence_split & layout.tensor_split & (recipe.framework == "megatron")
    return (
        inner + gathered * blocks * 2.0 * recipe.tokens_per_rank(layout) * recipe.model.hidden_size
    )
