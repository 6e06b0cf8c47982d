"""DeepSpeed's switches in bytes, by hand: llama3-8b (hidden 4,096, key-value width 1,024, 32
layers) on 8 GPUs.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.memory.rank_memory import bucket_bytes
from planner.cost.memory.states import reduced_bytes, state_bytes
from planner.cost.params.whole import whole_params
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Value
from planner.specs.switches.table import with_switches
from tests import documents


def question(**settings: Value) -> Recipe:
    software = with_switches(library.stack("deepspeed"), settings)
    return documents.recipe("llama3-8b", 8, software=software, framework="deepspeed")


@pytest.mark.parametrize(
    ("settings", "knobs", "expected"),
    [
        ({}, {"zero": 2}, 2 * 5e8 * 2),
        ({"overlap_comm": False}, {"zero": 2}, 5e8 * 2),
        ({"contiguous_gradients": False}, {"zero": 1}, 0.0),
        ({}, {"zero": 3}, 5e8 * 2),
        ({"reduce_bucket_size": 50_000_000}, {"zero": 2}, 2 * 5e7 * 2),
        ({"communication_data_type": "fp32"}, {"zero": 2}, 2 * 5e8 * 4),
        ({}, {"zero": 2, "cp": 2}, 2 * 5e8 * 4),
        ({}, {"zero": 0}, 0.0),
        ({}, {"zero": 1, "pp": 2}, 5e8 * 2),
        ({"contiguous_gradients": False}, {"zero": 1, "pp": 2}, 5e8 * 2),
    ],
)
def test_buckets_are_elements_times_bytes(
    settings: dict[str, Value], knobs: dict[str, Any], expected: float
) -> None:
    """stage_1_and_2.py setup_buckets; Ulysses reduces in fp32 unless told; a bf16 pipeline by
    itself, in a piece of 500,000,000 elements (pipe/engine.py _bf16_reduce_grads).
    """
    recipe = question(**settings)
    assert bucket_bytes(recipe, documents.layout(recipe, sp=0, **knobs), 8e9) == expected


def test_ulysses_reduces_in_bf16_when_told() -> None:
    recipe = question(seq_parallel_communication_data_type="bf16")
    assert reduced_bytes(recipe, documents.layout(recipe, cp=2, zero=2)) == 2.0


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (0, 0),
        (100_000, 2 * 4096),
        (20_000_000, 2 * 4096 + 2 * 4096 * 4096 + 2 * 4096 * 1024),
    ],
)
def test_small_weights_stay_whole(threshold: int, expected: int) -> None:
    recipe = question(stage3_param_persistence_threshold=threshold)
    assert whole_params(recipe, documents.layout(recipe, zero=3)) == expected
    assert whole_params(recipe, documents.layout(recipe, zero=2)) == 0


def test_states_of_a_parameter() -> None:
    """bf16_states: 2 + 4 in place of 4 + 8 bytes; fp32 sums: 4 bytes, whole under zero 1."""
    plain, narrow, summed = (
        question(),
        question(bf16_states=True),
        question(grad_accum_dtype="fp32"),
    )
    one, two = documents.layout(plain, zero=1), documents.layout(plain, zero=2)
    assert state_bytes(plain, one, 1.0)[2] == 12 / 8
    assert state_bytes(narrow, one, 1.0)[2] == 6 / 8
    assert state_bytes(summed, one, 1.0)[1] == 2 + 4
    assert state_bytes(summed, two, 1.0)[1] == 4 / 8
