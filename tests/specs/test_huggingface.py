"""config.json of the Hub: the shapes that published counts confirm, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.cost.params.layer import active_params, mtp_params, total_params
from planner.errors import InputError
from planner.specs import library
from planner.specs.families import FAMILIES
from planner.specs.huggingface import model_from_config

CONFIGS = Path(__file__).parent.parent / "data" / "configs"


@pytest.mark.parametrize(
    ("file", "parameters"),
    # safetensors.total of the Hub API; Qwen3-0.6B less the stored copy of its tied head (151936 x
    # 1024), DeepSeek-V3 less its
    # multi-token-prediction layer, its copies of embedding and head and the FP8 scales, Llama 4
    # less its vision part. Qwen3-VL-8B has
    # Qwen3-8B for its text part. GLM-5: the classes of Transformers 5.24 on the meta device, with
    # 75 correction biases of 256.
    [
        ("meta-llama--Meta-Llama-3.1-8B", 8_030_261_248),
        ("meta-llama--Meta-Llama-3.1-70B", 70_553_706_496),
        ("meta-llama--Meta-Llama-3.1-405B", 405_853_388_800),
        ("Qwen--Qwen3-0.6B", 596_049_920),
        ("Qwen--Qwen3-8B", 8_190_735_360),
        ("Qwen--Qwen3-32B", 32_762_123_264),
        ("Qwen--Qwen3-VL-8B-Instruct", 8_190_735_360),
        ("Qwen--Qwen3-30B-A3B", 30_532_122_624),
        ("Qwen--Qwen3-235B-A22B", 235_093_634_560),
        ("mistralai--Mixtral-8x7B-v0.1", 46_702_792_704),
        ("deepseek-ai--DeepSeek-V3", 671_026_419_200),
        ("meta-llama--Llama-4-Scout-17B-16E-Instruct", 107_769_861_120),
        ("openai--gpt-oss-20b", 20_914_757_184),
        ("MiniMaxAI--MiniMax-M2.5", 228_689_764_864),
        ("zai-org--GLM-5", 743_911_199_232 + 75 * 256),
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
        ("Qwen--Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("Qwen--Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("mistralai--Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("deepseek-ai--DeepSeek-V3", "deepseek-v3"),
        ("meta-llama--Llama-4-Scout-17B-16E-Instruct", "llama4-scout"),
        ("openai--gpt-oss-20b", "gpt-oss-20b"),
        ("MiniMaxAI--MiniMax-M2.5", "minimax-m2"),
        ("zai-org--GLM-5", "glm5"),
    ],
)
def test_presets_are_the_released_configurations(file: str, preset: str) -> None:
    own_words = {"name", "family", "aliases", "source", "parameters", "note"}
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
        (
            {
                "torch_dtype": None,
                "rope_scaling": None,
                "quantization_config": {"quant_method": "fp8"},
            },
            {"hidden_size": 4096},
        ),
        ({"rope_theta": "absent", "rope_parameters": {"rope_theta": 123.0}}, {"rope_theta": 123.0}),
        ({"rope_theta": "absent"}, {"rope_theta": 10_000.0}),
        ({"tie_word_embeddings": True}, {"tied_embeddings": True}),
        ({"tie_word_embeddings": "absent"}, {"tied_embeddings": False}),
        ({"architectures": None}, {"norm": "rmsnorm"}),
        ({"architectures": "absent", "model_type": "qwen3"}, {"qk_norm": True}),
        (
            {"architectures": ["MistralForCausalLM"], "num_key_value_heads": "absent"},
            {"num_kv_heads": 8},
        ),
        ({"architectures": ["Qwen2ForCausalLM"]}, {"attention_bias": "qkv"}),
        ({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 2560}, {"head_dim": 128}),
    ],
)
def test_fields_as_transformers_reads_them(
    changes: dict[str, Any], fields: dict[str, Any], tmp_path: Path
) -> None:
    model = library.model(str(_write(tmp_path, **changes)))
    assert {name: getattr(model, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"architectures": ["BertForMaskedLM"]},
            "but got BertForMaskedLM; understood are LlamaForCausalLM, MistralForCausalLM, Qwen2",
        ),
        ({"architectures": ["T5ForConditionalGeneration"]}, "but got T5ForConditionalGeneration"),
        (
            {"architectures": ["InternVLChatModel"], "llm_config": {"model_type": "opus"}},
            "got InternVLChatModel around opus",
        ),
        ({"architectures": ["RwkvForCausalLM"]}, "RwkvForCausalLM has RWKV layers: not modelled"),
        (
            {"architectures": ["NemotronHForCausalLM"], "hybrid_override_pattern": "M*X"},
            "hybrid_override_pattern must be of the letters M * - E, but got 'X'",
        ),
        (
            {"architectures": ["Qwen3NextForCausalLM"], "layer_types": ["full_attention"] * 7},
            "layer_types must have an entry for each of 32 layers, but has 7",
        ),
        (
            {"layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8},
            "LlamaForCausalLM has none of layer_types of linear_attention",
        ),
        (
            {"architectures": ["MiniMaxM2ForCausalLM"], "attn_type_list": [1, 0]},
            "has none of attn_type_list with 0",
        ),
        (
            {"architectures": ["NewForCausalLM"], "ssm_state_size": 16},
            "got NewForCausalLM with ssm_state_size; understood are",
        ),
        (
            {"architectures": ["MixtralForCausalLM"]},
            "num_experts is missing; num_experts_per_tok is missing",
        ),
        (
            {
                "architectures": ["MixtralForCausalLM"],
                "num_local_experts": 4,
                "num_experts_per_tok": 9,
            },
            "experts_per_token must be at most",
        ),
        (
            {"architectures": ["FalconForCausalLM"], "alibi": True},
            "alibi must be false, but got True: not understood",
        ),
        ({"attention_bias": "yes"}, "attention_bias must be true or false, but got 'yes'"),
        (
            {"architectures": "absent", "model_type": "absent"},
            "neither architectures nor model_type",
        ),
        ({"hidden_size": "absent"}, "hidden_size is missing"),
        (
            {"vocab_size": -1, "num_hidden_layers": "many"},
            (
                "num_hidden_layers must be a whole number, but got the text 'many'; vocab_size must"
                " be above 0"
            ),
        ),
        (
            {"hidden_size": 4097},
            "hidden_size must be a multiple of num_attention_heads, but got 4097 and 32",
        ),
        ({"hidden_act": "sine"}, "hidden_act must be one of"),
        ({"num_key_value_heads": 5}, "multiple of num_kv_heads"),
        (
            {"rope_theta": "absent", "rope_parameters": {"rope_theta": "x"}},
            "rope_theta must be a number",
        ),
        ({"architectures": {"a": 1}}, "architectures must name one that is understood"),
        ({"intermediate_size": float("nan")}, "intermediate_size must be a"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as fault:
        library.model(str(_write(tmp_path, **changes)))
    assert says in str(fault.value)


COUNTED = [
    json.loads(line) for line in (CONFIGS.parent / "family_counts.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize(
    ("file", "changes", "says"),
    [
        # Transformers takes the layer's number modulo it
        (
            "Qwen--Qwen3-30B-A3B",
            {"decoder_sparse_step": 0},
            "decoder_sparse_step must be above 0, but got 0",
        ),
        (
            "deepseek-ai--DeepSeek-V3",
            {"moe_layer_freq": 0},
            "moe_layer_freq must be above 0, but got 0",
        ),
        # Transformers' dense classes drop them in silence
        (
            "meta-llama--Meta-Llama-3.1-8B",
            {"num_local_experts": 8},
            "family llama must have no experts, but got 8",
        ),
        ("Qwen--Qwen3-8B", {"num_experts": 128}, "family qwen3 must have no experts, but got 128"),
    ],
)
def test_experts_that_no_class_builds(
    file: str, changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    config = json.loads((CONFIGS / f"{file}.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, **changes}))
    with pytest.raises(InputError, match=says):
        library.model(str(path))


def test_a_dense_model_may_say_that_it_has_no_experts(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "Qwen--Qwen3-8B.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "num_experts": 0, "num_local_experts": None}))
    assert total_params(library.model(str(path))) == 8_190_735_360


@pytest.mark.parametrize(
    "case",
    COUNTED,
    ids=[f"{i}-{case['config']['architectures'][0]}" for i, case in enumerate(COUNTED)],
)
def test_small_models_of_every_family_are_counted_as_transformers_builds_them(
    case: dict[str, Any], tmp_path: Path
) -> None:
    """Parameters of Transformers 5.24's own classes on the meta device, correction biases (buffers
    there) included.
    """
    path = tmp_path / "config.json"
    path.write_text(json.dumps(case["config"]))
    assert total_params(library.model(str(path))) == case["parameters"]


def test_every_family_is_counted() -> None:
    """Those whose class Transformers 5.24 lacks or cannot build: their presets' counts are tested
    instead; InternLM3's and Mamba-2's in tests/cost/test_mixers.py. MiniMax's first releases are
    read as the class that has their network.
    """
    built = {case["config"]["architectures"][0] for case in COUNTED}
    elsewhere = {"Dbrx", "Arctic", "BailingMoeV2", "InternLM2", "MiMo", "MPT", "InternLM3"}
    elsewhere |= {"Mamba2", "MiniMaxM1", "MiniMaxText01"}
    assert set(FAMILIES) - built == {f"{name}ForCausalLM" for name in elsewhere}


ELSEWHERE: dict[str, dict[str, Any]] = {
    "dbrx-132b": {
        "architectures": ["DbrxForCausalLM"],
        "d_model": 6144,
        "n_heads": 48,
        "n_layers": 40,
        "max_seq_len": 32768,
        "vocab_size": 100352,
        "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        "tie_word_embeddings": False,
    },
    "arctic-480b": {
        "architectures": ["ArcticForCausalLM"],
        "hidden_size": 7168,
        "intermediate_size": 4864,
        "num_hidden_layers": 35,
        "num_attention_heads": 56,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "num_local_experts": 128,
        "num_experts_per_tok": 2,
        "moe_layer_frequency": 1,
        "parallel_attn_mlp_res": True,
    },
    "ling-1t": {
        "architectures": ["BailingMoeV2ForCausalLM"],
        "hidden_size": 8192,
        "intermediate_size": 18432,
        "num_hidden_layers": 80,
        "head_dim": 128,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 157184,
        "max_position_embeddings": 131072,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "num_shared_experts": 1,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 4,
        "rope_theta": 600000,
    },
    "internlm2-20b": {
        "architectures": ["InternLM2ForCausalLM"],
        "hidden_size": 6144,
        "intermediate_size": 16384,
        "num_hidden_layers": 48,
        "bias": False,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "vocab_size": 92544,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000,
    },
    "mpt-7b": {
        "architectures": ["MPTForCausalLM"],
        "d_model": 4096,
        "n_heads": 32,
        "n_layers": 32,
        "max_seq_len": 2048,
        "vocab_size": 50432,
        "expansion_ratio": 4,
        "no_bias": True,
        "attn_config": {"alibi": True, "qk_ln": False},
    },
}
"""Shapes as the presets' sources state them."""


@pytest.mark.parametrize("preset", ELSEWHERE)
def test_families_beyond_transformers_read_as_their_preset(preset: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(ELSEWHERE[preset]))
    mine, read = library.model(preset), library.model(str(path))
    own_words = {"name", "family", "aliases", "source", "parameters", "note"}
    assert read.model_dump(exclude=own_words) == mine.model_dump(exclude=own_words)


def test_text_parts_say_so() -> None:
    note = library.model(str(CONFIGS / "Qwen--Qwen3-VL-8B-Instruct.json")).note
    assert note == (
        "model: the text part of Qwen3VLForConditionalGeneration, and its vision tower where"
        " images_per_sample is stated"
    )
    assert (
        "3 multi-token-prediction modules"
        in library.model(str(CONFIGS / "MiniMaxAI--MiniMax-M2.5.json")).note
    )


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        (
            {
                "architectures": ["GptOssForCausalLM"],
                "num_local_experts": 4,
                "num_experts_per_tok": 2,
                "sliding_window": 128,
                "layer_types": (
                    ["full_attention", "sliding_attention", "sliding_attention"] * 10
                    + ["full_attention"] * 2
                ),
            },
            "(attention attention-sliding*2)*10 attention*2",
        ),
        (
            {
                "architectures": ["Qwen3MoeForCausalLM"],
                "num_experts": 8,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 64,
                "mlp_only_layers": [5],
            },
            "attention-experts*5 attention-dense attention-experts*26",
        ),
    ],
)
def test_layers_that_no_rule_gives_are_kinds(
    changes: dict[str, Any], pattern: str, tmp_path: Path
) -> None:
    assert library.model(str(_write(tmp_path, **changes))).pattern == pattern


def test_an_unknown_decoder_is_read_by_its_fields_and_says_so(tmp_path: Path) -> None:
    """Llama-3.1-8B under a name that nobody knows has its parameters."""
    model = library.model(str(_write(tmp_path, architectures=["NewForCausalLM"], model_type="new")))
    assert total_params(model) == 8_030_261_248
    assert "NewForCausalLM is not known: read by its fields as a plain decoder" in model.note


def test_a_reward_model_is_read_as_its_language_model(tmp_path: Path) -> None:
    model = library.model(str(_write(tmp_path, architectures=["LlamaForSequenceClassification"])))
    assert total_params(model) == 8_030_261_248


def test_multi_token_prediction_is_apart() -> None:
    """DeepSeek-V3's repository: 671B, and 14B in its multi-token-prediction module with 2 x 0.93B
    of shared tables: 11.6B of its own.
    """
    model = library.model(str(CONFIGS / "deepseek-ai--DeepSeek-V3.json"))
    assert model.mtp_layers == 1
    assert mtp_params(model) / 1e9 == pytest.approx(11.6, abs=0.05)


@pytest.mark.parametrize("repeated", [True, False])
def test_one_set_of_weights_for_all_depths_of_prediction(repeated: bool) -> None:
    """As Nemotron 3 has it: two depths share one layer's weights, or have one each."""
    config = json.loads((CONFIGS / "deepseek-ai--DeepSeek-V3.json").read_text())
    one = library.model(str(CONFIGS / "deepseek-ai--DeepSeek-V3.json"))
    words = {"num_nextn_predict_layers": 2, "mtp_use_repeated_layer": repeated}
    model = model_from_config(config | words, "two", "config.json")
    assert mtp_params(model) == mtp_params(one) * (1 if repeated else 2)
    assert active_params(model) / 1e9 == pytest.approx(37.5, abs=0.1)


def test_windows_are_read_by_layer() -> None:
    window = library.model(str(CONFIGS / "openai--gpt-oss-20b.json")).window
    assert window is not None and (window.tokens, window.kind, window.full_every) == (
        128,
        "sliding",
        2,
    )
    chunked = library.model(str(CONFIGS / "meta-llama--Llama-4-Scout-17B-16E-Instruct.json")).window
    assert chunked is not None and (chunked.tokens, chunked.kind, chunked.full_every) == (
        8192,
        "chunked",
        4,
    )
