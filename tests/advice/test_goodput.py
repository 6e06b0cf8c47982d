"""Goodput against failures drawn one by one, against Young and Daly, and against what Llama 3 405B
reported.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from planner import api
from planner.advice.goodput import GPU_MTBF_HOURS
from planner.cli import code
from planner.cost.goodput import goodput, goodput_share, interval_s
from planner.errors import InputError

HOUR = 3600.0


def drawn_share(
    mtbf: float, checkpoint: float, restart: float, interval: float, blocks: int, seed: int
) -> float:
    """A run failure by failure: training counts once its checkpoint is written; a failure costs it
    and a restart, which may fail.
    """
    rng = np.random.default_rng(seed)
    clock, done, failure = 0.0, 0, rng.exponential(mtbf)
    while done < blocks:
        if clock + interval + checkpoint <= failure:
            clock, done = clock + interval + checkpoint, done + 1
            continue
        clock = failure
        failure = clock + rng.exponential(mtbf)
        while clock + restart > failure:
            clock = failure
            failure = clock + rng.exponential(mtbf)
        clock += restart
    return blocks * interval / clock


@pytest.mark.parametrize(
    "mtbf, checkpoint, restart, interval",
    [
        (11_136.0, 30.0, 600.0, 800.0),
        (3600.0, 60.0, 300.0, 600.0),
        (900.0, 100.0, 300.0, 400.0),
        (1e6, 10.0, 600.0, 5000.0),
    ],
)
def test_share_is_what_failures_drawn_one_by_one_leave(
    mtbf: float, checkpoint: float, restart: float, interval: float
) -> None:
    drawn = drawn_share(mtbf, checkpoint, restart, interval, 60_000, seed=7)
    assert goodput_share(mtbf, checkpoint, restart, interval) == pytest.approx(drawn, rel=0.01)


@pytest.mark.parametrize(
    "mtbf, checkpoint", [(1e4, 1.0), (1e4, 100.0), (1e3, 300.0), (100.0, 500.0), (1e9, 1e-3)]
)
def test_interval_is_the_best_of_a_grid(mtbf: float, checkpoint: float) -> None:
    best = float(interval_s(mtbf, checkpoint))
    grid = best * np.linspace(0.5, 1.5, 1001)
    shares = goodput_share(mtbf, checkpoint, 60.0, grid)
    assert grid[int(np.argmax(shares))] == pytest.approx(best, rel=2e-3)


def test_interval_nears_youngs_and_dalys_own_series() -> None:
    """Young: sqrt(2 C M). Daly, higher order: sqrt(2 C M) (1 + x/3 + x^2/9) - C with x = sqrt(C /
    2M).
    """
    mtbf, checkpoint = 86_400.0, 60.0
    x = math.sqrt(checkpoint / (2 * mtbf))
    daly = math.sqrt(2 * checkpoint * mtbf) * (1 + x / 3 + x * x / 9) - checkpoint
    assert interval_s(mtbf, checkpoint) == pytest.approx(daly, rel=1e-5)
    assert interval_s(1e10, 1.0) == pytest.approx(math.sqrt(2e10), rel=1e-4)


def test_shares_add_up_and_steps_are_whole() -> None:
    found = goodput(1024, 50_000 * HOUR, 45.0, 300.0, step_s=7.0, tokens=4_194_304)
    assert found.mtbf_s == pytest.approx(50_000 * HOUR / 1024)
    assert found.interval_s == 7.0 * found.interval_steps and found.interval_steps == int(
        found.interval_steps
    )
    assert found.goodput_share + found.checkpoint_share + found.lost_share == pytest.approx(1)
    assert found.checkpoint_share / found.goodput_share == pytest.approx(45.0 / found.interval_s)
    assert found.days_per_trillion_tokens == pytest.approx(
        1e12 / (4_194_304 / 7.0 * found.goodput_share) / 86_400
    )


def test_columns_are_rows() -> None:
    steps = np.array([0.5, 3.0, 90.0, 4000.0])
    many = goodput(512, 1e7, 20.0, 600.0, steps, 2**22)
    for row, step in enumerate(steps):
        one = goodput(512, 1e7, 20.0, 600.0, float(step), 2**22)
        assert many.goodput_share[row] == pytest.approx(float(one.goodput_share), rel=1e-12)
        assert many.interval_steps[row] == one.interval_steps


def test_a_run_that_fails_all_the_time_keeps_nothing() -> None:
    found = goodput(2**20, 3600.0, 3600.0, 600.0, step_s=10.0, tokens=2**22)
    assert found.goodput_share == 0 and math.isinf(found.days_per_trillion_tokens)


def test_llama_3_405b_trained_more_than_nine_tenths_of_the_time() -> None:
    """arXiv 2407.21783 sec. 3.3.4: 419 unexpected interruptions of 16,384 GPUs in 54 days, above
    90% effective training time.
    """
    assert pytest.approx(54 * 24 * 16_384 / 419) == GPU_MTBF_HOURS
    asked = api.question(
        model="llama3-405b",
        gpus=16_384,
        cluster="h100-sxm",
        tp=8,
        pp=16,
        global_batch_size=2048,
        restart_s=600,
    )
    said = api.explain(asked)
    assert said.goodput is not None and 0.90 < said.goodput.goodput_share < 0.97
    assert len(said.goodput.assumed) == 2


def test_a_checkpoint_holds_what_is_trained() -> None:
    """70.55 G parameters of 14 bytes over 64 of 16,384 parts of 2 TB/s: 126 s; adapters of rank 16
    are far below a percent.
    """
    words: dict[str, Any] = {
        "model": "llama3-70b",
        "gpus": 64,
        "cluster": "h100-sxm",
        "tp": 8,
        "pp": 2,
        "mtbf_hours": 50_000,
    }
    whole, adapters = (
        api.explain(api.question(**words, **more)).goodput for more in ({}, {"lora_rank": 16})
    )
    assert whole is not None and whole.checkpoint_s == pytest.approx(
        70.55e9 * 14 / (64 * 2e12 / 16_384), rel=1e-3
    )
    assert adapters is not None and adapters.checkpoint_s < whole.checkpoint_s / 100


def test_commands_say_it_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "llama3-8b", "--cluster", "h100-sxm", "--gpus", "8", "--tp", "8"]
    assert code(["explain", *words, "--no-formulas"]) == 0
    assert "Goodput" not in capsys.readouterr().out
    assert (
        code(
            [
                "recommend",
                *words,
                "--mtbf-hours",
                "8000",
                "--checkpoint-s",
                "60",
                "--restart-s",
                "0",
                "--json",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)["goodput"]
    assert found["mtbf_s"] == 1000 * HOUR and found["assumed"] == []
    assert found["interval_s"] == pytest.approx(math.sqrt(2 * 60 * 1000 * HOUR), rel=0.01)


@pytest.mark.parametrize(
    "words", [{"mtbf_hours": 0}, {"checkpoint_s": -1}, {"restart_s": float("nan")}]
)
def test_wrong_figures_are_refused(words: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(words))):
        api.question(model="llama3-8b", gpus=8, **words)
