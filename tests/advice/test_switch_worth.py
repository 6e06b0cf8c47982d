"""Switches in answers: seconds of the step that is stated, nothing in silence."""

from __future__ import annotations

import pytest

from planner import api
from planner.report.text import recommend

SWITCHES = ("moe_dispatcher=deepep", "cuda_graph=attn", "overlap_moe_expert_parallel_comm=on")
QUESTION = {
    "model": "qwen3-235b-a22b",
    "gpus": 256,
    "cluster": "h100-sxm",
    "seq_length": 4096,
    "global_batch_size": 2048,
    "tp": 2,
    "pp": 8,
    "ep": 16,
    "v": 4,
    "mbs": 1,
}


def test_gains_are_of_the_step_that_is_stated() -> None:
    """A layout string, whose closed form is 14% above its simulation: what another value gives is
    the stated step less what it saves.
    """
    answer = api.recommend(api.question(**QUESTION, switch=SWITCHES), top=1)
    assert answer.best is not None and answer.best.layout.stage_layout
    stated = float(answer.best.estimate.step_s)
    assert answer.switches
    for gain in answer.switches:
        assert gain.step_s + gain.saved_s == pytest.approx(stated)


def test_what_a_question_sets_is_listed_or_said_to_change_nothing() -> None:
    answer = api.recommend(
        api.question(**QUESTION, switch=(*SWITCHES, "optimizer_offload_fraction=0.5")), top=1
    )
    (paragraph, *_) = recommend.switches(answer)
    text = " ".join(str(paragraph).split())
    for name in ("moe_dispatcher", "cuda_graph", "overlap_moe_expert_parallel_comm"):
        assert name in text.partition("Left off")[0]
    assert "Without effect in plan 1: optimizer_offload_fraction" in text
