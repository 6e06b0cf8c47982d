"""What each Hugging Face architecture fixes, and by which names its config.json says the rest: one
entry a family, in dense_families, expert_families and hybrid_families.
"""

from __future__ import annotations

from planner.specs.dense_families import DENSE
from planner.specs.expert_families import EXPERTS
from planner.specs.family import BIASES, LLAMA, PLAN, QK, Family, Fields
from planner.specs.hybrid_families import HYBRIDS


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


ANY_DECODER = Family(
    {**LLAMA, "family": "unknown", **PLAN},
    switches={**BIASES, "qkv_bias": {"attention_bias": "qkv"}, "use_qk_norm": QK, "qk_norm": QK},
    experts={},
    prepare=_any_decoder,
    defaults={"kv_lora_rank": None},
)
"""How an architecture is read that no entry of FAMILIES names."""

FAMILIES: dict[str, Family] = {**DENSE, **EXPERTS, **HYBRIDS}
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
