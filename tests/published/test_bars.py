"""The bars: each names rows that exist, and is met only by them."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from planner.accuracy import measures
from planner.accuracy.maintain import bars
from planner.accuracy.maintain.bars import Bar, Result
from planner.accuracy.validate import runs, select
from tests.accuracy.test_measures import table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    return runs()


@pytest.mark.parametrize("bar", bars.bars(), ids=lambda bar: f"{bar.name}, {bar.figure}")
def test_a_bar_names_rows_that_have_its_figure(bar: Bar, published: pd.DataFrame) -> None:
    rows = select(published, bar.source, bar.where)
    timed = (
        rows[["step_time_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu"]].notna().any(axis=1)
    )
    has = {
        "memory_median_abs_error": rows["peak_mem_gib"].notna(),
        "allocated_median_abs_error": rows["notes"].str.contains("allocated"),
    }
    if bar.figure == "seconds":
        assert len(rows) == bar.rows
    elif bar.figure.startswith("oom_"):
        assert rows["oom"].notna().sum() == bar.rows
    else:
        assert has.get(bar.figure, timed).sum() >= bar.rows > 0


def test_every_figure_is_known() -> None:
    extra = {
        "seconds",
        "max_abs_error",
        "allocated_median_abs_error",
        "oom_brier",
        "oom_right_share",
        "oom_band",
        "oom_fits_found_share",
    }
    assert {bar.figure for bar in bars.bars()} <= set(measures.FIGURES) | extra


@pytest.mark.parametrize(
    ("figure", "value", "rows", "met"),
    [
        ("regret", 0.1, 5, True),
        ("regret", 0.11, 5, False),
        ("regret", 0.05, 4, False),
        ("regret", math.nan, 5, False),
        ("kendall_tau", 0.1, 5, True),
        ("kendall_tau", 0.09, 5, False),
        ("kendall_tau", 0.5, 6, True),
    ],
)
def test_met(figure: str, value: float, rows: int, met: bool) -> None:
    assert Result(Bar("some", figure, 0.1, 5), value, rows, ()).met is met


def test_figures_that_only_bars_ask_for() -> None:
    rows = table(
        [1.1, 0.5, 3.0, 1.0],
        [1.0, 1.0, 2.0, 1.0],
        oom=[1, 0, 0, 1],
        predicted_oom_probability=[0.95, 0.5, 0.01, 0.02],
        predicted_allocated_gib=[11.0, 8.0, 10.0, 1.0],
        measured_allocated_gib=[10.0, 10.0, 10.0, math.nan],
    )
    found = {
        name: bars.figure(name, rows)
        for name in (
            "max_abs_error",
            "allocated_median_abs_error",
            "oom_right_share",
            "oom_band",
            "oom_fits_found_share",
            "oom_brier",
        )
    }
    squares = [0.05**2, 0.5**2, 0.01**2, 0.98**2]
    assert found == pytest.approx(
        {
            "max_abs_error": 0.5,
            "allocated_median_abs_error": 0.1,
            "oom_right_share": 2 / 3,
            "oom_band": 0.25,
            "oom_fits_found_share": 0.5,
            "oom_brier": sum(squares) / 4,
        }
    )


def test_the_command_prints_each_bar_and_the_worst_rows(capsys: pytest.CaptureFixture[str]) -> None:
    code = bars.main(["--source", "korthikanti2022", "--worst", "2"])
    lines = capsys.readouterr().out.splitlines()
    own = [bar for bar in bars.bars() if bar.source == "korthikanti2022"]
    assert [line[:4] in ("met ", "MISS") for line in lines[: len(own)]] == [True] * len(own)
    assert code == (0 if all(line.startswith("met") for line in lines[: len(own)]) else 1)
    assert len(lines) == len(own) + 1 + 2 and "tp 8" in lines[-1]
    assert abs(float(lines[-2].split()[0].rstrip("%"))) >= abs(
        float(lines[-1].split()[0].rstrip("%"))
    )


def test_wrong_words_are_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert bars.main(["--source", "nobody"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
