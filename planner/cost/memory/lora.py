"""Activations that the adapters (LoRA) of a layer keep for the backward pass."""

from __future__ import annotations

from planner.cost.layer.attention import tokens
from planner.cost.layer.lora import rows_per_rank
from planner.cost.params.lora import Adapter
from planner.cost.params.trained import trains
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
        rows_per_rank(recipe, layout, one, copies)[0] * recipe.lora.rank * 2.0 for one in adapters
    )
    blocks = len({one.of for one in adapters if one.side == "column" and one.of != "routed"})
    gathered = layout.sequence_split & layout.tensor_split & (recipe.framework == "megatron")
    return inner + gathered * blocks * 2.0 * tokens(recipe, layout) * recipe.model.hidden_size


def input_kept(recipe: Recipe, part: str, targets: tuple[str, ...], kept: float) -> float:
    """Bytes an element of a linear's input that the backward pass needs: kept for its own weight
    gradient, 2 for an adapter's, else none.

    Formula: kept where trained; 2 where one of targets has an adapter; 0 where frozen
    Source:  [transformer-engine] Linear saves its input for a weight gradient alone; [hu2021]
    Assumes: what another operation keeps of it is counted there.
    """
    if trains(recipe, part):
        return kept
    return 2.0 if recipe.lora and any(name in recipe.lora.targets for name in targets) else 0.0
