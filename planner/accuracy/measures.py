"""How far predictions are from measurements: of a source, of all sources with equal weight, inside
groups that differ only in layout.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
import pandas as pd

OOM, FIT = 0.9, 0.1
"""Above: predicted out of memory; below: predicted to fit; between: the band in which the answer is
`marginal`.
"""
BINS = 10
SETTING = ("source", "model", "hardware", "gpus", "seq", "tokens")
"""Rows alike in these differ only in layout."""
FIGURES = (
    "median_abs_error",
    "p90_abs_error",
    "bias",
    "kendall_tau",
    "regret",
    "regret_top3",
    "inside_range_share",
    "memory_median_abs_error",
)


def overall(rows: pd.DataFrame) -> dict[str, Any]:
    """Each figure averaged over the sources that have it, so that a source of a thousand rows
    counts as one of ten.

    Counts of `oom` are plain sums; its Brier score and bins weigh sources equally.
    """
    parts = [figures(part) for _, part in rows.groupby("source", sort=True)]
    out: dict[str, Any] = {name: _mean([part[name] for part in parts]) for name in FIGURES}
    return out | {"oom": oom(rows)}


def groups(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The figures of each source and machine."""
    out = []
    for (source, hardware), part in rows.fillna({"hardware": ""}).groupby(
        ["source", "hardware"], sort=True
    ):
        counts = {"rows": len(part), "predicted": int(part["predicted_step_s"].notna().sum())}
        out.append(
            {
                "source": source,
                "hardware": hardware or None,
                **counts,
                **figures(part),
                "oom": oom(part),
            }
        )
    return out


def figures(rows: pd.DataFrame) -> dict[str, float]:
    """The figures of rows of one source; NaN where no row has both a prediction and a
    measurement.
    """
    error = rows["error"].dropna().to_numpy(dtype=float)
    ranks = [_ranking(part) for _, part in settings(rows)]
    return {
        "median_abs_error": median(np.abs(error)),
        "p90_abs_error": float(np.quantile(np.abs(error), 0.9)) if len(error) else math.nan,
        "bias": float(error.mean()) if len(error) else math.nan,
        "kendall_tau": _mean([rank["kendall_tau"] for rank in ranks]),
        "regret": _mean([rank["regret"] for rank in ranks]),
        "regret_top3": _mean([rank["regret_top3"] for rank in ranks]),
        "inside_range_share": _inside(rows),
        "memory_median_abs_error": median(
            rows["memory_error"].dropna().abs().to_numpy(dtype=float)
        ),
    }


def median(values: np.ndarray) -> float:
    return float(np.median(values)) if len(values) else math.nan


def settings(rows: pd.DataFrame) -> Iterator[tuple[Hashable, pd.DataFrame]]:
    """Groups of at least two timed and predicted runs that differ only in layout."""
    timed = rows[rows["error"].notna()]
    timed = timed.assign(tokens=timed["seq"] * timed["gbs_sequences"])
    for key, part in timed.groupby(list(SETTING), sort=True, dropna=False):
        if len(part) > 1:
            yield key, part


def _ranking(part: pd.DataFrame) -> dict[str, float]:
    expected, real = (
        part["predicted_step_s"].to_numpy(dtype=float),
        part["measured_step_s"].to_numpy(dtype=float),
    )
    return {
        "kendall_tau": kendall_tau(expected, real),
        "regret": regret(expected, real, 1),
        "regret_top3": regret(expected, real, 3),
    }


def kendall_tau(expected: np.ndarray, real: np.ndarray) -> float:
    """Rank correlation with ties (tau-b).

    NaN where all measurements are equal: there is nothing to rank; 0 where all predictions are:
    they rank nothing.
    """
    expected_sign = np.sign(expected[:, None] - expected[None, :])
    real_sign = np.sign(real[:, None] - real[None, :])
    if not real_sign.any():
        return math.nan
    if not expected_sign.any():
        return 0.0
    return float(
        (expected_sign * real_sign).sum()
        / math.sqrt(np.abs(expected_sign).sum() * np.abs(real_sign).sum())
    )


def regret(expected: np.ndarray, real: np.ndarray, tried: int) -> float:
    """Measured loss of running the best of the `tried` layouts that were predicted fastest, over
    the measured best.
    """
    chosen = np.argsort(expected, kind="stable")[:tried]
    return float(real[chosen].min() / real.min() - 1)


def _inside(rows: pd.DataFrame) -> float:
    timed = rows[rows["error"].notna()]
    if timed.empty:
        return math.nan
    real = timed["measured_step_s"]
    return float(
        ((real >= timed["predicted_step_s_low"]) & (real <= timed["predicted_step_s_high"])).mean()
    )


def oom(rows: pd.DataFrame) -> dict[str, Any]:
    """Predicted probability of running out of memory against what happened, where a row says."""
    known = rows[rows["oom"].notna() & rows["predicted_oom_probability"].notna()]
    chance, real = (
        known["predicted_oom_probability"].to_numpy(dtype=float),
        known["oom"].to_numpy(dtype=float),
    )
    weight = (1.0 / known.groupby("source")["source"].transform("size")).to_numpy(dtype=float)
    return {
        "true_oom": int(((chance > OOM) & (real == 1)).sum()),
        "true_fit": int(((chance < FIT) & (real == 0)).sum()),
        "false_oom": int(((chance > OOM) & (real == 0)).sum()),
        "false_fit": int(((chance < FIT) & (real == 1)).sum()),
        "in_band": int(((chance >= FIT) & (chance <= OOM)).sum()),
        "brier": (
            float(np.average((chance - real) ** 2, weights=weight)) if len(known) else math.nan
        ),
        "bins": _bins(chance, real, weight),
    }


def _bins(chance: np.ndarray, real: np.ndarray, weight: np.ndarray) -> list[dict[str, float]]:
    """Ten equal steps of probability; those without rows are left out."""
    place = np.minimum((chance * BINS).astype(int), BINS - 1)
    out = []
    for step in range(BINS):
        inside = place == step
        if inside.any():
            predicted, happened = (
                float(np.average(x[inside], weights=weight[inside])) for x in (chance, real)
            )
            out.append({"predicted": predicted, "observed": happened, "rows": int(inside.sum())})
    return out


def _mean(values: list[float]) -> float:
    some = [value for value in values if not math.isnan(value)]
    return float(np.mean(some)) if some else math.nan
