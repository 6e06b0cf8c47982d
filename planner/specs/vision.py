"""The vision tower of a Hugging Face config.json: its shape, and the parameters of what stands
around its layers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any

Fields = dict[str, Any]


def vision(config: Fields, where: str) -> Fields | None:
    """Fields of Vision; None for a tower that we do not know."""
    tower = config.get("vision_config")
    if not isinstance(tower, dict):
        return None
    names = [config.get("model_type"), tower.get("model_type")]
    reader = next((_TOWERS[name] for name in names if name in _TOWERS), None)
    if reader is None:
        return None
    text = next((config[x] for x in ("text_config", "llm_config") if x in config), config)
    try:
        return reader(tower, config, text["hidden_size"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _merger(width: int, merge: int, out: int, norm: int) -> int:
    """Joins merge^2 patches and projects them: a norm, two products with biases."""
    joined = width * merge**2
    return norm + joined * joined + joined + joined * out + out


def _qwen2_vl(tower: Fields, config: Fields, out: int) -> Fields:
    h, merge = tower.get("embed_dim", 1280), tower.get("spatial_merge_size", 2)
    channels = tower.get("in_channels") or tower.get("in_chans") or 3
    patch = tower.get("patch_size", 14)
    pixels = channels * tower.get("temporal_patch_size", 2) * patch**2
    ratio = tower.get("mlp_ratio", 4)
    return {
        "num_layers": tower.get("depth", 32),
        "hidden_size": h,
        "ffn_size": int(h * ratio),
        "num_heads": tower.get("num_heads", 16),
        "patch_size": patch,
        "patch_values": pixels,
        "patches_per_token": merge**2,
        "outside_parameters": pixels * h,
        "projector_parameters": _merger(h, merge, tower.get("hidden_size", out), 2 * h),
    }


def _qwen25_vl(tower: Fields, config: Fields, out: int) -> Fields:
    h, merge = tower["hidden_size"], tower.get("spatial_merge_size", 2)
    channels = tower.get("in_channels") or tower.get("in_chans") or 3
    patch = tower.get("patch_size", 14)
    pixels = channels * tower.get("temporal_patch_size", 2) * patch**2
    return {
        "num_layers": tower["depth"],
        "hidden_size": h,
        "ffn_size": tower["intermediate_size"],
        "num_heads": tower["num_heads"],
        "patch_size": patch,
        "patch_values": pixels,
        "gated_mlp": True,
        "norm": "rmsnorm",
        "patches_per_token": merge**2,
        "window_pixels": tower.get("window_size", 112),
        "full_layers": tuple(tower.get("fullatt_block_indexes", (7, 15, 23, 31))),
        "outside_parameters": pixels * h,
        "projector_parameters": _merger(h, merge, tower.get("out_hidden_size", out), h),
    }


def _qwen3_vl(tower: Fields, config: Fields, out: int) -> Fields:
    """Qwen3-VL and 3.5: learned positions; a merger more at each deepstack layer."""
    h, merge = tower["hidden_size"], tower.get("spatial_merge_size", 2)
    patch, to = tower.get("patch_size", 16), tower.get("out_hidden_size", out)
    pixels = tower.get("in_channels", 3) * tower.get("temporal_patch_size", 2) * patch**2
    deep = len(tower.get("deepstack_visual_indexes") or ())
    return {
        "num_layers": tower["depth"],
        "hidden_size": h,
        "ffn_size": tower["intermediate_size"],
        "num_heads": tower["num_heads"],
        "patch_size": patch,
        "patch_values": pixels,
        "patches_per_token": merge**2,
        "deepstack": deep,
        "outside_parameters": (pixels + 1 + tower.get("num_position_embeddings", 2304)) * h,
        "projector_parameters": (
            _merger(h, merge, to, 2 * h) + deep * _merger(h, merge, to, 2 * h * merge**2)
        ),
    }


def _siglip(tower: Fields, config: Fields, out: int) -> Fields:
    """Gemma 3."""
    h, patch = tower["hidden_size"], tower["patch_size"]
    patches = (tower["image_size"] // patch) ** 2
    pixels = tower.get("num_channels", 3) * patch**2
    return {
        "num_layers": tower["num_hidden_layers"],
        "hidden_size": h,
        "ffn_size": tower["intermediate_size"],
        "num_heads": tower["num_attention_heads"],
        "patch_size": patch,
        "patch_values": pixels,
        "patches_per_image": patches,
        "patches_per_token": max(patches // config.get("mm_tokens_per_image", 256), 1),
        "outside_parameters": (pixels + 1 + patches + 2) * h,
        "projector_parameters": h * out + h,
    }


def _gemma4(tower: Fields, config: Fields, out: int) -> Fields:
    h, patch = tower["hidden_size"], tower["patch_size"]
    positions, pool = 2 * tower["position_embedding_size"], tower["pooling_kernel_size"] ** 2
    return {
        "num_layers": tower["num_hidden_layers"],
        "hidden_size": h,
        "ffn_size": tower["intermediate_size"],
        "num_heads": tower["num_attention_heads"],
        "patch_size": patch,
        "patch_values": 3 * patch**2,
        "patches_per_image": tower.get("default_output_length", 280) * pool,
        "gated_mlp": True,
        "norm": "rmsnorm",
        "norms_per_layer": 4,
        "bias": "none",
        "mlp_bias": False,
        "qk_norm": True,
        "patches_per_token": pool,
        "outside_parameters": (positions + 3 * patch**2) * h,
        "projector_parameters": h * out,
    }


def _pixtral(tower: Fields, config: Fields, out: int) -> Fields:
    """Mistral 3."""
    h, patch = tower["hidden_size"], tower["patch_size"]
    merge = config.get("spatial_merge_size", 2)
    pixels = tower.get("num_channels", 3) * patch**2
    bias = 2 * out if config.get("multimodal_projector_bias") else 0
    return {
        "num_layers": tower["num_hidden_layers"],
        "hidden_size": h,
        "ffn_size": tower["intermediate_size"],
        "num_heads": tower["num_attention_heads"],
        "patch_size": patch,
        "patch_values": pixels,
        "gated_mlp": True,
        "norm": "rmsnorm",
        "bias": "none",
        "mlp_bias": False,
        "patches_per_token": merge**2,
        "outside_parameters": pixels * h + h,
        "projector_parameters": h + h * h * merge**2 + h * out + out * out + bias,
    }


def _llama4(tower: Fields, config: Fields, out: int) -> Fields:
    """Each tile of an image is one of its own."""
    h, patch = tower["hidden_size"], tower["patch_size"]
    patches = (tower["image_size"] // patch) ** 2
    ratio = tower.get("pixel_shuffle_ratio", 0.5)
    inner, to = tower["projector_input_dim"], tower["projector_output_dim"]
    return {
        "num_layers": tower["num_hidden_layers"],
        "hidden_size": h,
        "ffn_size": tower["intermediate_size"],
        "num_heads": tower["num_attention_heads"],
        "patch_size": patch,
        "patch_values": 3 * patch**2,
        "patches_per_image": patches,
        "patches_per_token": round(1 / ratio**2),
        "outside_parameters": 3 * patch**2 * h + h + (patches + 1) * h + 4 * h,
        "projector_parameters": tower["intermediate_size"] * inner
        + to * to
        + tower["vision_output_dim"] * out,
    }


def _moonvit(tower: Fields, config: Fields, out: int) -> Fields:
    """Kimi K2.5: its own names, or those of Transformers' class."""

    def size(name: str, own: str) -> int:
        found: int = tower[name] if name in tower else tower[own]
        return found

    h, patch = size("hidden_size", "vt_hidden_size"), tower["patch_size"]
    high, wide = tower["merge_kernel_size"]
    places = size("pos_emb_height", "init_pos_emb_height") * size(
        "pos_emb_width", "init_pos_emb_width"
    )
    return {
        "num_layers": size("num_hidden_layers", "vt_num_hidden_layers"),
        "hidden_size": h,
        "ffn_size": size("intermediate_size", "vt_intermediate_size"),
        "num_heads": size("num_attention_heads", "vt_num_attention_heads"),
        "patch_size": patch,
        "patch_values": 3 * patch**2,
        "patches_per_token": high * wide,
        "outside_parameters": (3 * patch**2 + 1 + places + 2) * h,
        "projector_parameters": _merger(h, isqrt(high * wide), out, 2 * h),
    }


_TOWERS: dict[Any, Callable[[Fields, Fields, int], Fields]] = {
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen25_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "qwen3_5": _qwen3_vl,
    "qwen3_5_moe": _qwen3_vl,
    "gemma3": _siglip,
    "gemma4": _gemma4,
    "mistral3": _pixtral,
    "llama4": _llama4,
    "kimi_k25": _moonvit,
}
