"""ModelSpec: the network to train."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

Width = Annotated[int, Field(gt=0, le=100_000_000)]
"""A size of the network; the bound keeps products of a few of them exact in 64 bits."""


class ModelSpec(BaseModel):
    """A dense decoder-only transformer. Widths are of the whole model, before any split."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    family: str
    aliases: tuple[str, ...] = ()
    hidden_size: Width
    ffn_size: Width
    """Width of the MLP, one branch."""
    num_layers: Width
    num_heads: Width
    num_kv_heads: Width
    head_dim: Width
    vocab_size: Width
    """Rows of the embedding table as released; the framework pads it further."""
    max_seq_length: Width
    gated_mlp: bool
    """Three MLP matrices (SwiGLU) instead of two."""
    activation: Literal["gelu", "silu", "squared_relu"] = "silu"
    tied_embeddings: bool
    norm: Literal["rmsnorm", "layernorm", "layernorm_nobias"]
    position: Literal["learned", "rope", "alibi", "none"]
    position_rows: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Rows of the learned position table."""
    rope_theta: PositiveFloat = 10_000.0
    attention_bias: Literal["none", "qkv", "qkvo"] = "none"
    mlp_bias: bool = False
    qk_norm: bool = False
    """A norm of width head_dim on queries and on keys (Qwen3)."""
    parameters: PositiveInt | None = None
    """Published exact count, where there is one: a test compares."""
    frameworks: tuple[str, ...] = ("megatron", "deepspeed", "torch")
    """Which frameworks can express it."""
    source: str

    @model_validator(mode="after")
    def _heads(self) -> ModelSpec:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads must be a multiple of num_kv_heads, but got {self.num_heads} and {self.num_kv_heads}")
        if self.position == "learned" and not self.position_rows:
            raise ValueError("a learned position table needs position_rows, but got none; usually max_seq_length")
        return self

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim
