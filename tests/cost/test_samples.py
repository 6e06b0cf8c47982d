"""Samples shorter than the sequence: packed they attend to themselves alone, padded they waste the
rest.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.flops import model_flops
from planner.cost.layer.attention import attention_times
from planner.cost.named import named
from planner.estimate import estimate
from planner.layout import Layout
from planner.specs.recipe import Recipe
from tests import documents


def question(**changes: Any) -> Recipe:
    return documents.recipe(
        "llama3-8b", 8, **{"seq_length": 8192, "global_batch_size": 64, **changes}
    )


def test_attention_of_packed_samples_is_that_of_as_many_short_sequences() -> None:
    packed = attention_times(question(packing=True, mean_length=512), Layout(tp=2))
    apart = attention_times(question(seq_length=512), Layout(tp=2, mbs=16))
    assert packed == pytest.approx(apart, rel=1e-12)


def test_model_flops_of_short_samples_by_hand() -> None:
    """6 P a token and causal attention of 512 tokens; padded to 8,192 only a sixteenth of the
    tokens is work.
    """
    one = question()
    params = 32 * (41_943_040 + 176_160_768) + 128_256 * 4096
    each = 6 * params + 12 * 32 * 512 * 4096 / 2
    packed, padded = (question(packing=packing, mean_length=512) for packing in (True, False))
    assert model_flops(packed, full_attention=False) == pytest.approx(one.tokens * each, rel=1e-12)
    assert model_flops(padded, full_attention=False) == pytest.approx(
        one.tokens / 16 * each, rel=1e-12
    )


def test_padding_takes_the_time_of_whole_sequences_for_a_part_of_the_tokens() -> None:
    of = documents.layout(question(), tp=2)
    whole, padded, packed = (
        estimate(question(**more), of, exact=True)
        for more in (
            {},
            {"packing": False, "mean_length": 2048},
            {"packing": True, "mean_length": 2048},
        )
    )
    assert padded.step_s == whole.step_s and packed.step_s < whole.step_s
    used = [named(one)["used_tokens_per_s_per_gpu"] for one in (whole, padded, packed)]
    assert used[1] == pytest.approx(used[0] / 4) and used[2] > used[0] == whole.tokens_per_s_per_gpu
    assert padded.mfu < whole.mfu / 4


def test_unfused_attention_computes_what_a_mask_drops() -> None:
    short: dict[str, Any] = {"packing": True, "mean_length": 512}
    packed, whole = (
        attention_times(question(attention="unfused", **more), Layout()) for more in (short, {})
    )
    assert packed == whole


def test_windows_longer_than_a_sample_do_nothing() -> None:
    """Gemma 3's windows of 1,024 tokens hold packed samples of 512 whole."""
    short = documents.recipe(
        "gemma3-27b", 8, seq_length=8192, global_batch_size=64, packing=True, mean_length=512
    )
    plain = short.model_copy(update={"model": short.model.model_copy(update={"window": None})})
    assert attention_times(short, Layout()) == attention_times(plain, Layout())
