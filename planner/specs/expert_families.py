"""Decoders with experts in some or all layers, by architecture: see Family."""

from __future__ import annotations

from planner.specs.family import (
    BIASES,
    DEEPSEEK3,
    LLAMA,
    LOCAL,
    MLA,
    OWN_WIDTH,
    PLAN,
    QK,
    ROUTED,
    SIGMOID,
    SLIDING,
    Family,
    Fields,
    share_of_rotary_dim,
    window_letters,
)


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


EXPERTS: dict[str, Family] = {
    "MixtralForCausalLM": Family(
        {**LLAMA, "family": "mixtral"},
        names=OWN_WIDTH,
        experts={},
        defaults={"num_key_value_heads": 8, "rope_theta": 1e6},
    ),
    "Qwen2MoeForCausalLM": Family(
        {**LLAMA, "family": "qwen2-moe"},
        switches={"qkv_bias": {"attention_bias": "qkv"}},
        names={"moe_every": "decoder_sparse_step"},
        defaults={
            "num_key_value_heads": 16,
            "qkv_bias": True,
            "num_experts": 60,
            "shared_expert_intermediate_size": 5632,
            **SLIDING,
        },
        experts={"router_score": "softmax_first", "shared_gate": True},
    ),
    "Qwen3MoeForCausalLM": Family(
        {**LLAMA, "family": "qwen3-moe", **QK},
        switches=BIASES,
        names={"moe_every": "decoder_sparse_step"},
        prepare=_qwen_moe,
        defaults={"num_key_value_heads": 4, "num_experts": 128, **SLIDING},
        experts={"router_score": "softmax_first"},
    ),
    "DeepseekV2ForCausalLM": Family(
        {**LLAMA, "family": "deepseek-v2"},
        names={**ROUTED, "moe_every": "moe_layer_freq"},
        experts={"router_score": "softmax_first"},
        defaults={**MLA, "n_shared_experts": 2},
        must={"attention_bias": False, "mlp_bias": False},
    ),
    "DeepseekV3ForCausalLM": Family(
        {**LLAMA, "family": "deepseek-v3"},
        names={**ROUTED, "moe_every": "moe_layer_freq"},
        experts=SIGMOID,
        defaults={**MLA, **DEEPSEEK3},
        must={"attention_bias": False, "scoring_func": "sigmoid", "topk_method": "noaux_tc"},
    ),
    "DeepseekV32ForCausalLM": Family(
        {**LLAMA, "family": "deepseek-v3.2"},
        names={**ROUTED, "moe_every": "moe_layer_freq"},
        experts=SIGMOID,
        defaults={
            **MLA,
            **DEEPSEEK3,
            "index_n_heads": 64,
            "index_head_dim": 128,
            "index_topk": 2048,
        },
        must={"attention_bias": False},
    ),
    "Llama4ForCausalLM": Family(
        {**LLAMA, "family": "llama4", **PLAN},
        experts={"router_score": "sigmoid"},
        switches={**BIASES, "use_qk_norm": {**QK, "qk_norm_kind": "l2"}},
        names={
            **LOCAL,
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
    "GptOssForCausalLM": Family(
        {**LLAMA, "family": "gpt-oss", "attention_sinks": True, "activation": "quick_gelu"},
        names=OWN_WIDTH,
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
        {**LLAMA, "family": "minimax-m2", **QK, "qk_norm_kind": "full_width", **PLAN},
        names=OWN_WIDTH,
        experts=SIGMOID,
        defaults={"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 5e6},
        prepare=share_of_rotary_dim,
        must={
            "use_qk_norm": True,
            "qk_norm_type": "per_layer",
            "use_routing_bias": True,
            "shared_intermediate_size": 0,
        },
    ),
    "Glm4MoeForCausalLM": Family(
        {**LLAMA, "family": "glm4-moe"},
        names=ROUTED,
        experts=SIGMOID,
        switches={"use_qk_norm": QK, "attention_bias": {"attention_bias": "qkv"}},
        defaults={
            "num_key_value_heads": 8,
            "partial_rotary_factor": 0.5,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
            "num_nextn_predict_layers": 1,
        },
    ),
    "FlexOlmoForCausalLM": Family(
        {
            **LLAMA,
            "family": "flex-olmo",
            "norm_place": "after",
            **QK,
            "qk_norm_kind": "full_width",
            **PLAN,
        },
        switches=BIASES,
        names={"moe_intermediate_size": "intermediate_size"},
        experts={"router_score": "softmax_first"},
    ),
    "AriaTextForCausalLM": Family(
        {**LLAMA, "family": "aria", **PLAN},
        switches=BIASES,
        names={
            "num_experts": "moe_num_experts",
            "num_experts_per_tok": "moe_topk",
            "n_shared_experts": "moe_num_shared_experts",
            "moe_intermediate_size": "intermediate_size",
        },
        experts={},
        defaults={"n_shared_experts": 2, "num_experts": 8, "num_experts_per_tok": 2},
    ),
    "OlmoeForCausalLM": Family(
        {**LLAMA, "family": "olmoe", **QK, "qk_norm_kind": "full_width", **PLAN},
        switches=BIASES,
        names={"moe_intermediate_size": "intermediate_size"},
        experts={"router_score": "softmax_first"},
    ),
    "GraniteMoeForCausalLM": Family(
        {**LLAMA, "family": "granite-moe", **PLAN}, switches=BIASES, names=OWN_WIDTH, experts={}
    ),
    "GraniteMoeSWAForCausalLM": Family(
        {**LLAMA, "family": "granite-moe-swa", "attention_sinks": True, **PLAN},
        switches=BIASES,
        names=OWN_WIDTH,
        experts={},
    ),
    "MellumForCausalLM": Family(
        {**LLAMA, "family": "mellum", **QK, **PLAN},
        switches=BIASES,
        prepare=_qwen_moe,
        experts={"router_score": "softmax_first"},
    ),
    "DbrxForCausalLM": Family(
        {**LLAMA, "family": "dbrx", "norm": "layernorm_nobias", **PLAN},
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
        {**LLAMA, "family": "arctic", "norms_per_layer": 3, **PLAN},
        names={
            **OWN_WIDTH,
            "intermediate_size": "hidden_size",
            "moe_every": "moe_layer_frequency",
        },
        experts={"dense_residual": True, "router_score": "softmax_first"},
        must={"parallel_attn_mlp_res": True, "moe_layer_frequency": 1},
    ),
    "Ernie4_5_MoeForCausalLM": Family(
        {**LLAMA, "family": "ernie4.5-moe", **PLAN},
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
        {**LLAMA, "family": "bailing-moe"},
        names={"n_shared_experts": "num_shared_experts"},
        experts=SIGMOID,
        switches={"use_qk_norm": QK, "use_qkv_bias": {"attention_bias": "qkv"}},
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
    "Glm4MoeLiteForCausalLM": Family(
        {**LLAMA, "family": "glm4-moe-lite"},
        names={**ROUTED, "moe_every": "moe_layer_freq"},
        experts=SIGMOID,
        defaults={
            **MLA,
            **DEEPSEEK3,
            "q_lora_rank": 768,
            "qk_nope_head_dim": 192,
            "v_head_dim": 256,
            "n_group": 1,
            "routed_scaling_factor": 1.8,
            "first_k_dense_replace": 1,
        },
        must={"attention_bias": False},
    ),
    "HYV3ForCausalLM": Family(
        {**LLAMA, "family": "hunyuan-3", **QK},
        switches=BIASES,
        names={
            "n_shared_experts": "num_shared_experts",
            "routed_scaling_factor": "router_scaling_factor",
        },
        experts=SIGMOID,
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
        {**LLAMA, "family": "exaone-moe", **QK, **PLAN},
        names={"n_shared_experts": "num_shared_experts"},
        experts=SIGMOID,
        prepare=window_letters,
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
        {**LLAMA, "family": "dots1", **QK},
        names=ROUTED,
        experts=SIGMOID,
        switches={"attention_bias": {"attention_bias": "qkvo"}},
        defaults={"full_every": 1, "first_k_dense_replace": 0},
    ),
    "HunYuanMoEV1ForCausalLM": Family(
        {**LLAMA, "family": "hunyuan-moe", **QK},
        switches={"attention_bias": {"attention_bias": "qkvo"}},
        names={"num_experts_per_tok": "moe_topk", "n_shared_experts": "num_shared_expert"},
        experts={},
        prepare=_hunyuan,
        defaults={"n_shared_experts": 1, "num_experts_per_tok": 1},
        must={"use_cla": False, "use_qk_norm": True, "use_mixed_mlp_moe": True},
    ),
}
