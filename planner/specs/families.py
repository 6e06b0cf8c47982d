"""What each Hugging Face architecture fixes, and by which names its config.json says the rest: one
entry a family.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from planner.specs import hybrids

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


def _falcon(config: Fields) -> Fields:
    """Key-value heads and norms follow from two switches."""
    grouped = bool(config.get("new_decoder_architecture"))
    kv_heads = (
        config.get("num_kv_heads") if grouped else 1 if config.get("multi_query", True) else None
    )
    return {
        "num_key_value_heads": kv_heads,
        "one_norm": not grouped or config.get("num_ln_in_parallel_attn") == 1,
    }


def _bloom(config: Fields) -> Fields:
    """Releases name width and heads in two ways."""
    own = {"hidden_size": "n_embed", "num_attention_heads": "n_head"}
    return {
        name: config[other] for name, other in own.items() if name not in config and other in config
    }


def _ernie(config: Fields) -> Fields:
    """Its experts begin and end at a layer."""
    last = config.get("moe_layer_end_index")
    to_the_end = last in (None, -1) or last == config.get("num_hidden_layers", 28) - 1
    return {"moe_to_the_end": to_the_end}


def _qwen_moe(config: Fields) -> Fields:
    """Transformers 5 writes the number of experts under another name."""
    return (
        {"num_experts": config["num_local_experts"]}
        if "num_local_experts" in config and "num_experts" not in config
        else {}
    )


def _minimax(config: Fields) -> Fields:
    rotary, width = config.get("rotary_dim"), config.get("head_dim")
    return (
        {"partial_rotary_factor": rotary / width}
        if isinstance(rotary, int) and isinstance(width, int) and width
        else {}
    )


def _jamba(config: Fields) -> Fields:
    """Experts every so many layers, from an offset on."""
    layers = range(config.get("num_hidden_layers") or 32)
    period, offset = config.get("expert_layer_period", 2), config.get("expert_layer_offset", 1)
    experts = config.get("num_experts", 16)
    return {
        "moe_layers": [i for i in layers if i % period == offset],
        "num_experts": 0 if experts == 1 else experts,
    }


def _granite_hybrid(config: Fields) -> Fields:
    """Without experts its MLP is the shared one."""
    experts = config.get("num_local_experts", 8)
    return {
        "num_experts": experts,
        "rope_positions": config.get("position_embedding_type") == "rope",
        **({} if experts else {"intermediate_size": config.get("shared_intermediate_size", 1024)}),
        "moe_intermediate_size": config.get("intermediate_size"),
    }


def _lfm2(config: Fields) -> Fields:
    """The width of its MLP is two thirds of what the file says, rounded up."""
    stated = config.get("intermediate_size")
    width = config.get("block_ff_dim", 12_288) if stated is None else stated
    if config.get("block_auto_adjust_ff_dim", True):
        multiple = config.get("block_multiple_of", 256)
        width = int((config.get("block_ffn_dim_multiplier") or 1.0) * int(2 * width / 3))
        width = multiple * -(-width // multiple)
    return {"intermediate_size": width}


def _gemma3n(config: Fields) -> Fields:
    """A list of equal widths is one; the kinds have others."""
    width = config.get("intermediate_size", 16_384)
    return {"widths": width, "intermediate_size": width if isinstance(width, int) else max(width)}


def _gemma4(config: Fields) -> Fields:
    """Experts stand beside the MLP of every layer, with three norms more."""
    layers = config.get("num_hidden_layers") or 30
    types = list(
        config.get("layer_types")
        or ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(layers)]
    )
    experts = bool(config.get("enable_moe_block"))
    return {
        "layer_types": [*types[:-1], "full_attention"],
        "num_experts": config.get("num_experts") if experts else 0,
        "has_experts": experts,
    }


def _one_number(config: Fields, *names: str) -> Fields:
    """Lists of one number a layer, all alike, as that number; others as they are."""
    out = {}
    for name in names:
        each = config.get(name)
        if isinstance(each, (list, tuple)) and each and len(set(each)) == 1:
            out[name] = each[0]
    return out


def _hunyuan(config: Fields) -> Fields:
    numbers = _one_number(config, "moe_intermediate_size", "moe_topk", "num_shared_expert")
    return {"moe_intermediate_size": config.get("intermediate_size"), **numbers}


def _kimi_linear(config: Fields) -> Fields:
    """The release and the class say the same by different names."""
    return {
        "num_experts": config.get("num_experts", config.get("num_local_experts", 256)),
        "num_experts_per_tok": config.get(
            "num_experts_per_token", config.get("num_experts_per_tok", 8)
        ),
        "n_shared_experts": config.get("num_shared_experts", config.get("n_shared_experts", 1)),
        "max_position_embeddings": config.get(
            "model_max_length", config.get("max_position_embeddings", 1_048_576)
        ),
    }


def _bailing_hybrid(config: Fields) -> Fields:
    return {
        **_kimi_linear({"num_experts": 512, **config}),
        "linear_head_dim": config.get("linear_head_dim", config.get("head_dim", 128)),
        "linear_num_heads": config.get("linear_num_heads", config.get("num_attention_heads")),
        "linear_conv_kernel_dim": config.get(
            "linear_conv_kernel_dim", config.get("short_conv_kernel_size", 4)
        ),
    }


def _mamba1(config: Fields) -> Fields:
    """One mixer in every layer, and nothing else."""
    h = config.get("hidden_size", 768)
    rank = config.get("time_step_rank", "auto")
    inner = config.get("intermediate_size") or config.get("expand", 2) * h
    mixer = {
        "kind": "mamba1",
        "inner_size": inner,
        "state_size": config.get("state_size", 16),
        "dt_rank": -(-h // 16) if rank == "auto" else rank,
        "conv_kernel": config.get("conv_kernel", 4),
        "conv_bias": config.get("use_conv_bias", True),
        "projection_bias": config.get("use_bias", False),
    }
    return {"mixer": mixer, "intermediate_size": inner, "num_attention_heads": 1, "head_dim": h}


def _mamba2(config: Fields) -> Fields:
    heads, width = config.get("num_heads", 128), config.get("head_dim", 64)
    mixer = {
        "kind": "mamba2",
        "num_heads": heads,
        "head_dim": width,
        "num_groups": config.get("n_groups", 8),
        "state_size": config.get("state_size", 128),
        "conv_kernel": config.get("conv_kernel", 4),
        "conv_bias": config.get("use_conv_bias", True),
        "projection_bias": config.get("use_bias", False),
        "chunk": config.get("chunk_size", 256),
    }
    inner = heads * width
    return {"mixer": mixer, "intermediate_size": inner, "num_attention_heads": heads}


def _only_mixer(config: Fields) -> list[Fields]:
    return [{"name": "mamba", "mixer": config["mixer"]}] * config["num_hidden_layers"]


def _nemotron_h(config: Fields) -> Fields:
    """As many layers as its pattern has; all shared experts together."""
    named = hybrids.nemotron_names(config, "hybrid_override_pattern", "layers_block_type")
    shared = config.get("moe_shared_expert_intermediate_size", 7688)
    return {
        "num_hidden_layers": len(named) or config.get("num_hidden_layers"),
        "num_experts": config.get("n_routed_experts", 8) if {"moe"} & set(named) else 0,
        "shared_expert_intermediate_size": shared * config.get("n_shared_experts", 1),
        "tie_word_embeddings": False,  # whatever the file says, its class ties none
    }


def _nemotron_mtp(config: Fields) -> list[str]:
    named = hybrids.nemotron_names(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    return ["experts" if name == "moe" else name for name in named or ("attention", "moe")]


def _minimax_m3(config: Fields) -> Fields:
    """The release nests what the class of its text model has at the top."""
    frequency: Any = config.get("moe_layer_freq")
    listed = isinstance(frequency, (list, tuple))
    return {
        "moe_intermediate_size": config.get("intermediate_size"),
        "intermediate_size": config.get("dense_intermediate_size", config.get("intermediate_size")),
        "shared_expert_intermediate_size": (config.get("n_shared_experts") or 1)
        * config.get("shared_intermediate_size", 3072),
        **({"moe_layers": [i for i, x in enumerate(frequency) if x]} if listed else {}),
    }


def _glm_dsa(config: Fields) -> Fields:
    """Which layers have an indexer of their own: a list, a pattern of F and S, or every so many."""
    layers = config.get("num_hidden_layers") or 78
    types = config.get("indexer_types") or config.get("index_topk_pattern")
    if isinstance(types, str):
        types = ["full" if letter == "F" else "shared" for letter in types]
    if not types:
        every, offset = config.get("index_topk_freq", 1), config.get("index_skip_topk_offset", 2)
        types = ["full" if max(i - offset + 1, 0) % every == 0 else "shared" for i in range(layers)]
    return {"indexer_types": list(types)}


def _glm_dsa_mtp(config: Fields) -> list[str]:
    """A layer that chooses keys itself."""
    types = config.get("mlp_layer_types")
    some_dense = "dense" in types if types else config["first_k_dense_replace"] > 0
    return ["attention-experts" if some_dense else "attention"]


def _window_letters(config: Fields) -> Fields:
    """`LLLG`: three windows, then one layer that sees all."""
    letters = config.get("sliding_window_pattern")
    if config.get("layer_types") or not isinstance(letters, str):
        return {"full_every": letters} if isinstance(letters, int) else {}
    layers = range(config.get("num_hidden_layers") or 32)
    each = [letters[i % len(letters)] == "L" for i in layers]
    return {"layer_types": ["sliding_attention" if x else "full_attention" for x in each]}


def _olmo_hybrid(config: Fields) -> Fields:
    """Heads of the delta nets follow from those of attention where the file has none."""
    heads, h = config.get("num_attention_heads", 30), config.get("hidden_size", 3840)
    width = int(0.75 * h / heads)
    usual = {
        "linear_num_key_heads": heads,
        "linear_num_value_heads": heads,
        "linear_key_head_dim": width,
        "linear_value_head_dim": 2 * width,
        "linear_conv_kernel_dim": 4,
    }
    return {name: config.get(name) or value for name, value in usual.items()}


def _mimo_v2(config: Fields) -> Fields:
    """The release lists layers by 0 and 1, its class by words."""
    layers = range(config.get("num_hidden_layers") or 48)
    windowed = config.get("hybrid_layer_pattern") or [i > 0 and (i + 1) % 6 > 0 for i in layers]
    types = ["sliding_attention" if x else "full_attention" for x in windowed]
    experts: Any = config.get("moe_layer_freq")
    listed = experts if isinstance(experts, (list, tuple)) else [i > 0 for i in layers]
    return {
        "layer_types": config.get("layer_types") or types,
        "mlp_layer_types": config.get("mlp_layer_types")
        or ["sparse" if x else "dense" for x in listed],
    }


def _any_decoder(config: Fields) -> Fields:
    """Experts and latents by the names that most files use."""
    experts = next(
        (
            config[x]
            for x in ("n_routed_experts", "num_experts", "num_local_experts")
            if config.get(x)
        ),
        0,
    )
    own = config.get("moe_intermediate_size") or config.get("intermediate_size")
    return {"num_experts": experts if experts and experts > 1 else 0, "moe_intermediate_size": own}


_PLAN: Fields = {"frameworks": ("deepspeed", "torch")}
_LLAMA: Fields = {"gated_mlp": True, "norm": "rmsnorm", "position": "rope"}
_BIASES: dict[str, Fields] = {
    "attention_bias": {"attention_bias": "qkvo"},
    "mlp_bias": {"mlp_bias": True},
}
_OUTPUT_BIAS: dict[str, Fields] = {
    "attention_bias": {"attention_bias": "qkv"},
    "attention_out_bias": {"attention_bias": "qkvo"},
    "mlp_bias": {"mlp_bias": True},
}
_MAMBA2_HERE: Fields = {
    "mamba_expand": 2,
    "mamba_n_heads": 128,
    "mamba_d_head": "auto",
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_conv_bias": True,
    "mamba_proj_bias": False,
    "mamba_chunk_size": 256,
}
_DELTA: Fields = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
_QWEN_NEXT: Fields = {
    "gated_mlp": True,
    "norm": "rmsnorm",
    "position": "rope",
    "qk_norm": True,
    "attention_gate": True,
    **_PLAN,
}
_BARE: Fields = {
    "norm": "rmsnorm",
    "gated_mlp": True,
    "position": "none",
    "has_mlp": False,
    "norms_per_layer": 1,
    "frameworks": ("deepspeed", "torch"),
}
_LFM2: Fields = {
    "gated_mlp": True,
    "norm": "rmsnorm",
    "position": "rope",
    "qk_norm": True,
    "frameworks": ("deepspeed", "torch"),
}
_SLIDING: Fields = {"use_sliding_window": False, "max_window_layers": 28}
_QK: Fields = {"qk_norm": True}
_OLD: Fields = {"gated_mlp": False, "norm": "layernorm", "attention_bias": "qkvo", "mlp_bias": True}
_MLA: Fields = {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
_ROUTED = {"num_experts": "n_routed_experts"}
_LOCAL = {"num_experts": "num_local_experts"}
_OWN_WIDTH = {**_LOCAL, "moe_intermediate_size": "intermediate_size"}
_SIGMOID: Fields = {"router_score": "sigmoid", "router_bias": "correction"}
_DEEPSEEK3: Fields = {
    "n_group": 8,
    "topk_group": 4,
    "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 3,
    "n_shared_experts": 1,
}
_SANDWICH: Fields = {"norms_per_layer": 4, "norm_place": "both", **_PLAN}
_GEMMA: Fields = {"gated_mlp": True, "norm": "rmsnorm", "position": "rope"}
_GEMMA_TAKES: Fields = {
    "tie_word_embeddings": True,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
}
_COHERE: Fields = {
    **_LLAMA,
    "norm": "layernorm_nobias",
    "norms_per_layer": 1,
    "parallel_block": True,
    "family": "cohere",
    **_PLAN,
}
_MPT = Family(
    {"family": "mpt", "gated_mlp": False, "norm": "layernorm_nobias", "position": "alibi", **_PLAN},
    ffn_times=4,
    names={
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "max_position_embeddings": "max_seq_len",
        "num_key_value_heads": "attn_config.kv_n_heads",
    },
    defaults={"tie_word_embeddings": True, "hidden_act": "gelu"},
    must={
        "no_bias": True,
        "expansion_ratio": 4,
        "attn_config.alibi": True,
        "attn_config.qk_ln": False,
    },
)

_ENDLESS = 1_048_576
"""Longest sequence of a network that has no limit; the file states none."""
_MINIMAX_TEXT = Family(
    {**_LLAMA, "family": "minimax-text", **_PLAN},
    names=_OWN_WIDTH,
    experts={},
    prepare=_minimax,
    defaults={"num_key_value_heads": 8, "block_size": 256, "rope_theta": 1e6},
    layers=hybrids.lightning,
    must={"shared_intermediate_size": 0, "postnorm": True},
)

ANY_DECODER = Family(
    {**_LLAMA, "family": "unknown", **_PLAN},
    switches={**_BIASES, "qkv_bias": {"attention_bias": "qkv"}, "use_qk_norm": _QK, "qk_norm": _QK},
    experts={},
    prepare=_any_decoder,
    defaults={"kv_lora_rank": None},
)
"""How an architecture is read that no entry below names."""

FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": Family({**_LLAMA, "family": "llama"}, switches=_BIASES),
    "MistralForCausalLM": Family(
        {**_LLAMA, "family": "mistral"},
        switches=_BIASES,
        defaults={"num_key_value_heads": 8, "sliding_window": 4096},
    ),
    "MixtralForCausalLM": Family(
        {**_LLAMA, "family": "mixtral"},
        names=_OWN_WIDTH,
        experts={},
        defaults={"num_key_value_heads": 8, "rope_theta": 1e6},
    ),
    "Qwen2ForCausalLM": Family(
        {**_LLAMA, "family": "qwen2", "attention_bias": "qkv"},
        switches={"mlp_bias": {"mlp_bias": True}},
        defaults={"num_key_value_heads": 32, **_SLIDING},
    ),
    "MiMoForCausalLM": Family(
        {**_LLAMA, "family": "mimo", "attention_bias": "qkv"},
        defaults=_SLIDING,
        must={"attention_bias": True},
    ),
    "Qwen2MoeForCausalLM": Family(
        {**_LLAMA, "family": "qwen2-moe"},
        switches={"qkv_bias": {"attention_bias": "qkv"}},
        names={"moe_every": "decoder_sparse_step"},
        defaults={
            "num_key_value_heads": 16,
            "qkv_bias": True,
            "num_experts": 60,
            "shared_expert_intermediate_size": 5632,
            **_SLIDING,
        },
        experts={"router_score": "softmax_first", "shared_gate": True},
    ),
    "Qwen3ForCausalLM": Family(
        {**_LLAMA, "family": "qwen3", **_QK},
        switches=_BIASES,
        defaults={"head_dim": 128, "num_key_value_heads": 32, **_SLIDING},
    ),
    "Qwen3MoeForCausalLM": Family(
        {**_LLAMA, "family": "qwen3-moe", **_QK},
        switches=_BIASES,
        names={"moe_every": "decoder_sparse_step"},
        prepare=_qwen_moe,
        defaults={"num_key_value_heads": 4, "num_experts": 128, **_SLIDING},
        experts={"router_score": "softmax_first"},
    ),
    "DeepseekV2ForCausalLM": Family(
        {**_LLAMA, "family": "deepseek-v2"},
        names={**_ROUTED, "moe_every": "moe_layer_freq"},
        experts={"router_score": "softmax_first"},
        defaults={**_MLA, "n_shared_experts": 2},
        must={"attention_bias": False, "mlp_bias": False},
    ),
    "DeepseekV3ForCausalLM": Family(
        {**_LLAMA, "family": "deepseek-v3"},
        names={**_ROUTED, "moe_every": "moe_layer_freq"},
        experts=_SIGMOID,
        defaults={**_MLA, **_DEEPSEEK3},
        must={"attention_bias": False, "scoring_func": "sigmoid", "topk_method": "noaux_tc"},
    ),
    "DeepseekV32ForCausalLM": Family(
        {**_LLAMA, "family": "deepseek-v3.2", **_PLAN},
        names={**_ROUTED, "moe_every": "moe_layer_freq"},
        experts=_SIGMOID,
        defaults={
            **_MLA,
            **_DEEPSEEK3,
            "index_n_heads": 64,
            "index_head_dim": 128,
            "index_topk": 2048,
        },
        must={"attention_bias": False},
    ),
    "GlmMoeDsaForCausalLM": Family(
        {**_LLAMA, "family": "glm5", **_PLAN},
        names={**_ROUTED, "moe_every": "moe_layer_freq"},
        experts=_SIGMOID,
        defaults={
            **_MLA,
            **_DEEPSEEK3,
            "q_lora_rank": 2048,
            "qk_nope_head_dim": 192,
            "v_head_dim": 256,
            "n_group": 1,
            "index_n_heads": 32,
            "index_head_dim": 128,
            "index_topk": 2048,
        },
        prepare=_glm_dsa,
        layers=hybrids.indexers,
        mtp_layers=_glm_dsa_mtp,
        must={"attention_bias": False},
    ),
    "Llama4ForCausalLM": Family(
        {**_LLAMA, "family": "llama4", **_PLAN},
        experts={"router_score": "sigmoid"},
        switches={**_BIASES, "use_qk_norm": {**_QK, "qk_norm_kind": "l2"}},
        names={
            **_LOCAL,
            "intermediate_size": "intermediate_size_mlp",
            "moe_intermediate_size": "intermediate_size",
            "shared_expert_intermediate_size": "intermediate_size",
            "moe_every": "interleave_moe_layer_step",
        },
        defaults={
            "head_dim": 128,
            "attention_chunk_size": 8192,
            "no_rope_layer_interval": 4,
            "full_every": 4,
            "use_qk_norm": True,
            "rope_theta": 5e5,
        },
    ),
    "GemmaForCausalLM": Family(
        {**_GEMMA, "family": "gemma", **_PLAN}, switches=_BIASES, defaults=_GEMMA_TAKES
    ),
    "Gemma2ForCausalLM": Family(
        {**_GEMMA, "family": "gemma2", **_SANDWICH},
        switches=_BIASES,
        defaults={**_GEMMA_TAKES, "sliding_window": 4096, "full_every": 2},
    ),
    "Gemma3ForCausalLM": Family(
        {**_GEMMA, "family": "gemma3", **_SANDWICH, **_QK},
        switches=_BIASES,
        names={"full_every": "sliding_window_pattern"},
        defaults={
            **_GEMMA_TAKES,
            "sliding_window": 4096,
            "full_every": 6,
            "rope_theta": 1e6,
            "vocab_size": 262_208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131_072,
        },
    ),
    "GptOssForCausalLM": Family(
        {**_LLAMA, "family": "gpt-oss", "attention_sinks": True, "activation": "quick_gelu"},
        names=_OWN_WIDTH,
        switches={"attention_bias": {"attention_bias": "qkvo"}},
        experts={"router_bias": "linear", "expert_bias": True},
        defaults={
            "head_dim": 64,
            "num_key_value_heads": 8,
            "sliding_window": 128,
            "full_every": 2,
            "attention_bias": True,
            "rope_theta": 150_000.0,
        },
    ),
    "MiniMaxM2ForCausalLM": Family(
        {**_LLAMA, "family": "minimax-m2", **_QK, "qk_norm_kind": "full_width", **_PLAN},
        names=_OWN_WIDTH,
        experts=_SIGMOID,
        defaults={"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 5e6},
        prepare=_minimax,
        must={
            "use_qk_norm": True,
            "qk_norm_type": "per_layer",
            "use_routing_bias": True,
            "shared_intermediate_size": 0,
        },
    ),
    "Glm4MoeForCausalLM": Family(
        {**_LLAMA, "family": "glm4-moe"},
        names=_ROUTED,
        experts=_SIGMOID,
        switches={"use_qk_norm": _QK, "attention_bias": {"attention_bias": "qkv"}},
        defaults={
            "num_key_value_heads": 8,
            "partial_rotary_factor": 0.5,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
            "num_nextn_predict_layers": 1,
        },
    ),
    "Phi3ForCausalLM": Family({**_LLAMA, "family": "phi3"}),
    "Olmo2ForCausalLM": Family(
        {
            **_LLAMA,
            "family": "olmo2",
            "norm_place": "after",
            **_QK,
            "qk_norm_kind": "full_width",
            **_PLAN,
        },
        switches=_BIASES,
    ),
    "Olmo3ForCausalLM": Family(
        {
            **_LLAMA,
            "family": "olmo3",
            "norm_place": "after",
            **_QK,
            "qk_norm_kind": "full_width",
            **_PLAN,
        },
        switches=_BIASES,
        defaults={"sliding_window": 4096, "full_every": 4},
    ),
    "OlmoeForCausalLM": Family(
        {**_LLAMA, "family": "olmoe", **_QK, "qk_norm_kind": "full_width", **_PLAN},
        switches=_BIASES,
        names={"moe_intermediate_size": "intermediate_size"},
        experts={"router_score": "softmax_first"},
    ),
    "CohereForCausalLM": Family(
        _COHERE,
        defaults={"tie_word_embeddings": True},
        switches={**_BIASES, "use_qk_norm": {**_QK, "qk_norm_kind": "per_head_own_weight"}},
    ),
    "Cohere2ForCausalLM": Family(
        {**_COHERE, "family": "cohere2", "no_rope_every": 4},
        names={"full_every": "sliding_window_pattern"},
        switches=_BIASES,
        defaults={"tie_word_embeddings": True, "sliding_window": 4096, "full_every": 4},
    ),
    "GraniteForCausalLM": Family({**_LLAMA, "family": "granite", **_PLAN}, switches=_BIASES),
    "GraniteMoeForCausalLM": Family(
        {**_LLAMA, "family": "granite-moe", **_PLAN}, switches=_BIASES, names=_OWN_WIDTH, experts={}
    ),
    "GraniteSWAForCausalLM": Family(
        {**_LLAMA, "family": "granite-swa", "attention_sinks": True, **_PLAN}, switches=_BIASES
    ),
    "GraniteMoeSWAForCausalLM": Family(
        {**_LLAMA, "family": "granite-moe-swa", "attention_sinks": True, **_PLAN},
        switches=_BIASES,
        names=_OWN_WIDTH,
        experts={},
    ),
    "MellumForCausalLM": Family(
        {**_LLAMA, "family": "mellum", **_QK, **_PLAN},
        switches=_BIASES,
        prepare=_qwen_moe,
        experts={"router_score": "softmax_first"},
    ),
    "Starcoder2ForCausalLM": Family(
        {"family": "starcoder2", "gated_mlp": False, "norm": "layernorm", "position": "rope"},
        switches={"use_bias": {"attention_bias": "qkvo", "mlp_bias": True}},
        defaults={
            "tie_word_embeddings": True,
            "use_bias": True,
            "num_key_value_heads": 2,
            "hidden_act": "gelu_pytorch_tanh",
        },
    ),
    "DbrxForCausalLM": Family(
        {**_LLAMA, "family": "dbrx", "norm": "layernorm_nobias", **_PLAN},
        experts={},
        names={
            "hidden_size": "d_model",
            "num_attention_heads": "n_heads",
            "num_hidden_layers": "n_layers",
            "max_position_embeddings": "max_seq_len",
            "num_key_value_heads": "attn_config.kv_n_heads",
            "rope_theta": "attn_config.rope_theta",
            "intermediate_size": "ffn_config.ffn_hidden_size",
            "moe_intermediate_size": "ffn_config.ffn_hidden_size",
            "num_experts": "ffn_config.moe_num_experts",
            "num_experts_per_tok": "ffn_config.moe_top_k",
        },
    ),
    "ArcticForCausalLM": Family(
        {**_LLAMA, "family": "arctic", "norms_per_layer": 3, **_PLAN},
        names={
            **_OWN_WIDTH,
            "intermediate_size": "hidden_size",
            "moe_every": "moe_layer_frequency",
        },
        experts={"dense_residual": True, "router_score": "softmax_first"},
        must={"parallel_attn_mlp_res": True, "moe_layer_frequency": 1},
    ),
    "Ernie4_5ForCausalLM": Family(
        {**_LLAMA, "family": "ernie4.5"},
        defaults={"tie_word_embeddings": True, "head_dim": 128, "rope_theta": 5e5},
        must={"use_bias": False},
    ),
    "Ernie4_5_MoeForCausalLM": Family(
        {**_LLAMA, "family": "ernie4.5-moe", **_PLAN},
        experts={"router_bias": "correction"},
        names={
            "num_experts": "moe_num_experts",
            "num_experts_per_tok": "moe_k",
            "n_shared_experts": "moe_num_shared_experts",
            "first_k_dense_replace": "moe_layer_start_index",
            "moe_every": "moe_layer_interval",
        },
        defaults={
            "tie_word_embeddings": True,
            "rope_theta": 5e5,
            "first_k_dense_replace": 1,
            "n_shared_experts": 2,
        },
        prepare=_ernie,
        must={"use_bias": False, "moe_to_the_end": True},
    ),
    "BailingMoeV2ForCausalLM": Family(
        {**_LLAMA, "family": "bailing-moe"},
        names={"n_shared_experts": "num_shared_experts"},
        experts=_SIGMOID,
        switches={"use_qk_norm": _QK, "use_qkv_bias": {"attention_bias": "qkv"}},
        defaults={
            "n_group": 8,
            "topk_group": 4,
            "routed_scaling_factor": 2.5,
            "use_qk_norm": True,
            "partial_rotary_factor": 0.5,
        },
        must={
            "use_bias": False,
            "score_function": "sigmoid",
            "moe_router_enable_expert_bias": True,
        },
    ),
    "InternLM2ForCausalLM": Family({**_LLAMA, "family": "internlm2"}, must={"bias": False}),
    "NemotronForCausalLM": Family(
        {"family": "nemotron", "gated_mlp": False, "norm": "layernorm", "position": "rope"},
        switches=_BIASES,
        defaults={"hidden_act": "relu2", "partial_rotary_factor": 0.5},
    ),
    "SmolLM3ForCausalLM": Family(
        {**_LLAMA, "family": "smollm3"},
        switches=_BIASES,
        defaults={
            "tie_word_embeddings": True,
            "num_key_value_heads": 4,
            "no_rope_layer_interval": 4,
            "rope_theta": 2e6,
            **_SLIDING,
        },
    ),
    "GPTNeoXForCausalLM": Family(
        {**_OLD, "family": "gpt-neox", "position": "rope"},
        names={"partial_rotary_factor": "rotary_pct", "rope_theta": "rotary_emb_base"},
        switches={"use_parallel_residual": {"parallel_block": True, **_PLAN}},
        must={"attention_bias": True},
        defaults={
            "use_parallel_residual": True,
            "hidden_act": "gelu",
            "partial_rotary_factor": 0.25,
        },
    ),
    "GPT2LMHeadModel": Family(
        {**_OLD, "family": "gpt", "position": "learned"},
        ffn_times=4,
        defaults={"tie_word_embeddings": True, "hidden_act": "gelu"},
        names={
            "hidden_size": "n_embd",
            "num_attention_heads": "n_head",
            "num_hidden_layers": "n_layer",
            "intermediate_size": "n_inner",
            "max_position_embeddings": "n_positions",
            "hidden_act": "activation_function",
        },
    ),
    "OPTForCausalLM": Family(
        {**_OLD, "family": "opt", "position": "learned", **_PLAN},
        more_rows=2,
        names={"intermediate_size": "ffn_dim", "hidden_act": "activation_function"},
        defaults={"tie_word_embeddings": True, "hidden_act": "relu"},
        must={"do_layer_norm_before": True, "enable_bias": True},
    ),
    "BloomForCausalLM": Family(
        {**_OLD, "family": "bloom", "position": "alibi", "embedding_norm": True, **_PLAN},
        ffn_times=4,
        names={
            "num_hidden_layers": "n_layer",
            "max_position_embeddings": "seq_length",
        },
        prepare=_bloom,
        defaults={
            "tie_word_embeddings": True,
            "hidden_act": "gelu",
            "max_position_embeddings": 2048,
        },
    ),
    "FalconForCausalLM": Family(
        {
            "family": "falcon",
            "gated_mlp": False,
            "norm": "layernorm",
            "position": "rope",
            "parallel_block": True,
            **_PLAN,
        },
        ffn_times=4,
        names={"intermediate_size": "ffn_hidden_size", "hidden_act": "activation"},
        switches={"one_norm": {"norms_per_layer": 1}},
        defaults={
            "tie_word_embeddings": True,
            "hidden_act": "gelu",
            "max_position_embeddings": 2048,
        },
        prepare=_falcon,
        must={"alibi": False, "parallel_attn": True, "bias": False},
    ),
    "SeedOssForCausalLM": Family(
        {**_LLAMA, "family": "seed-oss"},
        switches=_OUTPUT_BIAS,
        defaults={"head_dim": 128, "num_key_value_heads": 8, "attention_bias": True},
    ),
    "Exaone4ForCausalLM": Family(
        {**_LLAMA, "family": "exaone4", "norm_place": "after", **_QK, **_PLAN},
        prepare=_window_letters,
        defaults={"num_key_value_heads": 32, "sliding_window": 4096, "full_every": 4},
    ),
    "InternLM3ForCausalLM": Family(
        {**_LLAMA, "family": "internlm3"},
        switches={"qkv_bias": {"attention_bias": "qkv"}},
        defaults={"head_dim": 128, "num_key_value_heads": 2},
        must={"bias": False},
    ),
    "MinistralForCausalLM": Family(
        {**_LLAMA, "family": "ministral"},
        defaults={"num_key_value_heads": 8, "sliding_window": 4096},
    ),
    "Ministral3ForCausalLM": Family(
        {**_LLAMA, "family": "ministral3"}, defaults={"num_key_value_heads": 8, "head_dim": 128}
    ),
    "ArceeForCausalLM": Family(
        {**_LLAMA, "family": "arcee", "gated_mlp": False},
        switches=_BIASES,
        defaults={"hidden_act": "relu2"},
    ),
    "CwmForCausalLM": Family(
        {**_LLAMA, "family": "cwm"},
        defaults={
            "head_dim": 128,
            "num_key_value_heads": 8,
            "sliding_window": 8192,
            "full_every": 4,
        },
    ),
    "GlmForCausalLM": Family(
        {**_LLAMA, "family": "glm4"},
        switches={"attention_bias": {"attention_bias": "qkv"}},
        defaults={
            "attention_bias": True,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "partial_rotary_factor": 0.5,
        },
    ),
    "Glm4ForCausalLM": Family(
        {**_LLAMA, "family": "glm4", **_SANDWICH},
        switches={"attention_bias": {"attention_bias": "qkv"}},
        defaults={
            "attention_bias": True,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "partial_rotary_factor": 0.5,
        },
    ),
    "Glm4MoeLiteForCausalLM": Family(
        {**_LLAMA, "family": "glm4-moe-lite"},
        names={**_ROUTED, "moe_every": "moe_layer_freq"},
        experts=_SIGMOID,
        defaults={
            **_MLA,
            **_DEEPSEEK3,
            "q_lora_rank": 768,
            "qk_nope_head_dim": 192,
            "v_head_dim": 256,
            "n_group": 1,
            "routed_scaling_factor": 1.8,
            "first_k_dense_replace": 1,
        },
        must={"attention_bias": False},
    ),
    "MiMoV2FlashForCausalLM": Family(
        {**_LLAMA, "family": "mimo-v2", **_PLAN},
        names={**_ROUTED, "value_head_dim": "v_head_dim"},
        switches={"attention_bias": {"attention_bias": "qkv"}},
        experts=_SIGMOID,
        prepare=_mimo_v2,
        defaults={
            "num_key_value_heads": 4,
            "head_dim": 192,
            "value_head_dim": 128,
            "sliding_window": 129,
        },
        layers=hybrids.mimo_v2,
    ),
    "HYV3ForCausalLM": Family(
        {**_LLAMA, "family": "hunyuan-3", **_QK},
        switches=_BIASES,
        names={
            "n_shared_experts": "num_shared_experts",
            "routed_scaling_factor": "router_scaling_factor",
        },
        experts=_SIGMOID,
        defaults={
            "head_dim": 128,
            "num_key_value_heads": 8,
            "num_experts": 192,
            "num_experts_per_tok": 8,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 1536,
        },
    ),
    "ExaoneMoeForCausalLM": Family(
        {**_LLAMA, "family": "exaone-moe", **_QK, **_PLAN},
        names={"n_shared_experts": "num_shared_experts"},
        experts=_SIGMOID,
        prepare=_window_letters,
        defaults={
            "sliding_window": 4096,
            "full_every": 4,
            "first_k_dense_replace": 1,
            "num_experts": 64,
            "num_experts_per_tok": 8,
            "n_shared_experts": 1,
            "moe_intermediate_size": 1024,
        },
    ),
    "Dots1ForCausalLM": Family(
        {**_LLAMA, "family": "dots1", **_QK},
        names=_ROUTED,
        experts=_SIGMOID,
        switches={"attention_bias": {"attention_bias": "qkvo"}},
        defaults={"full_every": 1, "first_k_dense_replace": 0},
    ),
    "HunYuanDenseV1ForCausalLM": Family({**_LLAMA, "family": "hunyuan", **_QK}, switches=_BIASES),
    "HunYuanMoEV1ForCausalLM": Family(
        {**_LLAMA, "family": "hunyuan-moe", **_QK},
        switches={"attention_bias": {"attention_bias": "qkvo"}},
        names={"num_experts_per_tok": "moe_topk", "n_shared_experts": "num_shared_expert"},
        experts={},
        prepare=_hunyuan,
        defaults={"n_shared_experts": 1, "num_experts_per_tok": 1},
        must={"use_cla": False, "use_qk_norm": True, "use_mixed_mlp_moe": True},
    ),
    "Qwen3NextForCausalLM": Family(
        {**_QWEN_NEXT, "family": "qwen3-next"},
        switches=_BIASES,
        names={"moe_every": "decoder_sparse_step"},
        defaults={
            **_DELTA,
            "head_dim": 256,
            "num_key_value_heads": 2,
            "partial_rotary_factor": 0.25,
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
        },
        experts={"router_score": "softmax", "shared_gate": True},
        layers=hybrids.delta_nets,
    ),
    "Qwen3_5ForCausalLM": Family(
        {**_QWEN_NEXT, "family": "qwen3.5"},
        switches=_BIASES,
        names={"num_nextn_predict_layers": "mtp_num_hidden_layers"},
        defaults={
            **_DELTA,
            "head_dim": 256,
            "num_key_value_heads": 4,
            "partial_rotary_factor": 0.25,
        },
        layers=hybrids.delta_nets,
    ),
    "Qwen3_5MoeForCausalLM": Family(
        {**_QWEN_NEXT, "family": "qwen3.5-moe"},
        switches=_BIASES,
        names={
            "num_nextn_predict_layers": "mtp_num_hidden_layers",
            "intermediate_size": "moe_intermediate_size",
            "moe_intermediate_size": "moe_intermediate_size",
        },
        defaults={
            **_DELTA,
            "head_dim": 256,
            "num_key_value_heads": 2,
            "partial_rotary_factor": 0.25,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
            "intermediate_size": 512,
        },
        experts={"router_score": "softmax", "shared_gate": True},
        layers=hybrids.delta_nets,
    ),
    "OlmoHybridForCausalLM": Family(
        {**_LLAMA, "family": "olmo-hybrid", "qk_norm_kind": "full_width", **_PLAN},
        switches=_BIASES,
        prepare=_olmo_hybrid,
        layers=hybrids.olmo_hybrid,
    ),
    "KimiLinearForCausalLM": Family(
        {**_LLAMA, "family": "kimi-linear", "position": "none", **_PLAN},
        names={"moe_every": "moe_layer_freq"},
        experts=_SIGMOID,
        prepare=lambda config: {**_kimi_linear(config), "tie_word_embeddings": False},
        defaults={
            **_MLA,
            "q_lora_rank": None,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 2.446,
            "linear_num_heads": 32,
            "linear_head_dim": 128,
            "linear_conv_kernel_dim": 4,
        },
        layers=hybrids.kimi_linear,
    ),
    "BailingHybridForCausalLM": Family(
        {**_LLAMA, "family": "bailing-hybrid", **_PLAN},
        names={"n_group": "num_expert_group"},
        experts=_SIGMOID,
        must={"attention_bias": False},
        prepare=_bailing_hybrid,
        defaults={
            **_MLA,
            "q_lora_rank": None,
            "first_k_dense_replace": 2,
            "n_group": 8,
            "topk_group": 4,
            "routed_scaling_factor": 2.5,
            "layer_group_size": 6,
        },
        layers=hybrids.bailing_hybrid,
    ),
    "NemotronHForCausalLM": Family(
        {
            "family": "nemotron-h",
            "gated_mlp": False,
            "norm": "rmsnorm",
            "position": "none",
            "norms_per_layer": 1,
            **_PLAN,
        },
        switches={
            "attention_bias": {"attention_bias": "qkvo"},
            "mlp_bias": {"mlp_bias": True},
        },
        names={"hidden_act": "mlp_hidden_act"},
        experts=_SIGMOID,
        prepare=_nemotron_h,
        defaults={
            "hidden_act": "relu2",
            "num_key_value_heads": 8,
            "head_dim": 128,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "ssm_state_size": 128,
            "conv_kernel": 4,
            "use_conv_bias": True,
            "use_bias": False,
            "chunk_size": 128,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 7688,
        },
        layers=hybrids.nemotron_h,
        mtp_layers=_nemotron_mtp,
    ),
    "BambaForCausalLM": Family(
        {**_LLAMA, "family": "bamba", **_PLAN},
        switches=_BIASES,
        defaults={**_MAMBA2_HERE, "num_key_value_heads": 8},
        layers=hybrids.bamba,
    ),
    "GraniteMoeHybridForCausalLM": Family(
        {**_LLAMA, "family": "granite-hybrid", "position": "none", **_PLAN},
        switches={**_BIASES, "rope_positions": {"position": "rope"}},
        names={
            "shared_expert_intermediate_size": "shared_intermediate_size",
            "num_experts": "num_experts",
        },
        experts={},
        prepare=_granite_hybrid,
        defaults={
            **_MAMBA2_HERE,
            "shared_expert_intermediate_size": 1024,
            "num_experts_per_tok": 2,
        },
        layers=hybrids.granite_hybrid,
    ),
    "FalconH1ForCausalLM": Family(
        {**_LLAMA, "family": "falcon-h1", **_PLAN},
        switches=_BIASES,
        defaults={
            **_MAMBA2_HERE,
            "num_key_value_heads": 8,
            "mamba_d_ssm": 1024,
            "mamba_rms_norm": False,
        },
        layers=hybrids.falcon_h1,
        must={"mamba_use_mlp": True, "projectors_bias": False},
    ),
    "JambaForCausalLM": Family(
        {**_LLAMA, "family": "jamba", "position": "none", **_PLAN},
        names={"moe_intermediate_size": "intermediate_size"},
        experts={"router_score": "softmax_first"},
        prepare=_jamba,
        defaults={
            "num_key_value_heads": 8,
            "num_experts_per_tok": 2,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "mamba_expand": 2,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_dt_rank": "auto",
            "mamba_conv_bias": True,
            "mamba_proj_bias": False,
        },
        layers=hybrids.jamba,
    ),
    "FalconMambaForCausalLM": Family(
        {**_BARE, "family": "falcon-mamba"},
        prepare=_mamba1,
        defaults={"tie_word_embeddings": True, "max_position_embeddings": _ENDLESS},
        layers=_only_mixer,
    ),
    "MambaForCausalLM": Family(
        {**_BARE, "family": "mamba"},
        prepare=_mamba1,
        defaults={"tie_word_embeddings": True, "max_position_embeddings": _ENDLESS},
        layers=_only_mixer,
    ),
    "Mamba2ForCausalLM": Family(
        {**_BARE, "family": "mamba2"},
        prepare=_mamba2,
        defaults={"max_position_embeddings": _ENDLESS},
        layers=_only_mixer,
    ),
    "MiniMaxForCausalLM": _MINIMAX_TEXT,
    "MiniMaxText01ForCausalLM": _MINIMAX_TEXT,
    "MiniMaxM1ForCausalLM": _MINIMAX_TEXT,
    "MiniMaxM3VLForCausalLM": Family(
        {**_LLAMA, "family": "minimax-m3", **_QK, **_PLAN},
        names=_LOCAL,
        experts=_SIGMOID,
        prepare=_minimax_m3,
        defaults={
            "num_key_value_heads": 4,
            "head_dim": 128,
            "num_local_experts": 128,
            "num_experts": 128,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 3072,
        },
        layers=hybrids.block_sparse,
    ),
    "Lfm2ForCausalLM": Family(
        {**_LFM2, "family": "lfm2"},
        prepare=_lfm2,
        defaults={
            "tie_word_embeddings": True,
            "num_key_value_heads": 8,
            "conv_L_cache": 3,
            "conv_bias": False,
        },
        layers=hybrids.lfm2,
    ),
    "Lfm2MoeForCausalLM": Family(
        {**_LFM2, "family": "lfm2-moe"},
        names={"first_k_dense_replace": "num_dense_layers"},
        experts={"router_score": "sigmoid"},
        switches={"use_expert_bias": {}},
        defaults={
            "tie_word_embeddings": True,
            "num_key_value_heads": 8,
            "conv_L_cache": 3,
            "conv_bias": False,
            "first_k_dense_replace": 2,
            "num_experts": 32,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1792,
        },
        layers=hybrids.lfm2,
    ),
    "Gemma3nForCausalLM": Family(
        {**_GEMMA, "family": "gemma3n", **_SANDWICH, **_QK},
        prepare=_gemma3n,
        defaults={
            **_GEMMA_TAKES,
            "sliding_window": 512,
            "full_every": 5,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "max_position_embeddings": 32_768,
            "vocab_size": 262_400,
            "hidden_size": 2048,
            "num_hidden_layers": 35,
            "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262_144,
            "altup_num_inputs": 4,
            "laurel_rank": 64,
            "num_kv_shared_layers": 15,
            "rope_theta": 1e6,
        },
        layers=hybrids.gemma3n,
    ),
    "Gemma4ForCausalLM": Family(
        {**_GEMMA, "family": "gemma4", **_SANDWICH, **_QK},
        names={"num_experts_per_tok": "top_k_experts"},
        switches={**_BIASES, "has_experts": {"norms_per_layer": 7}},
        experts={"dense_residual": True, "router_scales": True},
        prepare=_gemma4,
        defaults={
            **_GEMMA_TAKES,
            "sliding_window": 512,
            "global_head_dim": 512,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131_072,
            "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262_144,
        },
        layers=hybrids.gemma4,
    ),
    "MPTForCausalLM": _MPT,
    "MptForCausalLM": _MPT,
}
"""By architecture, as config.json names it."""

MULTIMODAL = {
    "Llama4ForConditionalGeneration": "Llama4ForCausalLM",
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    "Qwen2VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen3VLForConditionalGeneration": "Qwen3ForCausalLM",
    "Qwen3VLMoeForConditionalGeneration": "Qwen3MoeForCausalLM",
    "KimiK25ForConditionalGeneration": "DeepseekV3ForCausalLM",
    "Kimi_K25ForConditionalGeneration": "DeepseekV3ForCausalLM",
    "Gemma3nForConditionalGeneration": "Gemma3nForCausalLM",
    "Gemma4ForConditionalGeneration": "Gemma4ForCausalLM",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5MoeForCausalLM",
    "MiniMaxM3SparseForConditionalGeneration": "MiniMaxM3VLForCausalLM",
    "Mistral3ForConditionalGeneration": "",
    "LlavaForConditionalGeneration": "",
    "InternVLForConditionalGeneration": "",
    "InternVLChatModel": "",
}
"""Multimodal architectures: their text part's; empty where the text part names its own."""
TEXT_PARTS = ("text_config", "llm_config")
OTHER_TYPES = {
    "kimi_k2": "DeepseekV3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "hunyuan_v1_moe": "HunYuanMoEV1ForCausalLM",
    "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM",
    "minimax_m3_vl": "MiniMaxM3VLForCausalLM",
    "qwen3_5": "Qwen3_5ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForCausalLM",
    "mistral": "MistralForCausalLM",
}
"""Model types that are not the architecture's name in lower case."""

OTHER_NAMES = {
    "RWForCausalLM": "FalconForCausalLM",
    "MiniMaxM3ForCausalLM": "MiniMaxM3VLForCausalLM",
}
"""Architectures under another name."""

_UNNAMED = "parts that its config.json does not name"
NOT_READ = {
    **dict.fromkeys(
        (
            "AfmoeForCausalLM",
            "BeamForCausalLM",
            "FlintForCausalLM",
            "HeliumForCausalLM",
            "HyperCLOVAXForCausalLM",
        ),
        _UNNAMED,
    ),
    "DiffLlamaForCausalLM": "differential attention",
    "Zamba2ForCausalLM": "attention blocks whose weights several layers share",
    "ZambaForCausalLM": "attention blocks whose weights several layers share",
    "RwkvForCausalLM": "RWKV layers",
    "RecurrentGemmaForCausalLM": "recurrent blocks (RG-LRU)",
    "xLSTMForCausalLM": "xLSTM layers",
    "AXK1ForCausalLM": "norms behind its experts",
    "DogeForCausalLM": "experts retrieved by products of keys",
    "Phi4MultimodalForCausalLM": "encoders of images and sound within",
    "PhimoeForCausalLM": "a bias on its output table",
    "PhiForCausalLM": "a bias on its output table",
}
"""Architectures whose network we know to be another, and what is in it."""
