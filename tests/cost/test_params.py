"""Parameter counts against published totals and formulas that others derived."""

from __future__ import annotations

import pytest

from planner.cost.params.layer import (
    embedding_params,
    head_params,
    layer_params,
    matmul_params,
    padded_vocab,
    total_params,
)
from planner.layout import Layout
from planner.specs import library

EXACT = {  # safetensors totals of the released checkpoints (Hugging Face Hub)
    "llama2-7b": 6_738_415_616,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "qwen3-0.6b": 596_049_920,
    "qwen3-32b": 32_762_123_264,
}


@pytest.mark.parametrize("name", EXACT)
def test_total_is_that_of_the_checkpoint(name: str) -> None:
    assert total_params(library.model(name)) == EXACT[name]


@pytest.mark.parametrize("name", ["gpt-1.7b", "gpt-18b", "gpt-530b", "gpt-1t"])
def test_gpt_total_is_megatrons_published_formula(name: str) -> None:
    """12 L h^2 (1 + 13/(12h) + (V + s)/(12 L h)), SC21 eq. 2, leaves out the final LayerNorm
    (2h).
    """
    model = library.model(name)
    layers, h, rows = model.num_layers, model.hidden_size, model.vocab_size + model.position_rows
    assert total_params(model) - 2 * h == 12 * layers * h * h + 13 * layers * h + rows * h


def test_ranks_together_hold_the_model_and_what_is_on_every_rank() -> None:
    """Sum over tp of a Llama layer = whole layer + (tp - 1) copies of its two norms."""
    model = library.model("llama3-70b")
    assert 8 * layer_params(model, 8) == layer_params(model, 1) + 7 * 2 * 8192


def test_key_and_value_weights_are_split_evenly_beyond_the_heads() -> None:
    """megatron-core 0.19.2 built on the meta device: with tp 16 and 8 key-value heads a rank has
    half a head's weights.
    """
    model = library.model("llama3-70b")
    assert 16 * layer_params(model, 16) == layer_params(model, 1) + 15 * 2 * 8192


def test_vocabulary_is_padded_to_128_tp() -> None:
    model = library.model("gpt3-175b")
    assert model.vocab_size == 50_257
    assert (padded_vocab(model, 1), padded_vocab(model, 8)) == (
        50_304,
        51_200,
    )  # Megatron-LM's own log lines


def test_tied_table_is_stored_again_on_a_last_stage_of_its_own() -> None:
    model = library.model("gpt3-175b")
    table = 51_200 // 8 * 12_288
    assert embedding_params(model, 8) == table + 2048 * 12_288
    assert head_params(model, Layout(tp=8, pp=8)) == table + 2 * 12_288
    assert head_params(model, Layout(tp=8, pp=1)) == 2 * 12_288


def test_matmul_params_of_gpt3() -> None:
    """SC21 eq. 3 counts 72 B s L h^2 (1 + s/(6h) + V/(12 L h)) forward and backward: 12 L h^2 + V h
    parameters.
    """
    model = library.model("gpt3-175b")
    assert matmul_params(model) == 12 * 96 * 12_288**2 + 50_257 * 12_288
