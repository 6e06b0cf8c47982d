"""config.json of the Hub: the shapes that published counts confirm, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.cost.params import total_params
from planner.errors import InputError
from planner.specs import library

CONFIGS = Path(__file__).parent.parent / "data" / "configs"


@pytest.mark.parametrize(
    ("file", "parameters"),
    # safetensors.total of the Hub API; Qwen3-0.6B less the stored copy of its tied head (151936 x 1024)
    [
        ("meta-llama--Meta-Llama-3.1-8B", 8_030_261_248),
        ("meta-llama--Meta-Llama-3.1-70B", 70_553_706_496),
        ("meta-llama--Meta-Llama-3.1-405B", 405_853_388_800),
        ("Qwen--Qwen3-0.6B", 596_049_920),
        ("Qwen--Qwen3-8B", 8_190_735_360),
        ("Qwen--Qwen3-32B", 32_762_123_264),
    ],
)
def test_released_configurations_have_their_published_size(file: str, parameters: int) -> None:
    assert total_params(library.model(str(CONFIGS / f"{file}.json"))) == parameters


@pytest.mark.parametrize(
    ("file", "preset"),
    [
        ("meta-llama--Meta-Llama-3.1-8B", "llama3-8b"),
        ("meta-llama--Meta-Llama-3.1-405B", "llama3-405b"),
        ("Qwen--Qwen3-32B", "qwen3-32b"),
        ("Qwen--Qwen3-0.6B", "qwen3-0.6b"),
    ],
)
def test_presets_are_the_released_configurations(file: str, preset: str) -> None:
    own_words = {"name", "family", "aliases", "source", "parameters"}
    mine, theirs = (
        library.model(preset).model_dump(exclude=own_words),
        library.model(str(CONFIGS / f"{file}.json")).model_dump(exclude=own_words),
    )
    assert mine == theirs


def _write(folder: Path, **changes: Any) -> Path:
    config = json.loads((CONFIGS / "meta-llama--Meta-Llama-3.1-8B.json").read_text())
    config.update(changes)
    path = folder / "config.json"
    path.write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}))
    return path


def test_a_folder_stands_for_its_config_and_names_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    _write(folder)
    assert library.model(str(folder)).name == "my-llama"
    with pytest.raises(InputError, match=r"must hold config\.json"):
        library.model(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"head_dim": None}, {"head_dim": 128}),
        ({"head_dim": 96}, {"head_dim": 96}),
        ({"num_key_value_heads": None}, {"num_kv_heads": 32}),
        ({"num_key_value_heads": "absent"}, {"num_kv_heads": 32}),
        ({"attention_bias": True}, {"attention_bias": "qkvo"}),
        ({"mlp_bias": True}, {"mlp_bias": True}),
        ({"torch_dtype": None, "rope_scaling": None, "quantization_config": {"quant_method": "fp8"}}, {"hidden_size": 4096}),
        ({"rope_theta": "absent", "rope_parameters": {"rope_theta": 123.0}}, {"rope_theta": 123.0}),
        ({"rope_theta": "absent"}, {"rope_theta": 10_000.0}),
        ({"tie_word_embeddings": True}, {"tied_embeddings": True}),
        ({"tie_word_embeddings": "absent"}, {"tied_embeddings": False}),
        ({"architectures": None}, {"norm": "rmsnorm"}),
        ({"architectures": "absent", "model_type": "qwen3"}, {"qk_norm": True}),
        ({"architectures": ["MistralForCausalLM"], "num_key_value_heads": "absent"}, {"num_kv_heads": 8}),
        ({"architectures": ["Qwen2ForCausalLM"]}, {"attention_bias": "qkv"}),
        ({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 2560}, {"head_dim": 128}),
    ],
)
def test_fields_as_transformers_reads_them(changes: dict[str, Any], fields: dict[str, Any], tmp_path: Path) -> None:
    model = library.model(str(_write(tmp_path, **changes)))
    assert {name: getattr(model, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"architectures": ["MixtralForCausalLM"]},
            "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, but got MixtralForCausalLM",
        ),
        ({"architectures": "absent", "model_type": "absent"}, "neither architectures nor model_type"),
        ({"hidden_size": "absent"}, "hidden_size is missing"),
        (
            {"vocab_size": -1, "num_hidden_layers": "many"},
            "num_hidden_layers must be a whole number, but got the text 'many'; vocab_size must be above 0",
        ),
        ({"hidden_size": 4097}, "hidden_size must be a multiple of num_attention_heads, but got 4097 and 32"),
        ({"hidden_act": "sine"}, "hidden_act must be one of"),
        ({"num_key_value_heads": 5}, "multiple of num_kv_heads"),
        ({"rope_theta": "absent", "rope_parameters": {"rope_theta": "x"}}, "rope_theta must be a number"),
        ({"architectures": {"a": 1}}, "architectures must name one of"),
        ({"intermediate_size": float("nan")}, "intermediate_size must be a"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as fault:
        library.model(str(_write(tmp_path, **changes)))
    assert says in str(fault.value)


def test_a_mixture_of_experts_is_not_taken_for_a_dense_model() -> None:
    with pytest.raises(InputError, match="MixtralForCausalLM"):
        library.model(str(CONFIGS / "mistralai--Mixtral-8x7B-v0.1.json"))
