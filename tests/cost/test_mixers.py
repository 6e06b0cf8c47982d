"""Parameters of every kind of layer against the classes of Transformers 5.24, built on the meta
device.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.cost.params.layer import (
    active_params,
    layer_params,
    routed_layer_params,
    total_params,
)
from planner.cost.params.mixers import mixer_params
from planner.cost.params.vision import tower_params
from planner.errors import InputError
from planner.specs import library
from planner.specs.huggingface import model_from_config
from planner.specs.layers import kinds, layer_kinds
from planner.specs.mixers import GatedDeltaNet, Mamba2, Mixer
from planner.specs.model import ModelSpec

DATA = Path(__file__).parents[1] / "data" / "hybrid_configs.jsonl"
# Of 45 configurations (released, built with the published values, or small ones of one kind each):
# parameters of the text model, those a token uses, those of each layer, and those of the whole with
# its vision tower. Balancing biases are buffers there and counted here.
CONFIGS = [json.loads(line) for line in DATA.read_text().splitlines()]
SHARED_WEIGHTS = "Zyphra--Zamba2-7B"


def _read(case: dict[str, Any]) -> ModelSpec:
    return model_from_config(case["config"], case["name"], case["name"])


def _buffers(kind: ModelSpec, case: dict[str, Any]) -> int:
    """Balancing biases of one layer, where the class keeps them as buffers."""
    moe = kind.moe if kind.has_mlp else None
    counted = moe is not None and moe.router_bias == "correction" and case["buffers"] > 0
    return moe.num_experts if moe and counted else 0


READ = [case for case in CONFIGS if case["name"] != SHARED_WEIGHTS]


@pytest.mark.parametrize("case", READ, ids=[case["name"] for case in READ])
def test_parameters_of_every_layer(case: dict[str, Any]) -> None:
    model = _read(case)
    each, named = kinds(model), layer_kinds(model)
    for _, parameters, indices in case["layers"]:
        for index in indices:
            kind = each[named[index]]
            assert (
                layer_params(kind) + routed_layer_params(kind) - _buffers(kind, case) == parameters
            )
    # ERNIE's class keeps its balancing biases as parameters, which the truth counts too
    assert total_params(model) - case["buffers"] == case["text"]
    assert active_params(model) - case["buffers"] == case["active"]


@pytest.mark.parametrize(
    "case",
    [case for case in CONFIGS if case["total"] > case["text"]],
    ids=lambda case: case["name"],
)
def test_parameters_of_vision_towers(case: dict[str, Any]) -> None:
    model = _read(case)
    assert model.vision is not None
    assert tower_params(model.vision) == case["total"] - case["text"]
    assert "its vision tower where images_per_sample is stated" in model.note


@pytest.mark.parametrize("case", [case for case in CONFIGS if case["preset"]])
def test_presets_are_these_configurations(case: dict[str, Any]) -> None:
    own_words = {"name", "aliases", "source", "parameters"}
    preset = library.model(case["preset"])
    assert preset.model_dump(exclude=own_words) == _read(case).model_dump(exclude=own_words)
    assert preset.parameters == case["text"] + case["buffers"]


def test_weights_that_layers_share_are_refused() -> None:
    case = next(case for case in CONFIGS if case["name"] == SHARED_WEIGHTS)
    with pytest.raises(InputError, match="attention blocks whose weights several layers share"):
        _read(case)


@pytest.mark.parametrize(
    ("mixer", "whole", "split"),
    [
        # by hand, h 1024: in (2 x 512 + 2 x 2 x 16 + 8) + out 512, convolution (512 + 64) x 5,
        # 3 x 8, norm 512: all of it split
        (
            Mamba2(num_heads=8, head_dim=64, num_groups=2, state_size=16),
            0,
            1024 * (1096 + 512) + 576 * 5 + 24 + 512,
        ),
        # in 2 x 256 + 2 x 512 + 2 x 4, out 512, convolution (2 x 256 + 512) x 4, 2 x 4; the norm of
        # a head of 128 is whole
        (
            GatedDeltaNet(num_key_heads=2, num_value_heads=4, key_head_dim=128, value_head_dim=128),
            128,
            1024 * (512 + 1024 + 8 + 512) + 4096 + 8,
        ),
    ],
)
def test_what_tensor_parallelism_splits(mixer: Mixer, whole: int, split: int) -> None:
    case = next(case for case in CONFIGS if case["name"].startswith("TinyLlama"))
    model = _read(case).model_copy(update={"hidden_size": 1024, "mixer": mixer})
    assert mixer_params(model) == whole + split
    assert mixer_params(model, 2) == whole + split // 2
