"""Decoders of attention and MLPs alone, by architecture: see Family."""

from __future__ import annotations

from planner.specs.family import (
    BIASES,
    GEMMA,
    GEMMA_TAKES,
    LLAMA,
    PLAN,
    QK,
    SANDWICH,
    SLIDING,
    Family,
    Fields,
    window_letters,
)


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


_OUTPUT_BIAS: dict[str, Fields] = {
    "attention_bias": {"attention_bias": "qkv"},
    "attention_out_bias": {"attention_bias": "qkvo"},
    "mlp_bias": {"mlp_bias": True},
}
_OLD: Fields = {"gated_mlp": False, "norm": "layernorm", "attention_bias": "qkvo", "mlp_bias": True}
_COHERE: Fields = {
    **LLAMA,
    "norm": "layernorm_nobias",
    "norms_per_layer": 1,
    "parallel_block": True,
    "family": "cohere",
    **PLAN,
}
_MPT = Family(
    {"family": "mpt", "gated_mlp": False, "norm": "layernorm_nobias", "position": "alibi", **PLAN},
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


DENSE: dict[str, Family] = {
    "LlamaForCausalLM": Family({**LLAMA, "family": "llama"}, switches=BIASES),
    "MistralForCausalLM": Family(
        {**LLAMA, "family": "mistral"},
        switches=BIASES,
        defaults={"num_key_value_heads": 8, "sliding_window": 4096},
    ),
    "Qwen2ForCausalLM": Family(
        {**LLAMA, "family": "qwen2", "attention_bias": "qkv"},
        switches={"mlp_bias": {"mlp_bias": True}},
        defaults={"num_key_value_heads": 32, **SLIDING},
    ),
    "MiMoForCausalLM": Family(
        {**LLAMA, "family": "mimo", "attention_bias": "qkv"},
        defaults=SLIDING,
        must={"attention_bias": True},
    ),
    "Qwen3ForCausalLM": Family(
        {**LLAMA, "family": "qwen3", **QK},
        switches=BIASES,
        defaults={"head_dim": 128, "num_key_value_heads": 32, **SLIDING},
    ),
    "GemmaForCausalLM": Family(
        {**GEMMA, "family": "gemma", **PLAN}, switches=BIASES, defaults=GEMMA_TAKES
    ),
    "Gemma2ForCausalLM": Family(
        {**GEMMA, "family": "gemma2", **SANDWICH},
        switches=BIASES,
        defaults={**GEMMA_TAKES, "sliding_window": 4096, "full_every": 2},
    ),
    "Gemma3ForCausalLM": Family(
        {**GEMMA, "family": "gemma3", **SANDWICH, **QK},
        switches=BIASES,
        names={"full_every": "sliding_window_pattern"},
        defaults={
            **GEMMA_TAKES,
            "sliding_window": 4096,
            "full_every": 6,
            "rope_theta": 1e6,
            "vocab_size": 262_208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131_072,
        },
    ),
    "Phi3ForCausalLM": Family({**LLAMA, "family": "phi3"}),
    "Olmo2ForCausalLM": Family(
        {
            **LLAMA,
            "family": "olmo2",
            "norm_place": "after",
            **QK,
            "qk_norm_kind": "full_width",
            **PLAN,
        },
        switches=BIASES,
    ),
    "Olmo3ForCausalLM": Family(
        {
            **LLAMA,
            "family": "olmo3",
            "norm_place": "after",
            **QK,
            "qk_norm_kind": "full_width",
            **PLAN,
        },
        switches=BIASES,
        defaults={"sliding_window": 4096, "full_every": 4},
    ),
    "CohereForCausalLM": Family(
        _COHERE,
        defaults={"tie_word_embeddings": True},
        switches={**BIASES, "use_qk_norm": {**QK, "qk_norm_kind": "per_head_own_weight"}},
    ),
    "Cohere2ForCausalLM": Family(
        {**_COHERE, "family": "cohere2", "no_rope_every": 4},
        names={"full_every": "sliding_window_pattern"},
        switches=BIASES,
        defaults={"tie_word_embeddings": True, "sliding_window": 4096, "full_every": 4},
    ),
    "GraniteForCausalLM": Family({**LLAMA, "family": "granite", **PLAN}, switches=BIASES),
    "GraniteSWAForCausalLM": Family(
        {**LLAMA, "family": "granite-swa", "attention_sinks": True, **PLAN}, switches=BIASES
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
    "Ernie4_5ForCausalLM": Family(
        {**LLAMA, "family": "ernie4.5"},
        defaults={"tie_word_embeddings": True, "head_dim": 128, "rope_theta": 5e5},
        must={"use_bias": False},
    ),
    "InternLM2ForCausalLM": Family({**LLAMA, "family": "internlm2"}, must={"bias": False}),
    "NemotronForCausalLM": Family(
        {"family": "nemotron", "gated_mlp": False, "norm": "layernorm", "position": "rope"},
        switches=BIASES,
        defaults={"hidden_act": "relu2", "partial_rotary_factor": 0.5},
    ),
    "SmolLM3ForCausalLM": Family(
        {**LLAMA, "family": "smollm3"},
        switches=BIASES,
        defaults={
            "tie_word_embeddings": True,
            "num_key_value_heads": 4,
            "no_rope_layer_interval": 4,
            "rope_theta": 2e6,
            **SLIDING,
        },
    ),
    "GPTNeoXForCausalLM": Family(
        {**_OLD, "family": "gpt-neox", "position": "rope"},
        names={"partial_rotary_factor": "rotary_pct", "rope_theta": "rotary_emb_base"},
        switches={"use_parallel_residual": {"parallel_block": True, **PLAN}},
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
        {**_OLD, "family": "opt", "position": "learned", **PLAN},
        more_rows=2,
        names={"intermediate_size": "ffn_dim", "hidden_act": "activation_function"},
        defaults={"tie_word_embeddings": True, "hidden_act": "relu"},
        must={"do_layer_norm_before": True, "enable_bias": True},
    ),
    "BloomForCausalLM": Family(
        {**_OLD, "family": "bloom", "position": "alibi", "embedding_norm": True, **PLAN},
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
            **PLAN,
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
        {**LLAMA, "family": "seed-oss"},
        switches=_OUTPUT_BIAS,
        defaults={"head_dim": 128, "num_key_value_heads": 8, "attention_bias": True},
    ),
    "Exaone4ForCausalLM": Family(
        {**LLAMA, "family": "exaone4", "norm_place": "after", **QK, **PLAN},
        prepare=window_letters,
        defaults={"num_key_value_heads": 32, "sliding_window": 4096, "full_every": 4},
    ),
    "InternLM3ForCausalLM": Family(
        {**LLAMA, "family": "internlm3"},
        switches={"qkv_bias": {"attention_bias": "qkv"}},
        defaults={"head_dim": 128, "num_key_value_heads": 2},
        must={"bias": False},
    ),
    "MinistralForCausalLM": Family(
        {**LLAMA, "family": "ministral"},
        defaults={"num_key_value_heads": 8, "sliding_window": 4096},
    ),
    "Ministral3ForCausalLM": Family(
        {**LLAMA, "family": "ministral3"}, defaults={"num_key_value_heads": 8, "head_dim": 128}
    ),
    "ArceeForCausalLM": Family(
        {**LLAMA, "family": "arcee", "gated_mlp": False},
        switches=BIASES,
        defaults={"hidden_act": "relu2"},
    ),
    "CwmForCausalLM": Family(
        {**LLAMA, "family": "cwm"},
        defaults={
            "head_dim": 128,
            "num_key_value_heads": 8,
            "sliding_window": 8192,
            "full_every": 4,
        },
    ),
    "GlmForCausalLM": Family(
        {**LLAMA, "family": "glm4"},
        switches={"attention_bias": {"attention_bias": "qkv"}},
        defaults={
            "attention_bias": True,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "partial_rotary_factor": 0.5,
        },
    ),
    "Glm4ForCausalLM": Family(
        {**LLAMA, "family": "glm4", **SANDWICH},
        switches={"attention_bias": {"attention_bias": "qkv"}},
        defaults={
            "attention_bias": True,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "partial_rotary_factor": 0.5,
        },
    ),
    "HunYuanDenseV1ForCausalLM": Family({**LLAMA, "family": "hunyuan", **QK}, switches=BIASES),
    "MPTForCausalLM": _MPT,
    "MptForCausalLM": _MPT,
}
