"""Models from a Hugging Face config.json: one mapping entry a family."""

from __future__ import annotations

from typing import Any

from planner.errors import InputError
from planner.specs.documents import build
from planner.specs.model import ModelSpec

_GATED = {"gated_mlp": True, "norm": "rmsnorm", "position": "rope"}
_FAMILIES: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {**_GATED, "family": "llama"},
    "MistralForCausalLM": {**_GATED, "family": "mistral"},
    "Qwen2ForCausalLM": {**_GATED, "family": "qwen2", "attention_bias": "qkv"},
    "Qwen3ForCausalLM": {**_GATED, "family": "qwen3", "qk_norm": True},
}
"""What the architecture's class fixes; the rest is in the file."""


def model_from_config(config: dict[str, Any], where: str) -> ModelSpec:
    """The ModelSpec of a config.json; InputError for an architecture that is not understood and for missing or wrong fields."""
    raise InputError(where)
