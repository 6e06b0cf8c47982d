"""A model is a list of layers: which kind each is of, and the model that a kind would make alone.

Every formula of a layer reads a model all of whose layers are alike; a stage is the sum over kinds
of its layers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.layout import Numeric
from planner.specs.model import Indexer, ModelSpec, expanded

Kinds = dict[str, ModelSpec]


def layer_kinds(model: ModelSpec) -> tuple[str, ...]:
    """The kind of each layer, first to last."""
    return _layers(model)[0]


def kinds(model: ModelSpec) -> Kinds:
    """By the name of each kind, in the order of its first layer: a model of as many layers, all of
    that kind, without layers of multi-token prediction.
    """
    return _layers(model)[1]


def index_of_last(model: ModelSpec) -> int:
    """Which of kinds() the last layer is of, and with it those of multi-token prediction."""
    named, each = _layers(model)
    return list(each).index(named[-1])


def mtp_kinds(model: ModelSpec) -> tuple[ModelSpec, ...]:
    """The layers of one depth of multi-token prediction: those of mtp_pattern, or one like the
    last.
    """
    each, own = kinds(model), {kind.name: kind for kind in model.kinds}
    named = expanded(model.mtp_pattern) or layer_kinds(model)[-1:]
    return tuple(each[name] if name in each else own[name].of(model) for name in named)


def mtp_counts(model: ModelSpec) -> tuple[int, ...]:
    """Layers of each kind in one depth of multi-token prediction."""
    named, each = _layers(model)
    depth = expanded(model.mtp_pattern) or named[-1:]
    return tuple(depth.count(name) for name in each)


def experts_layers(model: ModelSpec) -> int:
    """How many layers have experts."""
    return sum(
        count
        for count, kind in zip(counts(model), kinds(model).values(), strict=True)
        if kind.moe is not None
    )


@lru_cache(maxsize=512)
def _layers(model: ModelSpec) -> tuple[tuple[str, ...], Kinds]:
    if model.pattern:
        named = expanded(model.pattern)
        each = {kind.name: kind.of(model) for kind in model.kinds}
        return named, {name: each[name] for name in dict.fromkeys(named)}
    named = tuple(_name(model, index) for index in range(model.num_layers))
    first = {name: named.index(name) for name in dict.fromkeys(named)}
    return named, {name: _alone(model, index) for name, index in first.items()}


def has_indexer(model: ModelSpec) -> bool:
    """Whether an indexer chooses the keys of any layer."""
    return any(isinstance(kind.index, Indexer) for kind in kinds(model).values())


@lru_cache(maxsize=64)
def bound(model: ModelSpec) -> NDArray[np.bool_]:
    """Of each layer whether it, or one after it, takes keys and values or a choice of keys from one
    before it: a pipeline stage cannot begin there.
    """
    out = np.zeros(model.num_layers, dtype=bool)
    source: dict[Any, int] = {}
    each = kinds(model)
    for layer, name in enumerate(layer_kinds(model)):
        kind = each[name]
        if not kind.has_attention:
            continue
        takes = kind.shared_kv or (kind.index is not None and not kind.chooses_keys)
        if takes and kind.window in source:
            out[source[kind.window] + 1 : layer + 1] = True
        elif not takes:
            source[kind.window] = layer
    return out


def has_experts(model: ModelSpec, index: int) -> bool:
    """Whether a layer has experts, by first_dense_layers and moe_every."""
    moe = model.moe
    return moe is not None and index >= moe.first_dense_layers and (index + 1) % moe.moe_every == 0


def is_windowed(model: ModelSpec, index: int) -> bool:
    """Whether the attention of a layer sees a window, by first_full_layers and full_every."""
    window = model.window
    if window is None or index < window.first_full_layers:
        return False
    return window.full_every == 0 or (index + 1) % window.full_every != 0


def _name(model: ModelSpec, index: int) -> str:
    mlp = "experts" if has_experts(model, index) else "dense"
    if model.window is None or not is_windowed(model, index):
        return mlp
    return f"{mlp}, {model.window.kind} {model.window.tokens}"


def _alone(model: ModelSpec, index: int) -> ModelSpec:
    """The model with its layer of that index everywhere."""
    moe, window = model.moe, model.window
    if moe is not None:
        every_layer = {"first_dense_layers": 0, "moe_every": 1}
        moe = moe.model_copy(update=every_layer) if has_experts(model, index) else None
    if window is not None:
        no_layer_sees_all = {"full_every": 0, "first_full_layers": 0}
        windowed = is_windowed(model, index)
        window = window.model_copy(update=no_layer_sees_all) if windowed else None
    return model.model_copy(update={"moe": moe, "window": window, "mtp_layers": 0})


@lru_cache(maxsize=512)
def _below(model: ModelSpec) -> tuple[NDArray[np.float64], ...]:
    named = np.array(layer_kinds(model))
    return tuple(np.append(0.0, np.cumsum(named == kind)) for kind in kinds(model))


def below(model: ModelSpec, layer: Numeric) -> tuple[Numeric, ...]:
    """How many of the layers 0 to layer - 1 are of each kind, in the order of kinds(); between two
    layers a part of the next one.
    """
    places = np.arange(model.num_layers + 1)
    return tuple(np.interp(layer, places, counts) for counts in _below(model))


def counts(model: ModelSpec) -> tuple[int, ...]:
    """Layers of each kind in the model."""
    named = layer_kinds(model)
    return tuple(named.count(kind) for kind in kinds(model))
