"""Bytes that the experts of one layer keep between forward and backward, on one rank."""

from __future__ import annotations

from planner.cost.layer.gemms import outside
from planner.cost.layer.kernels import is_low
from planner.cost.layer.moe import expert_rows
from planner.cost.memory.linear_inputs import input_kept
from planner.cost.memory.lora import adapters_kept_bytes
from planner.cost.params.lora import layer_adapters
from planner.layout import Layouts, Numeric
from planner.specs.recipe import Recipe


def expert_parts(recipe: Recipe, layout: Layouts) -> dict[str, Numeric]:
    """What autograd keeps of router, routed and shared experts, by the operation that keeps it;
    each tensor once.

    Formula: R routed copies on the rank: inputs 2 R h, first product 2 R branches f / etp,
             activation 2 R f / etp; shared experts as an MLP over tp; router: fp32 scores and their
             gradient's map 8 E a token of its own; behind a latent l in place of h, and 4 l a token
             of its own
    Source:  [megatron-core] TEGroupedMLP, SharedExpertMLP, TopKRouter: probabilities are applied
             with the activation
    Assumes: sorting and exchanges keep indices only; with 8-bit products inputs of linears take one
             byte; the last product's output is not kept.
    """
    model, moe, count = recipe.model, recipe.model.moe, recipe.tokens_per_rank(layout)
    assert moe is not None, "only models with experts ask"
    kept = 1.0 if recipe.software.kept.quantized_inputs and is_low(recipe.precision) else 2.0
    branches = model.mlp_branches
    copies = expert_rows(recipe, layout, moe) * moe.num_experts / layout.ep
    inputs, outputs = (
        input_kept(recipe, "mlp", ("fc1", "gate_proj", "up_proj"), kept),
        input_kept(recipe, "mlp", ("fc2",), kept),
    )
    ffn, shared = moe.expert_ffn_size / layout.etp, moe.shared_ffn_size / layout.tp
    mlp_adapters = tuple(adapter for adapter in layer_adapters(recipe) if adapter.of != "attention")
    adapters = (
        {"adapters": adapters_kept_bytes(recipe, layout, mlp_adapters, copies)}
        if mlp_adapters
        else {}
    )
    return adapters | {
        "expert_in": copies * inputs * moe.width(model.hidden_size),
        "expert_middle": copies * 2.0 * branches * ffn,
        "expert_out": copies * outputs * ffn,
        "shared": count * (2.0 * branches + outputs) * shared,
        "routing": count / outside(layout) * (8.0 * moe.num_experts + 4 * moe.latent_size),
    }
