"""fp32: elements, states and messages of 4 bytes."""

from __future__ import annotations

import pytest

from planner.cost.memory.activations import kept
from planner.cost.memory.rank_memory import state_bytes
from planner.cost.step.step import p2p
from planner.estimate import closed_form
from planner.layout import Layout
from tests.documents import recipe

LAYOUT = Layout(tp=8, pp=4, m=16, sp=1)


def test_states_are_16_bytes_a_parameter_without_a_master_copy() -> None:
    """4 weights + 4 gradients + 8 Adam moments; in bf16 Megatron's 2 + 4 + 12
    (theoretical_memory_usage.py: 18).
    """
    one = Layout(zero=0)
    assert sum(state_bytes(recipe(precision="fp32"), one, 1.0)) == pytest.approx(16)
    assert sum(state_bytes(recipe(precision="bf16"), one, 1.0)) == pytest.approx(18)


def test_activations_and_messages_are_twice_as_large() -> None:
    wide, narrow = recipe(precision="fp32"), recipe(precision="bf16")
    assert kept(wide, LAYOUT).layer_bytes == pytest.approx(2 * kept(narrow, LAYOUT).layer_bytes)
    assert p2p(wide, LAYOUT).bytes_per_tensor == pytest.approx(
        2 * p2p(narrow, LAYOUT).bytes_per_tensor
    )
    assert p2p(narrow, LAYOUT).bytes_per_tensor == 8192 * 8192 * 2 / 8


def test_fp32_is_slower_and_larger() -> None:
    wide, narrow = (closed_form(recipe(precision=name), LAYOUT) for name in ("fp32", "bf16"))
    assert wide.step_s > narrow.step_s and wide.memory_bytes > narrow.memory_bytes
