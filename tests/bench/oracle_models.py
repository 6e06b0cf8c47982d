"""Classes of Transformers drawn with random sizes, counted on the meta device: one JSON line a
model.

Needs transformers 5.24 and torch, which this project does not depend on; tests.bench.models runs it
with an interpreter that has them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from typing import Any


def sizes(known: dict[str, Any], pick: random.Random) -> dict[str, Any]:
    """Random sizes for the fields that a class has."""
    heads = pick.choice([4, 6, 8, 12])
    kv = pick.choice([x for x in (1, 2, 4, heads) if heads % x == 0])
    width = pick.choice([32, 64])
    layers = pick.randint(4, 13)
    experts = pick.choice([8, 16])
    drawn = {
        "hidden_size": heads * width,
        "n_embd": heads * width,
        "d_model": heads * width,
        "num_attention_heads": heads,
        "n_head": heads,
        "n_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": pick.choice([32, 64, 96]),
        "num_hidden_layers": layers,
        "n_layer": layers,
        "n_layers": layers,
        "intermediate_size": 16 * pick.randint(10, 60),
        "vocab_size": pick.randint(500, 3000),
        "moe_intermediate_size": 8 * pick.randint(5, 30),
        "shared_expert_intermediate_size": 8 * pick.randint(5, 30),
        "num_experts": experts,
        "num_local_experts": experts,
        "n_routed_experts": experts,
        "n_shared_experts": pick.randint(1, 2),
        "num_experts_per_tok": pick.randint(1, 4),
        "first_k_dense_replace": pick.randint(0, 2),
        "n_group": 1,
        "topk_group": 1,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": pick.random() < 0.5,
        "q_lora_rank": pick.choice([48, 96]),
        "kv_lora_rank": pick.choice([32, 64]),
        "qk_nope_head_dim": pick.choice([32, 64]),
        "qk_rope_head_dim": 16,
        "v_head_dim": pick.choice([32, 64]),
        "index_n_heads": pick.choice([2, 4]),
        "index_head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": pick.choice([2, 4]),
        "linear_key_head_dim": pick.choice([32, 48]),
        "linear_value_head_dim": pick.choice([32, 64]),
        "mamba_num_heads": 2 * heads,
        "mamba_head_dim": width,
        "mamba_n_heads": 2 * heads,
        "mamba_d_head": width,
        "mamba_d_ssm": 2 * heads * width,
        "mamba_d_state": pick.choice([8, 16]),
        "mamba_n_groups": pick.choice([1, 2]),
        "ssm_state_size": pick.choice([8, 16]),
        "n_groups": pick.choice([1, 2]),
        "num_kv_shared_layers": 1,
        "sliding_window": 512,
        "use_qk_norm": pick.random() < 0.5,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return {key: value for key, value in drawn.items() if key in known}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--each", type=int, default=2, help="models of each class")
    options = parser.parse_args()
    import torch
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    transformers.logging.set_verbosity_error()
    done = set()
    text_first = sorted(CLASSES.items(), key=lambda pair: (not pair[0].endswith("_text"), pair))
    for model_type, name in text_first:
        if (
            options.only not in name
            or name in done
            or not name.endswith(("ForCausalLM", "LMHeadModel"))
        ):
            continue
        done.add(name)
        pick = random.Random(f"{options.seed} {name}")
        for _ in range(options.each):
            layers = pick.randint(4, 9)
            try:
                kind = transformers.CONFIG_MAPPING[model_type]
                known = kind().to_dict()
                drawn = sizes(known, pick)
                if name == "CwmForCausalLM":
                    drawn = {key: x for key, x in drawn.items() if not key.endswith("_token_id")}
                if name == "Lfm2MoeForCausalLM":
                    mixed = ["full_attention" if i % 3 == 2 else "conv" for i in range(layers)]
                    drawn |= {"num_hidden_layers": layers, "layer_types": mixed}
                config = kind(**drawn)
                with torch.device("meta"):
                    model = getattr(transformers, name)(config)
            except Exception as fault:  # a class that takes no such sizes is left out
                print(name, repr(fault)[:120], file=sys.stderr)
                continue
            unique = {id(x): x.numel() for x in model.parameters()}
            biases = sum(
                x.numel()
                for label, x in model.named_buffers()
                if "e_score_correction_bias" in label or label.endswith("expert_bias")
            )
            whole = pick.random() < 0.5
            plain = config.to_dict() if whole else {**drawn, "model_type": model_type}
            line = {
                "parameters": sum(unique.values()),
                "buffers": biases,
                "config": {**plain, "architectures": [name]},
            }
            print(json.dumps(line, default=str), flush=True)


if __name__ == "__main__":
    main()
