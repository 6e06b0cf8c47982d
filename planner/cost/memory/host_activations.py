"""Activations that wait in host memory for their backward pass: what leaves the device, and what
the link between device and host carries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.cost.layer.layer import LayerTime
from planner.cost.params.trained import has_backward
from planner.layout import Layouts, Numeric
from planner.specs.recipe import Recipe
from planner.units import GB

HELD = 2.0
"""Layers whose tensors are on the device in a backward pass: its own, and the one that is fetched
for the next. While the head runs the last layer's are there: its groups stay."""


@dataclass(frozen=True, slots=True)
class Hosted:
    """Bytes of one micro-batch and rank, of what one layer keeps."""

    freed_bytes: Numeric = 0.0
    """On the device no more."""
    moved_bytes: Numeric = 0.0
    """To the host, and the same back: a tensor that two modules keep goes twice."""

    def __add__(self, other: Hosted) -> Hosted:
        return Hosted(self.freed_bytes + other.freed_bytes, self.moved_bytes + other.moved_bytes)

    def __mul__(self, share: Numeric) -> Hosted:
        return Hosted(self.freed_bytes * share, self.moved_bytes * share)


NONE = Hosted()


def offloads(recipe: Recipe) -> bool:
    """Whether any activation goes to the host."""
    offload = recipe.software.offload
    return has_backward(recipe) and bool(offload.modules or offload.layers)


def attention_modules(
    recipe: Recipe, layout: Layouts, parts: dict[str, Numeric]
) -> dict[str, Hosted]:
    """What the modules of attention send, by module. parts: layer_parts().

    Formula: attn_norm, latent attention: the norm's input; qkv_linear: its input, with latent
             attention the latents, else the input of the norm that is fused into it, and q and k
             before their own norms; core_attn: q, k, v and scores, and a copy of the output that
             the projection still holds; attn_proj: that output
    Source:  [megatron-core] core/transformer/attention.py, multi_latent_attention.py,
             transformer_layer.py: the tensors that autograd saves within each module's scope
    Assumes: norms of attention and MLP keep as much as one another; statistics of the softmax are
             too small to be moved (--min-offloaded-tensor-size).
    """
    model = recipe.model
    if not model.has_attention:
        return {}
    blocks = model.residual_blocks
    norm_input, norm_output = parts["norm_inputs"] / blocks, parts["norm_outputs"] / blocks
    norm_output = norm_output * (1 - layout.drops("layernorm"))
    normed = 2 if model.qk_norm and not model.mla else 1
    heads = parts["qkv"] / normed
    before = parts["qkv"] - heads
    core = heads + (parts["core"] if recipe.attention == "unfused" else 0.0)
    runs = (1 - layout.drops("core_attn")) * (1 - layout.drops("mla_up_proj"))
    output = recipe.tokens_per_rank(layout) * 2.0 * model.output_size / layout.tp
    own_copy = parts["attention_output"] - output
    entered = norm_output + (parts["latents"] if model.mla else norm_input + before)
    projected = np.where(own_copy > 0, own_copy, output)
    return {
        "attn_norm": Hosted(norm_input, norm_input) if model.mla else NONE,
        "qkv_linear": Hosted(entered, entered),
        "core_attn": Hosted(core * runs, (core + output) * runs),
        "attn_proj": Hosted(parts["attention_output"], projected),
    }


def expert_modules(
    parts: dict[str, Numeric], own: dict[str, Numeric], blocks: int
) -> dict[str, Hosted]:
    """What the modules of a layer with experts send besides. parts: layer_parts(); own:
    expert_parts(); blocks: parts of a layer with a norm before them.

    Formula: mlp_norm: the input of the norm before the experts; expert_fc1: the tokens that the
             first product reads; moe_act: what the activation function reads
    Source:  [megatron-core] core/transformer/transformer_layer.py, moe/experts.py
    Assumes: layers with a dense MLP fuse its norm into the product, so that mlp_norm has nothing
             there.
    """
    norm_input = parts["norm_inputs"] / blocks
    return {
        "mlp_norm": Hosted(norm_input, norm_input),
        "expert_fc1": Hosted(own["expert_in"], own["expert_in"]),
        "moe_act": Hosted(own["expert_middle"], own["expert_middle"]),
    }


def sent(recipe: Recipe, layout: Layouts, modules: dict[str, Hosted]) -> Hosted:
    """The sum over the modules that the software sends, of a layer that is not recomputed whole.

    Formula: activation_offload_fraction times the sum of offload_modules
    Source:  [megatron-core] core/pipeline_parallel/fine_grained_activation_offload.py: the share
             of groups, those of the first layers
    Assumes: groups of one module are alike.
    """
    offload = recipe.software.offload
    total = NONE
    for name in offload.modules:
        total = total + modules.get(name, NONE)
    if total is NONE:
        return NONE
    return total * (offload.modules_share * ~layout.recomputes_all)


def whole_layers(recipe: Recipe, kept_bytes: Numeric) -> Hosted:
    """What a mean layer sends where the first layers' activations go as a whole.

    Formula: layers / num_layers of what a layer keeps
    Source:  [megatron-core] --cpu-offloading-num-layers; [transformer-engine] cpu_offload.py: the
             transfers are spread over all layers' passes
    Assumes: one pipeline stage holds all layers.
    """
    share = min(recipe.software.offload.layers / recipe.model.num_layers, 1.0)
    return Hosted(kept_bytes * share, kept_bytes * share)


def with_copies(recipe: Recipe, layer: LayerTime, hosted: Hosted) -> LayerTime:
    """The layer with what its transfers take beyond the passes that they run beside.

    Formula: max(0, moved / link - forward), max(0, moved / link - backward)
    Source:  [megatron-core] fine_grained_activation_offload.py: a stream each way beside compute
    Assumes: both ways at once at the link's full rate; host memory feeds all links; nothing of
             compute is slowed.
    """
    if not offloads(recipe):
        return layer
    each_way = hosted.moved_bytes / (recipe.hardware.node.pcie_gbytes_per_s * GB)
    return replace(
        layer,
        host_forward_s=np.maximum(each_way - layer.forward_s, 0.0),
        host_backward_s=np.maximum(each_way - layer.backward_s, 0.0),
    )
