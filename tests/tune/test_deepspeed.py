"""Trials of a real DeepSpeed engine on two gloo processes; what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest

from planner.errors import InputError
from planner.launch.outcome import Outcome, Work
from planner.layout import RECOMPUTE_CODE, Layout
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.tune.runners import deepspeed_runner as runner
from tests import documents
from tests.launch import forks

pytestmark = pytest.mark.process


TINY = ModelSpec(
    name="tiny",
    family="llama",
    hidden_size=64,
    ffn_size=128,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=256,
    max_seq_length=64,
    gated_mlp=True,
    tied_embeddings=False,
    norm="rmsnorm",
    position="rope",
    source="made for this test",
)


def recipe(**changes: Any) -> Recipe:
    known: dict[str, Any] = {
        "stack": "deepspeed",
        "framework": "deepspeed",
        "seq_length": 64,
        "global_batch_size": 8,
        **changes,
    }
    return documents.recipe(known.pop("model", TINY), 2, **known)


def trial(question: Recipe, layout: Layout, **changes: Any) -> tuple[Outcome, list[dict[str, Any]]]:
    lines: list[dict[str, Any]] = []
    asked = {**runner.request(question, layout, 2, steps=2, warmup=1), **changes}
    work = Work(runner.MODULE, asked, asked["ranks"], limit_s=240)
    return forks.run(work, lambda line: bool(lines.append(line))), lines


@pytest.mark.parametrize(
    ("knobs", "switches"),
    [
        (
            {"zero": 3, "recompute": RECOMPUTE_CODE["full"]},
            {"reduce_bucket_size": 20_000, "stage3_prefetch_bucket_size": 0},
        ),
        ({"zero": 1, "pp": 2}, {"allgather_bucket_size": 40_000}),
        (
            {"zero": 2},
            {"overlap_comm": False, "contiguous_gradients": False, "reduce_bucket_size": 50_000},
        ),
    ],
    ids=["zero3", "pipeline", "zero2"],
)
def test_the_engine_is_measured_under_the_switches_it_was_told(
    knobs: dict[str, int], switches: dict[str, Any]
) -> None:
    question = recipe().model_copy(update={"switches": switches})
    layout = documents.layout(question, mbs=2, sp=0, **knobs)
    done, lines = trial(question, layout)
    assert done.state == "done" and done.result is not None, done
    assert [(line["phase"], line["step"]) for line in lines] == [
        ("warmup", 0),
        ("step", 0),
        ("step", 1),
    ]
    held = done.result["switches"]
    assert {word: held[word] for word in switches} == switches
    if layout.pp == 1:
        assert held["contiguous_gradients"] == (
            layout.zero == 3
        )  # the default, unless told otherwise
    found = runner.measurement(done.result)
    # The slowest rank's time of a step is no less than that which rank 0 reported of it.
    own = [line["step_s"] for line in lines[1:]]
    assert len(found.steps_s) == 2 and all(
        all_of >= mine * (1 - 1e-6) for all_of, mine in zip(found.steps_s, own, strict=True)
    )
    assert found.step_s == pytest.approx(sum(found.steps_s) / 2)
    assert (
        all(loss == pytest.approx(math.log(256), rel=0.06) for loss in found.losses)
        and len(found.losses) == 2
    )
    assert (
        found.memory_kind == "resident"
        and found.memory_bytes is not None
        and 2**27 < found.memory_bytes < 2**33
    )
    assert found.versions["deepspeed"] and found.notes
    if layout.pp > 1:
        assert found.forward_s is None
    else:
        assert (
            found.forward_s is not None
            and found.backward_s is not None
            and found.optimizer_s is not None
        )
        assert min(found.forward_s, found.backward_s, found.optimizer_s) > 0


@pytest.mark.parametrize(
    ("changes", "knobs", "says"),
    [
        (
            {"framework": "megatron", "stack": "megatron"},
            {},
            "is for megatron; use --runner torch or megatron",
        ),
        ({}, {"pp": 2, "zero": 2}, "a pipeline goes with zero 0 or 1"),
        ({}, {"tp": 2, "pp": 2, "dp": 1, "m": 8, "zero": 1}, "run by Megatron-DeepSpeed"),
        ({}, {"zero": 1, "dp": 8, "m": 1}, "needs 8 devices, but 2 are here; use --runner torch"),
    ],
)
def test_refusals(changes: dict[str, str], knobs: dict[str, int], says: str) -> None:
    question = recipe(**changes)
    layout = documents.layout(question, **{"mbs": 1, "sp": 0, **knobs})
    question = question.model_copy(update={"gpus": int(layout.gpus)})
    with pytest.raises(InputError, match=says):
        runner.request(question, layout, 2, 1, 0)
