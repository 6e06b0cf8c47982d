"""Presets of models against counts that others published."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from planner.cost.params.layer import active_params, mtp_params, total_params
from planner.cost.params.vision import tower_params
from planner.specs import library, megatron_letters

# Of 145 released or published models: parameters by their public code (built as the Transformers
# 5.24 class where there is one), the
# part that a token uses (both embedding tables in), that of multi-token prediction; and the
# published count with what it is.
COUNTS = list(
    csv.DictReader(
        (Path(__file__).parents[1] / "data" / "model_counts.csv").read_text().splitlines()
    )
)
# Published counts that stand for something else than the weights of this very shape.
OTHERWISE = {
    "mpt-70b": "learned positions and biases",
    "granite3.0-2b": "7 more rows",
    "granite3.0-8b": "7 more rows",
}

EXACT = [name for name in library.models() if library.model(name).parameters]

# Narayanan et al., SC21, arXiv 2104.04473, table 1: billions of parameters, heads, hidden size,
# layers
SC21 = [
    ("gpt-1.7b", 1.7, 24, 2304, 24),
    ("gpt-3.6b", 3.6, 32, 3072, 30),
    ("gpt-7.5b", 7.5, 32, 4096, 36),
    ("gpt-18b", 18.4, 48, 6144, 40),
    ("gpt-39b", 39.1, 64, 8192, 48),
    ("gpt-76b", 76.1, 80, 10240, 60),
    ("gpt-145b", 145.6, 96, 12288, 80),
    ("gpt-310b", 310.1, 128, 16384, 96),
    ("gpt-530b", 529.6, 128, 20480, 105),
    ("gpt-1t", 1008.0, 160, 25600, 128),
]

# Parameters of the released weights, from safetensors.total of the Hub (tied heads stored twice
# subtracted) or the release's own count.
RELEASED = {
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "qwen2-0.5b": 494_032_768,
    "qwen2-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "phi4-14b": 14_659_507_200,
    "yi-34b": 34_388_917_248,
    "internlm2-20b": 19_861_149_696,
}


@pytest.mark.parametrize("name", EXACT)
def test_the_shape_gives_the_published_count(name: str) -> None:
    model = library.model(name)
    assert total_params(model) == model.parameters


@pytest.mark.parametrize(("name", "parameters"), RELEASED.items())
def test_released_weights(name: str, parameters: int) -> None:
    assert total_params(library.model(name)) == parameters


@pytest.mark.parametrize(("name", "billions", "heads", "hidden", "layers"), SC21)
def test_table_1_of_sc21(name: str, billions: float, heads: int, hidden: int, layers: int) -> None:
    model = library.model(name)
    assert (model.num_heads, model.hidden_size, model.num_layers) == (heads, hidden, layers)
    assert total_params(model) / 1e9 == pytest.approx(billions, abs=0.06)


@pytest.mark.parametrize("name", ["gpt-22b", "gpt-175b", "gpt-530b", "gpt-1t"])
def test_the_papers_formula(name: str) -> None:
    """Narayanan et al., eq. 2: P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)), which leaves the
    final norm (2 h) out.
    """
    model = library.model(name)
    layers, h, vocab, s = model.num_layers, model.hidden_size, 51200, 2048
    formula = 12 * layers * h**2 + 13 * layers * h + (vocab + s) * h
    assert total_params(model) - 2 * h == formula


@pytest.mark.parametrize(
    ("name", "letters"),
    [
        ("nemotron3-nano-30b-a3b", "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"),
        ("nemotron-nano-9b-v2", "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"),
        (
            "nemotron-h-56b",
            "M-M-M-M*" + "-M-M-M-M-M*" * 9 + "-M-M-M-M-M-",
        ),
    ],
)
def test_layers_stand_as_megatron_bridge_has_them(name: str, letters: str) -> None:
    """Providers of Megatron-Bridge 0.3.1; the presets are from config.json, which has a pattern or
    a list of its own.
    """
    assert megatron_letters.pattern(library.model(name)).letters == letters


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("qwen3-vl-2b", 406_957_056),
        ("qwen3-vl-4b", 415_347_712),
        ("qwen3-vl-8b", 576_388_336),
        ("qwen3-vl-32b", 595_266_800),
        ("qwen3-vl-30b-a3b", 538_631_408),
        ("qwen3-vl-235b-a22b", 576_388_336),
        ("qwen3.5-27b", 460_730_096),
        ("qwen3.5-35b-a3b", 446_571_248),
        ("gemma4-26b-a4b", 572_792_112),
        ("qwen3.5-0.8b", 100_592_896),
        ("qwen3.5-2b", 331_416_576),
        ("qwen3.5-4b", 333_514_240),
        ("qwen3.5-9b", 456_010_480),
        ("kimi-k2.5", 471_143_920),
        ("gemma3-4b", 419_816_304),
        ("gemma3-12b", 421_290_864),
        ("gemma3-27b", 423_060_336),
    ],
)
def test_towers_as_transformers_builds_them(name: str, parameters: int) -> None:
    """With projector; text parts stand in model_counts.csv."""
    tower = library.model(name).vision
    assert tower
    assert tower_params(tower) == parameters


def test_gpt3_of_the_paper() -> None:
    """Brown et al., table 2.1: 175.0 B nominal, 96 layers of 12,288; with GPT-2's 50,257 tokens
    174.6 B.
    """
    assert total_params(library.model("gpt3-175b")) / 1e9 == pytest.approx(174.6, abs=0.05)


@pytest.mark.parametrize("row", COUNTS, ids=[row["released_as"] for row in COUNTS])
def test_counts_of_the_released_shapes(row: dict[str, str]) -> None:
    model = library.model(row["preset"])
    assert total_params(model) == int(row["parameters"])
    assert active_params(model) == int(row["active_parameters"])
    assert mtp_params(model) == int(row["mtp_parameters"])
    if row["published_kind"].startswith("exact") and model.name not in OTHERWISE:
        assert total_params(model) == int(row["published"])


def test_every_preset_is_counted() -> None:
    """Here, or as their configurations in tests/cost/test_mixers.py and test_huggingface.py."""
    lines = (Path(__file__).parents[1] / "data" / "hybrid_configs.jsonl").read_text().splitlines()
    as_configured = {json.loads(line)["preset"] for line in lines} - {""}
    later = {"nemotron3-8b", "nemotron3-22b", "glm5", *as_configured}
    assert set(library.models()) - {row["preset"] for row in COUNTS} == later
    assert len(COUNTS) == 145


@pytest.mark.parametrize(
    ("name", "billions"),
    # As their authors print them: DeepSeek-V2 and V3 reports, Mixtral, Qwen3 and Kimi K2 reports.
    # Mixtral's 13B and 39B.
    [
        ("deepseek-v2", 21),
        ("mixtral-8x7b", 12.9),
        ("mixtral-8x22b", 39),
        ("qwen3-235b-a22b", 22),
        ("qwen3-30b-a3b", 3.3),
        ("dbrx", 36),
        ("arctic-480b", 17),
        ("llama4-scout", 17),
        ("llama4-maverick", 17),
    ],
)
def test_active_parameters_as_published(name: str, billions: float) -> None:
    assert active_params(library.model(name)) / 1e9 == pytest.approx(billions, rel=0.025)


def test_deepseek_v3_counts_one_table_among_the_active() -> None:
    """Technical report: 37B activated; the repository's 36.7B leave out one of the two tables."""
    model = library.model("deepseek-v3")
    assert (active_params(model) - model.vocab_size * model.hidden_size) / 1e9 == pytest.approx(
        36.7, abs=0.1
    )


@pytest.mark.parametrize("name", library.models())
def test_every_preset_is_whole(name: str) -> None:
    model = library.model(name)
    assert model.source and model.name == name
    assert (
        model.position_rows >= model.max_seq_length
        if model.position == "learned"
        else model.position_rows == 0
    )
    if model.moe is None and model.mixer is None and not model.kinds:
        assert (
            model.ffn_size == 4 * model.hidden_size
            if not model.gated_mlp
            else model.ffn_size > 2 * model.hidden_size
        )


@pytest.mark.parametrize(
    "name", ["mixtral-8x7b", "deepseek-v3", "deepseek-v3.2", "gemma3-27b", "gpt-oss-20b"]
)
def test_experts_latents_and_windows_are_answered(name: str) -> None:
    from planner import api

    answer = api.explain(
        api.question(
            model=name, gpus=256, cluster="h100-sxm", tp=4, ep=8 if library.model(name).moe else 1
        )
    )
    assert answer.estimate.step_s > 0 and answer.layout.etp == (4 if library.model(name).moe else 1)
