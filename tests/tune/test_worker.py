"""The torch benchmark as its users see it: a request, a run of its ranks, a measurement; and what
it refuses.
"""

from __future__ import annotations

import json
import math

import pytest

from planner.errors import InputError
from planner.launch.outcome import Work
from planner.layout import Layout
from planner.tune import torch_support
from planner.tune.benchmark import timing
from planner.tune.runners.torch_runner import MODULE, measurement, request
from tests.launch import forks
from tests.tune import tiny

pytestmark = pytest.mark.process


STEPS, WARMUP = 3, 1


@pytest.fixture(scope="module")
def whole():
    """A plan of two ranks, measured as the study has it measured."""
    layout = tiny.layout(pp=2, zero=1)
    asked = request(tiny.recipe(2), layout, 2, STEPS, WARMUP)
    lines = []
    outcome = forks.run(
        Work(MODULE, asked, asked["ranks"], 120.0), lambda line: bool(lines.append(line))
    )
    assert outcome.state == "done", outcome.reason + outcome.stderr_tail
    return layout, lines, measurement(outcome.result)


def test_progress_is_one_line_a_step(whole):
    _, lines, found = whole
    assert [(one["phase"], one["step"]) for one in lines] == [
        ("warmup", 0),
        ("step", 1),
        ("step", 2),
        ("step", 3),
    ]
    assert [one["step_s"] for one in lines[WARMUP:]] == list(found.steps_s)


def test_a_step_is_the_median_and_holds_its_parts(whole):
    layout, _, found = whole
    assert found.step_s == sorted(found.steps_s)[STEPS // 2] and len(found.losses) == STEPS + WARMUP
    assert 0 < found.forward_s < max(found.steps_s) and 0 < found.backward_s < max(found.steps_s)
    assert 0 < found.optimizer_s < max(found.steps_s) and found.communication_s > 0
    assert [one["stage"] for one in found.stages] == [0, 1]
    slowest = max(one["forward_s"] + one["backward_s"] for one in found.stages) * layout.m
    assert found.forward_s + found.backward_s <= slowest * 1.5
    assert not found.composed and found.proxy == ""


def test_on_a_cpu_memory_is_what_was_resident(whole):
    _, _, found = whole
    assert found.memory_kind == "resident" and found.device.startswith("cpu")
    assert (
        50 * 2**20 < found.memory_bytes < 8 * 2**30
    )  # torch alone takes more than the one, the model next to nothing


def test_untrained_weights_know_nothing_and_learn(whole):
    _, _, found = whole
    assert found.losses[0] == pytest.approx(math.log(256), abs=0.1)
    assert found.losses[-1] < found.losses[0]


def test_covered_time_is_counted_once():
    assert timing.covered([(0, 4), (1, 2), (3, 6), (8, 9)]) == 7


def test_a_request_is_plain_json():
    asked = request(tiny.recipe(4, "mixtral"), tiny.layout(tp=2, sp=1, pp=2), 4, 2, 1)
    assert json.loads(json.dumps(asked)) == asked


def test_what_is_no_class_of_torch_runs_by_its_order():
    assert request(tiny.recipe(2), tiny.layout(pp=2), 2, 1, 1)["order"] == ""
    one = request(tiny.recipe(2), tiny.layout(pp=2, schedule="zb-h1", mbs=4), 2, 1, 1)
    assert one["order"].splitlines()[1] == "1F0,1I0,1F1,1I1,1W0,1W1" and one["rank_of_stage"] == [
        0,
        1,
    ]
    assert request(tiny.recipe(2), tiny.layout(pp=2, v=2, schedule="zbv"), 2, 1, 1)[
        "rank_of_stage"
    ] == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"cp": 2}, "cp=2"),
        ({"offload": 1}, "offload=optimizer-cpu"),
        ({"pp": 2, "schedule": "dualpipe"}, "schedule=dualpipe"),
        ({"pp": 2, "dp": 2, "v": 2, "schedule": "zbv", "zero": 3}, "use zero=2 or 1f1b"),
        ({"tp": 8}, "tp=8, heads=4"),
        ({"model": "mixtral", "tp": 2}, "sp=0; set sp=1"),
        ({"model": "mixtral", "dp": 2, "ep": 2, "zero": 3}, "ep=2, zero=3; use zero=1"),
    ],
)
def test_refusals_say_what_and_a_way_out(knobs, says):
    model = knobs.pop("model", "llama")
    layout = tiny.layout(**knobs)
    with pytest.raises(InputError, match=says):
        request(tiny.recipe(layout.gpus, model), layout, layout.gpus, 1, 1)


def test_no_steps_are_refused():
    with pytest.raises(InputError, match="steps must be at least 1"):
        request(tiny.recipe(1), tiny.layout(), 1, 0, 1)


def test_what_a_cpu_runs_otherwise_is_said():
    recipe = tiny.recipe(1, tied_embeddings=True).model_copy(update={"precision": "bf16"})
    assert (
        torch_support.element(recipe, "cpu") == "float32"
        and torch_support.element(recipe, "cuda") == "bfloat16"
    )
    narrow, tied = torch_support.notes(recipe, Layout(), "cpu")
    assert (
        narrow == "fp32 on the CPU in place of bf16"
        and tied == "the head has a matrix of its own, not the embedding's"
    )
