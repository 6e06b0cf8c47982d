"""Forward FLOPs of layers by torch's counter, on Transformers' own code and the meta device: one
JSON line a layer, as tests/data/layer_flops.jsonl has them.

Needs transformers 5.24 and torch, which this project does not depend on.
"""

from __future__ import annotations

import json
from typing import Any

SEQUENCES = (1024, 4096)
LATENT = {
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "index_head_dim": 128,
    "index_topk": 2048,
    "num_hidden_layers": 5,
}
GLM = {
    **LATENT,
    "hidden_size": 6144,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "index_n_heads": 32,
    "indexer_types": ["full", "full", "full", "shared", "shared"],
}
DEEPSEEK = {
    **LATENT,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 7168,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "index_n_heads": 64,
}
MINIMAX = {
    "hidden_size": 6144,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_hidden_layers": 2,
    "layer_types": ["full_attention", "minimax_m3_sparse"],
    "mlp_layer_types": ["dense", "sparse"],
    "index_n_heads": 4,
    "index_head_dim": 128,
    "index_block_size": 128,
    "index_topk_blocks": 16,
    "index_local_blocks": 1,
}
ATTENTIONS = (
    (
        "glm5.2",
        "glm_moe_dsa",
        "GlmMoeDsa",
        GLM,
        {"attention-experts": 0, "shared-index-experts": 3},
    ),
    ("deepseek-v3.2", "deepseek_v32", "DeepseekV32", DEEPSEEK, {"": 0}),
    ("minimax-m3", "minimax_m3_vl", "MiniMaxM3VL", MINIMAX, {"sparse-experts": 1}),
)


def attentions() -> list[dict[str, Any]]:
    """Attention of one layer, the indexer with it: scores of all keys, of which a mask takes the
    others out.
    """
    import importlib

    import torch
    from torch.utils.flop_counter import FlopCounterMode

    lines = []
    for preset, module, prefix, sizes, layers in ATTENTIONS:
        made = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
        configured = importlib.import_module(f"transformers.models.{module}.configuration_{module}")
        names = (f"{prefix}TextConfig", f"{prefix}Config")
        config = next(getattr(configured, n) for n in names if hasattr(configured, n))(**sizes)
        config._attn_implementation = "eager"
        for kind, layer in layers.items():
            for s in SEQUENCES:
                with torch.device("meta"):
                    attention = getattr(made, f"{prefix}Attention")(config, layer)
                    hidden = torch.empty(1, s, config.hidden_size)
                    width = sizes.get("qk_rope_head_dim") or config.head_dim
                    rotation = torch.empty(1, s, width), torch.empty(1, s, width)
                    mask = torch.ones(1, 1, s, s, dtype=torch.bool)
                    known: dict[str, Any] = {"position_ids": torch.arange(s)[None]}
                    if layer == 3:
                        known["prev_topk_indices"] = torch.zeros(1, s, 16, dtype=torch.int32)
                    with FlopCounterMode(display=False) as counter:
                        attention(hidden, rotation, mask, **known)
                lines.append(
                    {"model": preset, "kind": kind, "s": s, "flops": counter.get_total_flops()}
                )
    return lines


def gemma3n() -> list[dict[str, Any]]:
    """The whole text model without its head, in a few layers of the released sizes."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import Gemma3nTextConfig
    from transformers.models.gemma3n.modeling_gemma3n import Gemma3nTextModel

    lines = []
    for layers, shared in ((10, 0), (10, 4)):
        types = (["sliding_attention"] * 4 + ["full_attention"]) * 2
        config = Gemma3nTextConfig(
            num_hidden_layers=layers,
            layer_types=types,
            num_kv_shared_layers=shared,
            intermediate_size=[16384] * layers,
            activation_sparsity_pattern=[0.0] * layers,
        )
        config._attn_implementation = "eager"
        for s in SEQUENCES:
            with torch.device("meta"):
                model = Gemma3nTextModel(config)
                with FlopCounterMode(display=False) as counter:
                    tokens, masks = torch.zeros(1, s, dtype=torch.long), dict.fromkeys(types)
                    model(input_ids=tokens, attention_mask=masks, use_cache=False)
            lines.append(
                {
                    "model": "gemma3n-e4b",
                    "kind": "",
                    "layers": layers,
                    "shared": shared,
                    "s": s,
                    "flops": counter.get_total_flops(),
                }
            )
    return lines


if __name__ == "__main__":
    for line in (*attentions(), *gemma3n()):
        print(json.dumps(line))
