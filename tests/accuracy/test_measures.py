"""Figures against values by hand, and against scipy and pandas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.accuracy import measures

TIMES = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=2, max_size=12)


def table(expected: list[float], real: list[float], **columns: object) -> pd.DataFrame:
    """Predicted and measured rows of one setting."""
    rows = pd.DataFrame({"predicted_step_s": expected, "measured_step_s": real}, dtype=float)
    fixed = {
        "source": "s",
        "model": "m",
        "hardware": "h",
        "gpus": 8.0,
        "seq": 1024.0,
        "gbs_sequences": 4.0,
        "memory_error": np.nan,
        "oom": np.nan,
        "predicted_oom_probability": 0.0,
    }
    rows = rows.assign(**fixed | columns)
    low, high = rows["predicted_step_s"] * 0.9, rows["predicted_step_s"] * 1.1
    return rows.assign(
        error=rows["predicted_step_s"] / rows["measured_step_s"] - 1,
        predicted_step_s_low=low,
        predicted_step_s_high=high,
    )


def test_figures_by_hand() -> None:
    found = measures.figures(
        table([1.1, 1.8, 4.0, 9.0], [1.0, 2.0, 4.0, 6.0], memory_error=[0.1, -0.3, 0.2, np.nan])
    )
    assert found["median_abs_error"] == pytest.approx(0.1)  # of 0.1, 0.1, 0, 0.5
    assert found["p90_abs_error"] == pytest.approx(
        0.1 + 0.7 * 0.4
    )  # between the third and the fourth
    assert found["bias"] == pytest.approx(0.125)
    assert found["kendall_tau"] == 1.0
    assert (
        found["inside_range_share"] == 0.5
    )  # 1.0 in 0.99..1.21, 2.0 not in 1.62..1.98, 4.0 in, 6.0 not in 8.1..9.9
    assert found["memory_median_abs_error"] == pytest.approx(0.2)


def test_regret_is_the_loss_of_running_the_predicted_best() -> None:
    expected, real = np.array([1.0, 2.0, 3.0, 4.0]), np.array([15.0, 12.0, 11.0, 10.0])
    assert measures.regret(expected, real, 1) == pytest.approx(0.5)
    assert measures.regret(expected, real, 3) == pytest.approx(0.1)
    assert measures.regret(real, real, 1) == 0


@pytest.fixture(scope="module")
def kendalltau() -> Any:
    from scipy.stats import kendalltau  # heavy, and only here

    return kendalltau


@given(pairs=TIMES)
def test_tau_is_that_of_scipy(kendalltau: Any, pairs: list[tuple[int, int]]) -> None:
    expected, real = (np.array(x, dtype=float) for x in zip(*pairs, strict=True))
    ours = measures.kendall_tau(expected, real)
    theirs = kendalltau(expected, real).statistic
    if len(set(real)) == 1:
        assert math.isnan(ours)
    elif len(set(expected)) == 1:
        assert ours == 0
    else:
        assert ours == pytest.approx(theirs, abs=1e-12)


@given(st.lists(st.floats(-0.9, 5), min_size=1, max_size=30))
def test_quantiles_are_those_of_pandas(errors: list[float]) -> None:
    found = measures.figures(table([1 + x for x in errors], [1.0] * len(errors)))
    size = pd.Series([(1 + x) / 1.0 - 1 for x in errors]).abs()
    assert found["median_abs_error"] == pytest.approx(size.quantile(0.5), abs=1e-12)
    assert found["p90_abs_error"] == pytest.approx(size.quantile(0.9), abs=1e-12)


def test_ranks_count_inside_settings_only() -> None:
    one, other = table([1.0, 2.0], [1.0, 2.0]), table([1.0, 2.0], [20.0, 10.0], model="other")
    found = measures.figures(pd.concat([one, other], ignore_index=True))
    assert found["kendall_tau"] == 0  # +1 and -1
    assert found["regret"] == pytest.approx(0.5)  # 0 and 10 / 10
    tokens_differ = table([1.0, 2.0], [2.0, 1.0], gbs_sequences=[4.0, 8.0])
    assert math.isnan(measures.figures(tokens_differ)["kendall_tau"])


def test_sources_weigh_the_same_whatever_their_rows() -> None:
    few = table([1.5, 1.5], [1.0, 1.0], source="few")
    many = table([1.1] * 50, [1.0] * 50, source="many")
    assert measures.overall(pd.concat([few, many], ignore_index=True))[
        "median_abs_error"
    ] == pytest.approx(0.3)


def test_sources_without_a_figure_do_not_count() -> None:
    timed = table([1.5], [1.0], source="timed")
    untimed = table([1.5], [np.nan], source="untimed", memory_error=[0.5])
    found = measures.overall(pd.concat([timed, untimed], ignore_index=True))
    assert (found["median_abs_error"], found["memory_median_abs_error"]) == (0.5, 0.5)
    assert math.isnan(found["kendall_tau"])


def test_oom_by_hand() -> None:
    chance, real = (
        [0.95, 0.99, 0.05, 0.02, 0.5, 0.9, 0.1, 0.93, 0.01],
        [
            1,
            0,
            0,
            1,
            1,
            1,
            0,
            np.nan,
            np.nan,
        ],
    )
    found = measures.oom(table([1.0] * 9, [1.0] * 9, oom=real, predicted_oom_probability=chance))
    counts = {
        name: found[name] for name in ("true_oom", "false_oom", "true_fit", "false_fit", "in_band")
    }
    assert counts == {"true_oom": 1, "false_oom": 1, "true_fit": 1, "false_fit": 1, "in_band": 3}
    squares = [0.05**2, 0.99**2, 0.05**2, 0.98**2, 0.5**2, 0.1**2, 0.1**2]
    assert found["brier"] == pytest.approx(sum(squares) / 7)
    assert [
        (step["rows"], round(step["predicted"], 4), round(step["observed"], 4))
        for step in found["bins"]
    ] == [
        (2, 0.035, 0.5),
        (1, 0.1, 0.0),
        (1, 0.5, 1.0),
        (3, round((0.95 + 0.99 + 0.9) / 3, 4), round(2 / 3, 4)),
    ]


def test_brier_weighs_sources_equally() -> None:
    right = table([1.0] * 9, [1.0] * 9, source="right", oom=0, predicted_oom_probability=0.0)
    wrong = table([1.0], [1.0], source="wrong", oom=1, predicted_oom_probability=0.0)
    found = measures.oom(pd.concat([right, wrong], ignore_index=True))
    assert found["brier"] == pytest.approx(0.5)
    assert found["bins"] == [{"predicted": 0.0, "observed": pytest.approx(0.5), "rows": 10}]


def test_nothing_is_no_figure() -> None:
    found = measures.overall(table([], []))
    assert all(math.isnan(found[name]) for name in measures.FIGURES)
    assert found["oom"]["bins"] == []
