"""Models from a Hugging Face config.json: one mapping entry a family."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveFloat

from planner.errors import InputError
from planner.specs.documents import build
from planner.specs.model import ModelSpec, Width

_LLAMA_LIKE = {"gated_mlp": True, "norm": "rmsnorm", "position": "rope"}
FAMILIES: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {**_LLAMA_LIKE, "family": "llama"},
    "MistralForCausalLM": {**_LLAMA_LIKE, "family": "mistral"},
    "Qwen2ForCausalLM": {**_LLAMA_LIKE, "family": "qwen2", "attention_bias": "qkv"},
    "Qwen3ForCausalLM": {**_LLAMA_LIKE, "family": "qwen3", "qk_norm": True},
}
"""By architecture: what its class fixes; the rest is in the file."""

_HEAD_DIM = {"Qwen3ForCausalLM": 128}
"""Head width where the file leaves it out and it is not hidden_size / num_attention_heads."""
_KV_HEADS = {"MistralForCausalLM": 8, "Qwen2ForCausalLM": 32, "Qwen3ForCausalLM": 32}
"""Key-value heads where the file has no such field; null, and no field in Llama, means as many as heads."""
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu2": "squared_relu"}


class _Config(BaseModel):
    """The fields that are read. What does not change size or cost (rope_scaling, quantization_config, torch_dtype, ...) may be there."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    hidden_size: Width
    intermediate_size: Width
    num_hidden_layers: Width
    num_attention_heads: Width
    num_key_value_heads: Width | None = None
    head_dim: Width | None = None
    vocab_size: Width
    max_position_embeddings: Width
    hidden_act: str = "silu"
    tie_word_embeddings: bool | None = None
    attention_bias: bool | None = None
    mlp_bias: bool | None = None
    rope_theta: PositiveFloat | None = None
    rope_parameters: dict[str, Any] | None = None
    """Where Transformers 5 keeps rope_theta."""


def model_from_config(config: dict[str, Any], name: str, where: str) -> ModelSpec:
    """The model of a config.json; InputError for an architecture that is not understood and for missing or wrong fields."""
    architecture = _architecture(config, where)
    read = build(_Config, config, where)
    if read.hidden_act not in _ACTIVATIONS:
        raise InputError(f"{where}: hidden_act must be one of {', '.join(_ACTIVATIONS)}, but got {read.hidden_act[:60]!r}")
    fields = {
        **FAMILIES[architecture],
        "name": name,
        "hidden_size": read.hidden_size,
        "ffn_size": read.intermediate_size,
        "num_layers": read.num_hidden_layers,
        "num_heads": read.num_attention_heads,
        "num_kv_heads": _kv_heads(read, config, architecture),
        "head_dim": _head_dim(read, architecture, where),
        "vocab_size": read.vocab_size,
        "max_seq_length": read.max_position_embeddings,
        "activation": _ACTIVATIONS[read.hidden_act],
        "tied_embeddings": bool(read.tie_word_embeddings),
        "rope_theta": _rope_theta(read, where),
        "mlp_bias": bool(read.mlp_bias),
        "source": where,
    }
    if read.attention_bias and architecture != "Qwen2ForCausalLM":
        fields["attention_bias"] = "qkvo"
    return build(ModelSpec, fields, where)


def _architecture(config: dict[str, Any], where: str) -> str:
    """The class that the file names, or the one of its model_type."""
    by_type = {name.removesuffix("ForCausalLM").lower(): name for name in FAMILIES}
    named = config.get("architectures") or by_type.get(str(config.get("model_type")), config.get("model_type"))
    names = [str(x) for x in named] if isinstance(named, (list, tuple)) else [str(named)] if named else []
    for name in names:
        if name in FAMILIES:
            return name
    got = f"{', '.join(names)[:80]}, which is not understood" if names else "neither architectures nor model_type"
    way_out = "other models can be written as a model YAML"
    raise InputError(f"{where}: architectures must name one of {', '.join(FAMILIES)}, but got {got}; {way_out}")


def _kv_heads(read: _Config, config: dict[str, Any], architecture: str) -> int:
    if "num_key_value_heads" in config:
        return read.num_key_value_heads or read.num_attention_heads
    return _KV_HEADS.get(architecture, read.num_attention_heads)


def _head_dim(read: _Config, architecture: str, where: str) -> int:
    given = read.head_dim or _HEAD_DIM.get(architecture)
    if given is None and read.hidden_size % read.num_attention_heads:
        raise InputError(
            f"{where}: hidden_size must be a multiple of num_attention_heads, but got {read.hidden_size} and {read.num_attention_heads}; "
            "or give head_dim"
        )
    return given or read.hidden_size // read.num_attention_heads


def _rope_theta(read: _Config, where: str) -> float:
    """Llama's default where the file has none, as Transformers takes it."""
    nested = (read.rope_parameters or {}).get("rope_theta")
    theta = read.rope_theta if read.rope_theta is not None else nested
    if theta is not None and (isinstance(theta, bool) or not isinstance(theta, (int, float))):
        raise InputError(f"{where}: rope_parameters.rope_theta must be a number, but got {str(theta)[:60]!r}")
    return 10_000.0 if theta is None else float(theta)
