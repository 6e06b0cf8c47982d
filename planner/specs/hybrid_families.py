"""Decoders whose layers differ by more than experts and window, by architecture: see Family."""

from __future__ import annotations

from typing import Any

from planner.specs import hybrids
from planner.specs.family import (
    BIASES,
    DEEPSEEK3,
    GEMMA,
    GEMMA_TAKES,
    LLAMA,
    LOCAL,
    MLA,
    OWN_WIDTH,
    PLAN,
    QK,
    ROUTED,
    SANDWICH,
    SIGMOID,
    Family,
    Fields,
    share_of_rotary_dim,
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
    """As many layers as its pattern has; the width is of all shared experts together."""
    named = hybrids.nemotron_names(config, "hybrid_override_pattern", "layers_block_type")
    return {
        "num_hidden_layers": len(named) or config.get("num_hidden_layers"),
        "num_experts": config.get("n_routed_experts", 8) if {"moe"} & set(named) else 0,
        "shared_expert_intermediate_size": config.get("moe_shared_expert_intermediate_size", 7688),
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
}
_BARE: Fields = {
    "norm": "rmsnorm",
    "gated_mlp": True,
    "position": "none",
    "has_mlp": False,
    "norms_per_layer": 1,
}
_LFM2: Fields = {
    "gated_mlp": True,
    "norm": "rmsnorm",
    "position": "rope",
    "qk_norm": True,
    "frameworks": ("deepspeed", "torch"),
}
_ENDLESS = 1_048_576
"""Longest sequence of a network that has no limit; the file states none."""
_MINIMAX_TEXT = Family(
    {**LLAMA, "family": "minimax-text", **PLAN},
    names=OWN_WIDTH,
    experts={},
    prepare=share_of_rotary_dim,
    defaults={"num_key_value_heads": 8, "block_size": 256, "rope_theta": 1e6},
    layers=hybrids.lightning,
    must={"shared_intermediate_size": 0, "postnorm": True},
)


HYBRIDS: dict[str, Family] = {
    "GlmMoeDsaForCausalLM": Family(
        {**LLAMA, "family": "glm5"},
        names={**ROUTED, "moe_every": "moe_layer_freq"},
        experts=SIGMOID,
        defaults={
            **MLA,
            **DEEPSEEK3,
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
    "MiMoV2FlashForCausalLM": Family(
        {**LLAMA, "family": "mimo-v2", **PLAN},
        names={**ROUTED, "value_head_dim": "v_head_dim"},
        switches={"attention_bias": {"attention_bias": "qkv"}},
        experts=SIGMOID,
        prepare=_mimo_v2,
        defaults={
            "num_key_value_heads": 4,
            "head_dim": 192,
            "value_head_dim": 128,
            "sliding_window": 129,
        },
        layers=hybrids.mimo_v2,
    ),
    "Qwen3NextForCausalLM": Family(
        {**_QWEN_NEXT, "family": "qwen3-next"},
        switches=BIASES,
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
        switches=BIASES,
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
        switches=BIASES,
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
        {**LLAMA, "family": "olmo-hybrid", "qk_norm_kind": "full_width", **PLAN},
        switches=BIASES,
        prepare=_olmo_hybrid,
        layers=hybrids.olmo_hybrid,
    ),
    "KimiLinearForCausalLM": Family(
        {**LLAMA, "family": "kimi-linear", "position": "none", **PLAN},
        names={"moe_every": "moe_layer_freq"},
        experts=SIGMOID,
        prepare=lambda config: {**_kimi_linear(config), "tie_word_embeddings": False},
        defaults={
            **MLA,
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
        {**LLAMA, "family": "bailing-hybrid", **PLAN},
        names={"n_group": "num_expert_group"},
        experts=SIGMOID,
        must={"attention_bias": False},
        prepare=_bailing_hybrid,
        defaults={
            **MLA,
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
        },
        switches={
            "attention_bias": {"attention_bias": "qkvo"},
            "mlp_bias": {"mlp_bias": True},
        },
        names={"hidden_act": "mlp_hidden_act"},
        experts=SIGMOID,
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
        {**LLAMA, "family": "bamba", **PLAN},
        switches=BIASES,
        defaults={**_MAMBA2_HERE, "num_key_value_heads": 8},
        layers=hybrids.bamba,
    ),
    "GraniteMoeHybridForCausalLM": Family(
        {**LLAMA, "family": "granite-hybrid", "position": "none", **PLAN},
        switches={**BIASES, "rope_positions": {"position": "rope"}},
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
        {**LLAMA, "family": "falcon-h1", **PLAN},
        switches=BIASES,
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
        {**LLAMA, "family": "jamba", "position": "none", **PLAN},
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
        {**_BARE, "family": "falcon-mamba", **PLAN},
        prepare=_mamba1,
        defaults={"tie_word_embeddings": True, "max_position_embeddings": _ENDLESS},
        layers=_only_mixer,
    ),
    "MambaForCausalLM": Family(
        {**_BARE, "family": "mamba", **PLAN},
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
        {**LLAMA, "family": "minimax-m3", **QK, **PLAN},
        names=LOCAL,
        experts=SIGMOID,
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
        {**GEMMA, "family": "gemma3n", **SANDWICH, **QK},
        prepare=_gemma3n,
        defaults={
            **GEMMA_TAKES,
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
        {**GEMMA, "family": "gemma4", **SANDWICH, **QK},
        names={"num_experts_per_tok": "top_k_experts"},
        switches={**BIASES, "has_experts": {"norms_per_layer": 7}},
        experts={"dense_residual": True, "router_scales": True},
        prepare=_gemma4,
        defaults={
            **GEMMA_TAKES,
            "sliding_window": 512,
            "global_head_dim": 512,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131_072,
            "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262_144,
        },
        layers=hybrids.gemma4,
    ),
}
