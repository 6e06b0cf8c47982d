"""Activation memory against Korthikanti et al. 2022, who derived it by hand for GPT."""

from __future__ import annotations

import pytest

from planner.cost.memory.activations import kept, layer_parts
from planner.layout import Layout, module_mask
from planner.specs import library
from planner.specs.recipe import Recipe


def recipe(model: str, stack: str, attention: str, seq: int) -> Recipe:
    return Recipe(
        model=library.model(model),
        hardware=library.hardware("a100-80g-sxm"),
        software=library.stack(stack),
        gpus=8,
        seq_length=seq,
        global_batch_size=8,
        attention=attention,
    )


S, B, H, A = 2048, 1, 12288, 96


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (Layout(tp=1), S * B * H * (34 + 5 * A * S / H)),
        (Layout(tp=8), S * B * H * (10 + 24 / 8 + 5 * A * S / (H * 8))),
        (Layout(tp=8, sp=1), S * B * H / 8 * (34 + 5 * A * S / H)),
        (
            Layout(tp=8, sp=1, recompute=1, recompute_modules=module_mask(["core_attn"])),
            S * B * H * 34 / 8,
        ),
        (
            Layout(tp=8, recompute=1, recompute_modules=module_mask(["core_attn"])),
            S * B * H * (10 + 24 / 8),
        ),
    ],
)
def test_layer_is_table_2_of_the_paper(layout: Layout, expected: float) -> None:
    assert kept(
        recipe("gpt3-175b", "megatron-2022", "unfused", S), layout
    ).layer_bytes == pytest.approx(expected)


def test_full_recomputation_keeps_the_input() -> None:
    """Table 2, last row: 2 s b h."""
    found = kept(recipe("gpt3-175b", "megatron-2022", "unfused", S), Layout(tp=8, recompute=2))
    assert found.input_bytes == pytest.approx(2 * S * B * H)


def test_flash_keeps_no_scores_and_a_gated_layer_keeps_both_branches() -> None:
    """Llama 3 70B, by hand: norm inputs and outputs 4 x 2h, q 2h, k and v 2 x 2h/8, out 2h, MLP 3 x
    2f, log-sum-exp 4 a.
    """
    tokens, h, f = 8192, 8192, 28672
    expected = tokens * (4 * 2 * h + 2 * h + 2 * 2 * h / 8 + 2 * h + 3 * 2 * f + 4 * 64)
    assert kept(
        recipe("llama3-70b", "megatron", "flash", 8192), Layout()
    ).layer_bytes == pytest.approx(expected)


def test_parts_are_each_counted_once() -> None:
    asked = recipe("llama3-70b", "megatron", "flash", 8192)
    parts = layer_parts(asked, Layout(tp=8, sp=1))
    assert sum(parts.values()) == pytest.approx(kept(asked, Layout(tp=8, sp=1)).layer_bytes)
