"""How many parameters each kind of layer has, and the whole of a model whose layers differ."""

from __future__ import annotations

from planner.cost.params.experts import (
    idle_params,
    routed_params,
    router_params,
    shared_params,
)
from planner.cost.params.layer import mlp_params, norm_params
from planner.cost.params.mixers import mixer_params, outer_stream_params, stream_params
from planner.specs.layers import counts, kinds, layer_kinds
from planner.specs.model import ModelSpec, expanded


def kind_params(kind: ModelSpec) -> int:
    """Parameters of one layer of a model all of whose layers are alike.

    Formula: mixer + (MLP, or experts, or both, or none) + norms + streams
    Source:  [hf-transformers] built on the meta device
    Assumes: nothing beyond the model document.
    """
    moe = kind.moe if kind.has_mlp else None
    channels: int = 0
    if moe:
        channels = int(
            routed_params(kind, moe) + shared_params(kind, moe) + router_params(kind, moe)
        )
    if kind.has_mlp and (moe is None or moe.dense_residual):
        channels += int(mlp_params(kind))
    return (
        int(mixer_params(kind))
        + channels
        + kind.norms_per_layer * norm_params(kind)
        + stream_params(kind)
    )


def network_params(model: ModelSpec) -> int:
    """Parameters as released: no padding, tied tables once, multi-token prediction left out.

    Formula: sum over kinds of layers of count kind + V h (twice when untied) + positions + norms +
             streams
    Source:  [hf-transformers] built on the meta device
    Assumes: nothing beyond the model document.
    """
    layers = sum(
        count * kind_params(kind)
        for count, kind in zip(counts(model), kinds(model).values(), strict=True)
    )
    table = model.vocab_size * model.hidden_size
    return (
        layers
        + table * (1 if model.tied_embeddings else 2)
        + model.position_rows * model.hidden_size
        + norm_params(model) * (2 if model.embedding_norm else 1)
        + outer_stream_params(model)
    )


def unused_params(model: ModelSpec) -> int:
    """Of them, those of routed experts that a token does not use.

    Formula: sum over kinds with experts of count (E - k) expert
    Source:  [deepseek2024] activated parameters
    Assumes: every token uses experts_per_token experts.
    """
    return sum(
        count * int(idle_params(kind, kind.moe))
        for count, kind in zip(counts(model), kinds(model).values(), strict=True)
        if kind.moe and kind.has_mlp
    )


def prediction_params(model: ModelSpec) -> int:
    """Parameters of the layers of multi-token prediction; embedding and head are the model's own.

    Formula: mtp_layers (layers of mtp_pattern, or one of the last layer's kind, + 2 h^2 + 3 norms)
    Source:  [deepseek2024] sec. 2.2; [megatron-core] MultiTokenPredictionLayer
    Assumes: no depth shares weights with another.
    """
    names = expanded(model.mtp_pattern) or layer_kinds(model)[-1:]
    each = kinds(model)
    layers = sum(kind_params(each[name]) for name in names)
    h = model.hidden_size
    return model.mtp_layers * (layers + 2 * h * h + 3 * norm_params(model))
