"""The report of `ppplan validate`: predicted against measured."""

from __future__ import annotations

import math

from planner.accuracy.validate import Validation
from planner.report.draw import plotly_charts
from planner.report.html.page import Grid, Page, Section
from planner.report.text.validate import COLUMNS

MAX_POINTS = 400
"""Points drawn of a source."""
_SHARES = (
    ("median_abs_error", "median error"),
    ("p90_abs_error", "90% under"),
    ("bias", "bias"),
    ("regret", "regret"),
    ("inside_range_share", "in range"),
    ("memory_median_abs_error", "memory error"),
)


def page(answer: Validation) -> Page:
    """The scatter, a row a source and cluster, what was skipped and why."""
    head = ("source", "cluster", "predicted", *(name for _, name in _SHARES), "Kendall tau")
    rows = tuple(
        (
            str(group["source"]),
            str(group["hardware"] or "?"),
            f"{group['predicted']:,} of {group['rows']:,}",
            *_cells(group),
        )
        for group in answer.groups
    )
    total = (
        "all, sources weighted equally",
        "",
        f"{answer.predicted:,} of {len(answer.rows):,}",
        *_cells(answer.overall),
    )
    skipped = Grid(
        ("why", "rows"), tuple((reason, f"{count:,}") for reason, count in answer.skipped.items())
    )
    sections = (
        Section(
            "Predicted against measured",
            charts=(plotly_charts.predicted_against_measured(_points(answer)),),
        ),
        Section("By source", (COLUMNS,), Grid(head, (*rows, total), 2, (len(rows),))),
        *([Section("Not predicted", grid=skipped)] if skipped.rows else []),
    )
    error = answer.overall["median_abs_error"]
    figures = (
        (_share(error), "median error of the step time"),
        (f"{answer.predicted:,}", f"of {len(answer.rows):,} runs predicted"),
        (_share(answer.overall["inside_range_share"]), "of runs inside the 80% range"),
    )
    return Page("Predictions against measured runs", (), figures, sections)


def _points(answer: Validation) -> dict[str, tuple[list[float], list[float], list[str]]]:
    """Measured, predicted and words of each source, thinned evenly."""
    rows = answer.rows.dropna(subset=["predicted_step_s", "measured_step_s"])
    out = {}
    for source, group in rows.groupby("source", sort=True):
        some = group.iloc[:: max(len(group) // MAX_POINTS, 1)]
        columns = (some[name] for name in ("model", "gpus", "hardware"))
        says = [
            f"{model}, {gpus:g} x {hardware}"
            for model, gpus, hardware in zip(*columns, strict=True)
        ]
        out[str(source)] = (
            some["measured_step_s"].tolist(),
            some["predicted_step_s"].tolist(),
            says,
        )
    return out


def _cells(figures: dict[str, float]) -> tuple[str, ...]:
    return (
        *(_share(figures[key]) for key, _ in _SHARES),
        "" if math.isnan(figures["kendall_tau"]) else f"{figures['kendall_tau']:.2f}",
    )


def _share(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1%}"
