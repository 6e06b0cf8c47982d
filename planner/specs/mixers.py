"""What mixes the sequence in a layer where that is not attention alone."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from planner.specs.documents import FrozenDocument

Width = Annotated[int, Field(gt=0, le=100_000_000)]
"""A size of the network; the bound keeps products of a few of them exact in 64 bits."""
Count = Annotated[int, Field(ge=0, le=100_000_000)]
"""The same, where none is an answer."""


class NoMixer(FrozenDocument):
    """A layer that mixes no sequence: an MLP or experts alone (Nemotron-H)."""

    kind: Literal["none"] = "none"


class Mamba2(FrozenDocument):
    """Selective state space (SSD), [dao2024]: heads over a shared state, scanned in chunks."""

    kind: Literal["mamba2"] = "mamba2"
    num_heads: Width
    head_dim: Width
    num_groups: Width
    """Groups of heads that share B and C."""
    state_size: Width
    conv_kernel: Width = 4
    """Taps of the short convolution over x, B and C."""
    conv_bias: bool = True
    projection_bias: bool = False
    gated_norm: bool = True
    """A norm over the inner width before the output's product."""
    chunk: Width = 128
    """Tokens of a chunk of the scan."""
    beside_attention: bool = False
    """It reads what the layer's attention reads, and both are added (Falcon-H1)."""

    @property
    def inner_size(self) -> int:
        return self.num_heads * self.head_dim


class Mamba1(FrozenDocument):
    """The first selective state space: a state for each channel (Jamba, Falcon-Mamba)."""

    kind: Literal["mamba1"] = "mamba1"
    inner_size: Width
    state_size: Width
    dt_rank: Width
    conv_kernel: Width = 4
    conv_bias: bool = True
    projection_bias: bool = False
    inner_norms: bool = False
    """Norms with weights on dt, B and C (Jamba)."""


class GatedDeltaNet(FrozenDocument):
    """Linear attention with a gated delta rule (Qwen3-Next, Qwen3.5, OLMo Hybrid)."""

    kind: Literal["gated_delta_net"] = "gated_delta_net"
    num_key_heads: Width
    """Of queries and of keys."""
    num_value_heads: Width
    key_head_dim: Width
    value_head_dim: Width
    conv_kernel: Width = 4
    chunk: Width = 64


class Kda(FrozenDocument):
    """Kimi delta attention: a delta rule whose decay has a value for each channel."""

    kind: Literal["kda"] = "kda"
    num_heads: Width
    head_dim: Width
    conv_kernel: Width = 4
    full_rank_gates: bool = False
    """Gates of decay and output are one product each, not two through a width of head_dim."""
    chunk: Width = 64


class LightningAttention(FrozenDocument):
    """Linear attention whose decay is a constant of head and layer (MiniMax-Text-01)."""

    kind: Literal["lightning"] = "lightning"
    num_heads: Width
    head_dim: Width
    chunk: Width = 256


class ShortConvolution(FrozenDocument):
    """A gated convolution of a few taps over the hidden width (LFM2)."""

    kind: Literal["short_convolution"] = "short_convolution"
    conv_kernel: Width = 3
    bias: bool = False


Mixer = Annotated[
    NoMixer | Mamba2 | Mamba1 | GatedDeltaNet | Kda | LightningAttention | ShortConvolution,
    Field(discriminator="kind"),
]
