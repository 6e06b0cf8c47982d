"""Floating-point operations of vision towers, counted by torch as transformers' classes run them:
`PYTHON tests/bench/oracle_vision.py > tests/data/vision_flops.jsonl` with transformers 5.24 and
torch, on a processor.

A few layers of the released widths; forward, and forward with backward of tower and projector.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForImageTextToText

TEXT = {
    "hidden_size": 512,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 300_000,
}
QWEN3 = {"depth": 3, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "qwen2_5_vl": (
        {
            "depth": 4,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": 512,
            "fullatt_block_indexes": [3],
        },
        {},
        448,
    ),
    "qwen3_vl": (
        {**QWEN3, "out_hidden_size": 512, "deepstack_visual_indexes": [0, 1]},
        {},
        512,
    ),
    "qwen3_5": ({**QWEN3, "out_hidden_size": 512}, {}, 512),
    "gemma3": (
        {
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_hidden_layers": 2,
            "num_attention_heads": 16,
            "image_size": 448,
            "patch_size": 14,
            "vision_use_head": False,
        },
        {"mm_tokens_per_image": 64},
        448,
    ),
    "mistral3": (
        {
            "model_type": "pixtral",
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 2,
            "num_attention_heads": 16,
            "head_dim": 64,
            "image_size": 1540,
            "patch_size": 14,
        },
        {"spatial_merge_size": 2},
        448,
    ),
    "gemma4": (
        {
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_hidden_layers": 2,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "head_dim": 72,
            "patch_size": 16,
            "pooling_kernel_size": 3,
            "default_output_length": 100,
        },
        {},
        480,
    ),
    "kimi_k25": ({"num_hidden_layers": 2}, {}, 448),
    "llama4": (
        {
            "hidden_size": 1408,
            "intermediate_size": 5632,
            "num_hidden_layers": 2,
            "num_attention_heads": 16,
            "image_size": 336,
            "patch_size": 14,
            "vision_output_dim": 4096,
        },
        {},
        336,
    ),
}


def built(kind: str) -> tuple[Any, dict[str, Any]]:
    """The class with a small text part, and its config.json."""
    vision, own, _ = CASES[kind]
    config = AutoConfig.for_model(kind, text_config=TEXT, vision_config=vision, **own)
    return AutoModelForImageTextToText.from_config(config), config.to_dict()


def image(kind: str, model: Any, size: int) -> dict[str, Any]:
    """What the class takes of one image of so many pixels a side."""
    tower = model.config.vision_config
    if kind == "gemma4":
        side = size // tower.patch_size
        places = torch.cartesian_prod(torch.arange(side), torch.arange(side))
        values = torch.randn(1, side * side, 3 * tower.patch_size**2)
        return {"pixel_values": values, "image_position_ids": places[None]}
    if kind == "kimi_k25":
        side = size // tower.patch_size
        values = torch.randn(side * side, 3, tower.patch_size, tower.patch_size)
        return {"pixel_values": values, "image_grid_thw": torch.tensor([[1, side, side]])}
    if not kind.startswith("qwen"):
        inputs: dict[str, Any] = {"pixel_values": torch.randn(1, 3, size, size)}
        if kind == "mistral3":
            inputs["image_sizes"] = [(size, size)]
        return inputs
    side = size // tower.patch_size
    values = 3 * tower.temporal_patch_size * tower.patch_size**2
    return {
        "pixel_values": torch.randn(side * side, values),
        "image_grid_thw": torch.tensor([[1, side, side]]),
    }


def features(model: Any, inputs: dict[str, Any]) -> Any:
    """What the tower and its projector give."""
    if hasattr(model, "model"):
        return model.model.get_image_features(**inputs)
    seen = model.get_image_features(**inputs).last_hidden_state
    return model.multi_modal_projector(seen.view(-1, seen.size(-1)))


def tensors(found: Any) -> list[torch.Tensor]:
    """All of a nested answer that has a gradient."""
    if isinstance(found, torch.Tensor):
        return [found] if found.requires_grad else []
    if isinstance(found, dict):
        found = list(found.values())
    return (
        [one for part in found for one in tensors(part)] if isinstance(found, (list, tuple)) else []
    )


def main() -> None:
    torch.manual_seed(0)
    for kind in sys.argv[1:] or CASES:
        size = CASES[kind][2]
        model, config = built(kind)
        inputs = image(kind, model, size)
        # torch counts no attention kernel of a processor, but the products that it stands for
        with FlopCounterMode(display=False) as forward, sdpa_kernel(SDPBackend.MATH):
            answer = features(model, inputs)
        with FlopCounterMode(display=False) as backward:
            sum(part.sum() for part in tensors(answer)).backward()
        numbers = (int, float, list, tuple)
        tower = {k: v for k, v in config["vision_config"].items() if isinstance(v, numbers)}
        parts = (name for name, _ in model.named_parameters())
        outside = [name for name in parts if re.search("visual|vision|projector", name)]
        row = {
            "image_size": size,
            "parameters": sum(model.get_parameter(name).numel() for name in outside),
            "forward": forward.get_total_flops(),
            "backward": backward.get_total_flops(),
            "config": {
                "model_type": kind,
                "text_config": {"hidden_size": TEXT["hidden_size"]},
                "vision_config": tower,
                **CASES[kind][1],
            },
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
