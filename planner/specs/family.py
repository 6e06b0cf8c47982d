"""How the config.json of an architecture is read, and what several architectures share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """How the config.json of one architecture is read. Where nothing is said the common names and
    no default hold.
    """

    fixed: Fields
    """Fields of ModelSpec that its class fixes."""
    names: dict[str, str] = field(default_factory=dict)
    """Common name: its own; dots lead into nested groups."""
    defaults: Fields = field(default_factory=dict)
    """What its class takes where the file is silent, by common name."""
    switches: dict[str, Fields] = field(default_factory=dict)
    """By a field of the file that is true: what else holds of the model."""
    must: Fields = field(default_factory=dict)
    """Fields of the file that, where stated, must have this value: others change the network in
    ways that are not understood.
    """
    experts: Fields | None = None
    """Fields of Moe that its class fixes; None: dense."""
    ffn_times: int = 0
    """Width of the MLP over hidden_size, where the file does not state it."""
    more_rows: int = 0
    """Rows of the learned position table beyond the longest sequence."""
    prepare: Callable[[Fields], Fields] | None = None
    """What cannot be said by names: fields to add, from those of the file."""
    layers: Callable[[Fields], list[Fields]] | None = None
    """Where layers differ by more than experts and window: for each layer its own fields of Kind,
    from those of the file by common names.
    """
    mtp_layers: Callable[[Fields], list[str]] | None = None
    """Kinds of the layers of a depth of multi-token prediction, where it is not one layer."""


def share_of_rotary_dim(config: Fields) -> Fields:
    """Rotary width as a part of a head."""
    rotary, width = config.get("rotary_dim"), config.get("head_dim")
    return (
        {"partial_rotary_factor": rotary / width}
        if isinstance(rotary, int) and isinstance(width, int) and width
        else {}
    )


def window_letters(config: Fields) -> Fields:
    """`LLLG`: three windows, then one layer that sees all."""
    letters = config.get("sliding_window_pattern")
    if config.get("layer_types") or not isinstance(letters, str):
        return {"full_every": letters} if isinstance(letters, int) else {}
    layers = range(config.get("num_hidden_layers") or 32)
    each = [letters[i % len(letters)] == "L" for i in layers]
    return {"layer_types": ["sliding_attention" if x else "full_attention" for x in each]}


PLAN: Fields = {"frameworks": ("deepspeed", "torch")}
LLAMA: Fields = {"gated_mlp": True, "norm": "rmsnorm", "position": "rope"}
BIASES: dict[str, Fields] = {
    "attention_bias": {"attention_bias": "qkvo"},
    "mlp_bias": {"mlp_bias": True},
}
SLIDING: Fields = {"use_sliding_window": False, "max_window_layers": 28}
QK: Fields = {"qk_norm": True}
MLA: Fields = {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
ROUTED = {"num_experts": "n_routed_experts"}
LOCAL = {"num_experts": "num_local_experts"}
OWN_WIDTH = {**LOCAL, "moe_intermediate_size": "intermediate_size"}
SIGMOID: Fields = {"router_score": "sigmoid", "router_bias": "correction"}
DEEPSEEK3: Fields = {
    "n_group": 8,
    "topk_group": 4,
    "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 3,
    "n_shared_experts": 1,
}
SANDWICH: Fields = {"norms_per_layer": 4, "norm_place": "both", **PLAN}
GEMMA: Fields = {"gated_mlp": True, "norm": "rmsnorm", "position": "rope"}
GEMMA_TAKES: Fields = {
    "tie_word_embeddings": True,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
}
