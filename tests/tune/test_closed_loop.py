"""What the closed loop on processors rests on: a processor's launches are its own work, and layouts
run in turns over one start.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.cost.layer.kinds import layer_time
from planner.launch.outcome import Work
from planner.layout import SCHEDULE_CODE
from planner.specs import library, resolve
from planner.specs.words import Question
from planner.tune import torch_support
from planner.tune.runners import table, torch_runner
from planner.tune.runners.table import Bench
from planner.tune.study.space import Candidate, space
from planner.tune.workers import turns
from tests.launch import forks
from tests.tune import tiny

pytestmark = pytest.mark.process


def test_a_processor_that_computes_launches_nothing_ahead() -> None:
    """Of layers that take long, launches of a device's processor are hidden; of a processor's own
    all are seen.
    """
    stack, launched = (
        library.stack("torch-gloo"),
        library.hardware("a100-40g-pcie").node.launch_factor,
    )
    own = tiny.recipe(2, seq=2048, hidden_size=4096, head_dim=1024).model_copy(
        update={"software": stack}
    )
    ahead = own.model_copy(update={"software": stack.with_figures({"launch.ahead": True})})
    one, hidden = (layer_time(recipe, tiny.layout(dp=2)) for recipe in (own, ahead))
    assert hidden.launch_forward_s == hidden.launch_backward_s == 0
    assert float(one.launch_forward_s) == pytest.approx(stack.launch.us_forward * 1e-6 * launched)
    assert float(one.launch_backward_s) == pytest.approx(stack.launch.us_backward * 1e-6 * launched)


def test_layouts_in_turns_over_one_start() -> None:
    """Three layouts, twice: each turn builds its model anew from the same weights, so that its
    losses are those of the first.

    1F1B with fewer micro-batches than stages is an order that torch's own class refuses.
    """
    layouts = [tiny.layout(dp=2), tiny.layout(pp=2), tiny.layout(pp=2, mbs=8)]
    recipe = tiny.recipe(2)
    assert not any(torch_support.refused(recipe, one, 2) for one in layouts)
    asked = turns.request([torch_runner.request(recipe, one, 2, 2, 1) for one in layouts], 2)
    outcome = forks.run(Work(turns.MODULE, asked, 2, 120), lambda line: False)
    assert outcome.state == "done" and outcome.result, outcome
    told = outcome.result["turns"]
    assert [[answer["request"]["layout"] for answer in turn] for turn in told] == [
        [one.named() for one in layouts]
    ] * 2
    assert all(
        len(answer["steps_s"]) == 2 and min(answer["steps_s"]) > 0
        for turn in told
        for answer in turn
    )
    first = told[0][0]["losses"]
    assert all(
        answer["losses"] == pytest.approx(first, rel=1e-5) for turn in told for answer in turn
    )


def test_a_schedule_without_an_order_is_refused_before_anything_starts() -> None:
    """Interleaving needs as many micro-batches as stages [narayanan2021]; a part of a larger plan
    runs no order.
    """
    recipe, layout = tiny.recipe(2), tiny.layout(schedule="interleaved", pp=2, v=2, mbs=8)
    assert layout.m == 1 and "m=2" in torch_support.refused(recipe, layout, 2)
    assert not torch_support.refused(
        recipe, tiny.layout(schedule="interleaved", pp=2, v=2, mbs=4), 2
    )
    assert not torch_support.refused(recipe, layout, 1)


def test_torch_on_a_processor_is_plain_torch_over_gloo(tmp_path: Path) -> None:
    (tmp_path / "cpu.yaml").write_text(
        "extends: a100-40g-pcie\nname: cpu\ngpu: {architecture: cpu}\n"
    )
    asked = Question(
        model="llama3.2-1b", gpus=2, cluster=str(tmp_path / "cpu.yaml"), framework="torch"
    )
    assert resolve.recipe(asked).software.name == "torch-gloo"
    assert resolve.recipe(replace(asked, stack="torch-fsdp")).software.name == "torch-fsdp"
    assert resolve.recipe(replace(asked, cluster="h100-sxm")).software.name == "torch-fsdp"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("phi3-mini-3.8b", [(1, 2, 0), (1, 2, 1), (2, 1, 0)]),
        ("llama3.2-1b", [(1, 2, 0), (1, 2, 1)]),
    ],
)
def test_layouts_that_do_the_same_are_one_candidate(
    model: str, expected: list[tuple[int, int, int]]
) -> None:
    """A lone data-parallel rank has nothing to shard: zero 0 and 1 are one layout there, and two
    where two ranks share. torchtitan's Decoder refuses a pipeline of tied embeddings.
    """
    recipe = resolve.recipe(
        Question(
            model=model,
            gpus=2,
            cluster="h100-sxm",
            stack="torch-gloo",
            zero="0..1",
            v=1,
            mbs=1,
            tp=1,
            cp=1,
            recompute="none",
            seq_length=1024,
            global_batch_size=8,
        )
    )
    found = space(recipe, tiny.layout(dp=2, mbs=1)).candidates
    plain = [one.layout for one in found if one.layout.schedule == SCHEDULE_CODE["1f1b"]]
    assert sorted((one.pp, one.dp, one.zero) for one in plain) == expected


@pytest.fixture(scope="module")
def loop() -> Any:
    """The recipe's script, which is no module of a package."""
    spec = importlib.util.spec_from_file_location(
        "closed_loop", Path(__file__).parents[2] / "recipes" / "closed-loop.py"
    )
    assert spec is not None and spec.loader is not None
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("mine", "inside"),
    [((1.0, 1.1, 1.2), True), ((1.2, 1.21, 1.22), False), ((1.2, 1.0, 1.4), True)],
)
def test_the_choice_is_judged_by_the_noise_of_one_layout(
    loop: Any, mine: tuple[float, ...], inside: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The best takes 1 s, give or take 5%: 10% behind with a band of 18% is inside, 21% behind with
    2% is not, 20% with 33% is.
    """
    best, chosen = (
        Candidate(tiny.layout(**knobs), 0.9, 0.0, 0.0, ()) for knobs in ({"dp": 2}, {"pp": 2})
    )
    every = [loop.Timed(chosen, mine), loop.Timed(best, (0.95, 1.0, 1.05))]
    assert loop.judged(chosen.layout.named(), every) is inside
    said = capsys.readouterr().out
    assert ("OUTSIDE" not in said) is inside and "prediction -10%" in said


def test_the_loop_asks_what_the_command_line_reads(loop: Any) -> None:
    import typer.main

    from planner import cli

    group: Any = typer.main.get_command(cli.app())
    group.commands["recommend"].make_context("recommend", ["--gpus", "2", *loop.QUESTION])
    assert library.model(str(loop.MODEL)).num_layers == 4


@pytest.mark.parametrize(
    ("architecture", "ranks", "wanted"), [("cpu", 1, "2"), ("cpu", 16, "1"), ("hopper", 1, None)]
)
def test_a_rank_has_the_threads_of_its_calibration(
    architecture: str, ranks: int, wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 cores that 8 processes were measured on: 2 each, for a part of the plan too; more
    processes than that share them.
    """
    monkeypatch.setattr(table, "cores", lambda: 16)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    recipe = tiny.recipe(8)
    gpu = recipe.hardware.gpu.model_copy(update={"architecture": architecture})
    recipe = recipe.model_copy(update={"hardware": recipe.hardware.model_copy(update={"gpu": gpu})})
    told = table.threads(recipe, Bench("torch", "local", 1, "cpu", 60.0), ranks)
    assert told == ({} if wanted is None else {"OMP_NUM_THREADS": wanted})
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert not table.threads(recipe, Bench("torch", "local", 1, "cpu", 60.0), ranks)
