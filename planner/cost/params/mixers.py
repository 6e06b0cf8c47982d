"""How many parameters what mixes the sequence in one layer has on a tensor-parallel rank, and what
a layer of Gemma 3n and 4 has beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from planner.cost.params.attention import attention_params
from planner.layout import Numeric
from planner.specs.mixers import (
    GatedDeltaNet,
    Kda,
    LightningAttention,
    Mamba1,
    Mamba2,
    NoMixer,
    ShortConvolution,
)
from planner.specs.model import ModelSpec


def mixer_params(model: ModelSpec, tp: Numeric = 1) -> Numeric:
    """Parameters of the mixer of one layer, of a model all of whose layers are alike, on one rank.

    Formula: attention, or what its mixer has; both where they stand side by side
    Source:  [megatron-core]; [hf-transformers]
    Assumes: as each of them.
    """
    mixer = model.mixer
    if mixer is None:
        return attention_params(model, tp)
    params = _PARAMS[type(mixer)](model, mixer, tp)
    if isinstance(mixer, Mamba2) and mixer.beside_attention:
        params = params + attention_params(model, tp)
    return params


def mamba2_params(model: ModelSpec, mixer: Mamba2, tp: Numeric = 1) -> Numeric:
    """Parameters of a Mamba-2 mixer on one rank.

    Formula: (h (2 d + 2 G N + H) + (d + 2 G N) (K + 1) + 3 H + d norm + d h) / tp; H heads, d inner
             width, G groups, N state, K taps, 1 for their bias; with biases of the projections
             + (2 d + 2 G N + H) / tp + h
    Source:  [dao2024]; [megatron-core] MambaMixer; [hf-transformers] Mamba2, NemotronH, Bamba
    Assumes: tp divides heads and groups.
    """
    h, heads, inner = model.hidden_size, mixer.num_heads, mixer.inner_size
    states = 2 * mixer.num_groups * mixer.state_size
    projected = 2 * inner + states + heads
    split = (
        h * projected
        + (inner + states) * (mixer.conv_kernel + mixer.conv_bias)
        + 3 * heads  # decay, skip and bias of the step
        + (inner if mixer.gated_norm else 0)
        + inner * h
        + (projected if mixer.projection_bias else 0)
    )
    return split // tp + (h if mixer.projection_bias else 0)


def mamba1_params(model: ModelSpec, mixer: Mamba1, tp: Numeric = 1) -> Numeric:
    """Parameters of a Mamba-1 mixer on one rank.

    Formula: (2 h d + d (K + 1) + d (R + 2 N) + R d + d + d N + d + d h) / tp; d inner width, N
             state, R rank of the step; norms on step, B and C: + R + 2 N; with biases of the
             projections + 2 d / tp + h
    Source:  [gu2023]; [hf-transformers] Jamba, FalconMamba
    Assumes: channels are split; Megatron-core has no such mixer.
    """
    h, inner, state = model.hidden_size, mixer.inner_size, mixer.state_size
    inputs = mixer.dt_rank + 2 * state
    split = (
        3 * h * inner
        + inner * (mixer.conv_kernel + mixer.conv_bias)
        + inner * inputs
        + (mixer.dt_rank + 1) * inner
        + inner * state
        + inner  # skip
        + (2 * inner if mixer.projection_bias else 0)
    )
    whole = (inputs if mixer.inner_norms else 0) + (h if mixer.projection_bias else 0)
    return split // tp + whole


def gated_delta_net_params(model: ModelSpec, mixer: GatedDeltaNet, tp: Numeric = 1) -> Numeric:
    """Parameters of a gated delta net on one rank.

    Formula: (h (2 k + 2 v + 2 V) + K (2 k + v) + 2 V + v h) / tp + e; k, v widths of all key and
             value heads, V value heads of width e, K taps
    Source:  [megatron-core] GatedDeltaNet; [hf-transformers] Qwen3Next, OlmoHybrid
    Assumes: tp divides key and value heads.
    """
    h, heads = model.hidden_size, mixer.num_value_heads
    keys = mixer.num_key_heads * mixer.key_head_dim
    values = heads * mixer.value_head_dim
    split = (
        h * (2 * keys + 2 * values + 2 * heads)
        + mixer.conv_kernel * (2 * keys + values)
        + 2 * heads  # decay, bias of the step
        + values * h
    )
    return split // tp + mixer.value_head_dim


def kda_params(model: ModelSpec, mixer: Kda, tp: Numeric = 1) -> Numeric:
    """Parameters of Kimi delta attention on one rank.

    Formula: (3 h q + 3 K q + h H + H + q + q h + gates) / tp + d, two gates of d q / tp + h d each,
             with full rank of h q / tp; q = H d
    Source:  [hf-transformers] KimiLinear, BailingHybrid
    Assumes: heads are split and the gates' first products are on every rank; Megatron-core has no
             such mixer.
    """
    h, heads, width = model.hidden_size, mixer.num_heads, mixer.head_dim
    q = heads * width
    gates, down = (2 * h * q, 0) if mixer.full_rank_gates else (2 * width * q, 2 * h * width)
    split = 4 * h * q + 3 * mixer.conv_kernel * q + h * heads + heads + q + gates
    return split // tp + down + width


def lightning_params(model: ModelSpec, mixer: LightningAttention, tp: Numeric = 1) -> Numeric:
    """Parameters of lightning attention on one rank.

    Formula: (3 h q + h q gate + q norm + q h) / tp; q width of all heads
    Source:  [hf-transformers] MiniMax
    Assumes: heads are split; Megatron-core has no such mixer.
    """
    width = mixer.num_heads * mixer.head_dim
    return (5 * model.hidden_size * width + width) // tp


def short_convolution_params(model: ModelSpec, mixer: ShortConvolution, tp: Numeric = 1) -> Numeric:
    """Parameters of a gated short convolution on one rank.

    Formula: (4 h^2 + K h) / tp; with biases + 4 h / tp + h
    Source:  [hf-transformers] Lfm2
    Assumes: channels are split; Megatron-core has no such mixer.
    """
    h = model.hidden_size
    split = 4 * h * h + mixer.conv_kernel * h + (4 * h if mixer.bias else 0)
    return split // tp + (h if mixer.bias else 0)


def no_mixer_params(model: ModelSpec, mixer: NoMixer, tp: Numeric = 1) -> Numeric:
    """Parameters of a layer's mixer where it has none.

    Formula: 0
    Source:  [hf-transformers] NemotronH
    Assumes: nothing.
    """
    return 0 * tp


_PARAMS: dict[type, Callable[..., Numeric]] = {
    NoMixer: no_mixer_params,
    Mamba2: mamba2_params,
    Mamba1: mamba1_params,
    GatedDeltaNet: gated_delta_net_params,
    Kda: kda_params,
    LightningAttention: lightning_params,
    ShortConvolution: short_convolution_params,
}


class Linear(NamedTuple):
    """The weights of a mixer's product."""

    outputs: int
    inputs: int
    side: str
    """column, row: how tensor parallelism splits it; own: each rank has all of it."""


def linears(model: ModelSpec) -> tuple[Linear, ...]:
    """The products of a layer's mixer, first to last; none of attention.

    Formula: the matrices of its parameters
    Source:  planner.cost.params.mixers: that of their parameters
    Assumes: what reads the same input is one product.
    """
    h, mixer = model.hidden_size, model.mixer
    match mixer:
        case Mamba2():
            states = 2 * mixer.num_groups * mixer.state_size
            narrow = mixer.inner_size
            wide = 2 * narrow + states + mixer.num_heads
        case Mamba1():
            inner, rank = mixer.inner_size, mixer.dt_rank
            return (
                Linear(2 * inner, h, "column"),
                Linear(rank + 2 * mixer.state_size, inner, "row"),
                Linear(inner, rank, "column"),
                Linear(h, inner, "row"),
            )
        case GatedDeltaNet():
            keys = mixer.num_key_heads * mixer.key_head_dim
            narrow = mixer.num_value_heads * mixer.value_head_dim
            wide = 2 * keys + 2 * narrow + 2 * mixer.num_value_heads
        case Kda():
            d, narrow = mixer.head_dim, mixer.num_heads * mixer.head_dim
            wide = 3 * narrow + mixer.num_heads + 2 * narrow * mixer.full_rank_gates
            if not mixer.full_rank_gates:
                gates = (Linear(2 * d, h, "own"), *[Linear(narrow, d, "column")] * 2)
                return (Linear(wide, h, "column"), *gates, Linear(h, narrow, "row"))
        case LightningAttention():
            narrow = mixer.num_heads * mixer.head_dim
            wide = 4 * narrow
        case ShortConvolution():
            wide, narrow = 3 * h, h
        case _:
            return ()
    return Linear(wide, h, "column"), Linear(h, narrow, "row")


def scanned_size(model: ModelSpec) -> int:
    """What the last product of a layer's mixer reads a token; 0 of attention alone."""
    return next((linear.inputs for linear in linears(model)[-1:]), 0)


def stream_params(model: ModelSpec) -> int:
    """What AltUp, Laurel and per-layer inputs add to one layer, on every rank.

    Formula: AltUp n h + 2 h + n^2 + n^3; Laurel 2 h r + h; per-layer inputs 2 h p + h; n streams
             of the hidden state, r rank, p width of a layer's part
    Source:  [hf-transformers] Gemma3n, Gemma4
    Assumes: RMS norms; nothing of it is split.
    """
    h, n, inputs = model.hidden_size, model.altup_streams, model.per_layer_inputs
    return (
        (n * h + 2 * h + n**2 + n**3 if n else 0)
        + (2 * h * model.laurel_rank + h if model.laurel_rank else 0)
        + (2 * h * inputs.width + h if inputs else 0)
    )


def entry_stream_params(model: ModelSpec) -> int:
    """What AltUp and per-layer inputs add before the first layer, on every rank.

    Formula: AltUp (n - 1) h^2; per-layer inputs V L p + h L p + p
    Source:  [hf-transformers] Gemma3n, Gemma4
    Assumes: the table of per-layer inputs is neither padded nor split.
    """
    layers, inputs = model.num_layers, model.per_layer_inputs
    rows = inputs.vocab_size + model.hidden_size if inputs else 0
    table = rows * layers * inputs.width + inputs.width if inputs else 0
    return exit_stream_params(model) + table


def exit_stream_params(model: ModelSpec) -> int:
    """What AltUp adds behind the last layer, on every rank.

    Formula: (n - 1) h^2
    Source:  [hf-transformers] Gemma3n
    Assumes: it is not split.
    """
    return (model.streams - 1) * model.hidden_size**2
