"""Ranges that rest on guesses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.cost.memory.rank_memory import oom_probability
from planner.estimate import closed_form, estimate
from planner.specs import guesses, library
from planner.specs.recipe import Recipe
from planner.specs.switches.table import with_switches
from tests import documents


def asked(stack: str = "megatron", **switches: bool | str) -> Recipe:
    software = with_switches(library.stack(stack), switches)
    return documents.recipe("qwen3-30b-a3b", 64, stack=software, seq_length=4096)


def test_a_guess_is_counted_halved_and_doubled() -> None:
    """A step of 8 s that lasts 10 s without the switch: worth twice as much it lasts 6.4 s, half as
    much 8 sqrt(10 / 8) s; where the switch costs time the ends change places.
    """
    low, high = guesses.widened(1.0, 1.0, 8.0, [10.0])
    assert (8 * low, 8 * high) == pytest.approx((6.4, 8 * math.sqrt(1.25)))
    low, high = guesses.widened(1.0, 1.0, 10.0, [8.0])
    assert (10 * low, 10 * high) == pytest.approx((10 / math.sqrt(1.25), 12.5))
    assert guesses.widened(0.9, 1.2, 8.0, []) == pytest.approx((0.9, 1.2))
    low, high = guesses.widened(np.array([0.8, 1.1]), np.array([1.3, 1.2]), 8.0, [10.0, 8.0])
    assert low == pytest.approx([math.exp(-math.hypot(math.log(0.8), math.log(0.8))), 1.1 * 0.8])
    assert high[0] == pytest.approx(math.exp(math.hypot(math.log(1.3), math.log(1.25) / 2)))


def test_what_published_runs_had_is_in_their_residuals() -> None:
    assert guesses.guessed(asked()) == {}
    assert guesses.guessed(asked("nemo")) == {}
    assert guesses.guessed(asked(cuda_graph="layers")) == {"cuda_graph": "layers"}
    assert guesses.guessed(asked("nemo", cuda_graph="attn")) == {"cuda_graph": "attn"}


def test_an_estimate_says_its_guesses() -> None:
    recipe, plain = asked(cuda_graph="layers"), asked()
    layout = documents.layout(recipe, ep=8, zero=1)
    wide, narrow = closed_form(recipe, layout), estimate(recipe, layout, exact=True)
    worth = math.log(float(closed_form(plain, layout).step_s / wide.step_s))
    assert worth > 0.01
    low, high = (float(end / wide.step_s) for end in (wide.step_s_low, wide.step_s_high))
    expected = low * math.exp(-math.log(low) - math.hypot(math.log(low), worth))
    assert narrow.step_s_low / narrow.step_s == pytest.approx(expected, rel=1e-6)
    assert narrow.step_s_high / narrow.step_s > high
    assert any(line.startswith("cuda_graph layers: ") for line in narrow.assumed)
    assert not any("guess" in line for line in estimate(plain, layout, exact=True).assumed)


def test_memory_that_is_a_guess_blurs_the_limit() -> None:
    """3 GB, half or twice as much in 80%: ln 2 / 1.2816 of it a deviation. Graphs hold memory, so
    that a layout that is sure to fit is less sure with them, beyond what they take.
    """
    assert guesses.deviation_bytes([3e9]) == pytest.approx(3e9 * math.log(2) / 1.2816)
    assert guesses.deviation_bytes([3e9, 4e9]) == pytest.approx(5e9 * math.log(2) / 1.2816)
    assert guesses.deviation_bytes([]) == 0.0
    recipe = asked(cuda_graph="layers")
    layout = documents.layout(recipe, ep=8, zero=1)
    said = closed_form(recipe, layout)
    sure = oom_probability(recipe, said.memory, said.memory_limit_bytes)
    assert abs(float(said.oom_probability) - 0.5) < abs(float(sure) - 0.5)
