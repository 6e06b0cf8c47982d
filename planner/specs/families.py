"""What each Hugging Face architecture fixes, and by which names its config.json says the rest: one
entry a family.
"""

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


_PLAN: Fields = {"frameworks": ("deepspeed", "torch")}
_LLAMA: Fields = {"gated_mlp": True, "norm": "rmsnorm", "position": "rope"}
_BIASES: dict[str, Fields] = {
    "attention_bias": {"attention_bias": "qkvo"},
    "mlp_bias": {"mlp_bias": True},
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
            "num_attention_heads": "n_head",
            "num_hidden_layers": "n_layer",
            "max_position_embeddings": "seq_length",
        },
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
    "Mistral3ForConditionalGeneration": "",
    "LlavaForConditionalGeneration": "",
    "InternVLForConditionalGeneration": "",
    "InternVLChatModel": "",
}
"""Multimodal architectures: their text part's; empty where the text part names its own."""
TEXT_PARTS = ("text_config", "llm_config")
OTHER_TYPES = {"kimi_k2": "DeepseekV3ForCausalLM", "gpt2": "GPT2LMHeadModel"}
"""Model types that are not the architecture's name in lower case."""

HYBRIDS = (
    "Mamba",
    "Jamba",
    "Bamba",
    "Zamba",
    "Rwkv",
    "RWKV",
    "NemotronH",
    "FalconH1",
    "GraniteMoeHybrid",
    "Qwen3Next",
    "Qwen3_5",
    "KimiLinear",
    "KimiK3",
    "Lfm2",
    "RecurrentGemma",
    "OlmoHybrid",
    "BailingHybrid",
    "MiniMaxText01",
    "MiniMaxM1",
    "MiniMaxForCausalLM",
    "xLSTM",
)
"""Parts of the names of architectures with state-space or linear attention layers."""
HYBRID_FIELDS = (
    "hybrid_override_pattern",
    "ssm_cfg",
    "linear_attn_config",
    "layers_block_type",
    "linear_num_key_heads",
    "mamba_d_state",
)
"""Fields that only such architectures have."""
