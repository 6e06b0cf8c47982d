"""The report of `ppplan explain --sweep`: a table over swept words."""

from __future__ import annotations

from planner.answers import Sweep, SweepRow
from planner.report.draw import plotly_charts
from planner.report.html import parts
from planner.report.html.page import Grid, Page, Section
from planner.report.text.sweep import not_fitting
from planner.units import GIB


def page(answer: Sweep) -> Page:
    """The table of the sweep and the curve of its last word."""
    recipe = answer.recipe
    words = list(answer.rows[0].words)
    head = (*words, "step, s", "tokens/s a GPU", "MFU", "bubble", "memory, GiB", "OOM", "why not")
    rows = tuple((*(str(row.words[word]) for word in words), *_cells(row)) for row in answer.rows)
    curve = _curve(answer, words)
    lead = (parts.question(recipe), f"Swept: {', '.join(words)}.")
    table = Section("All points", grid=Grid(head, rows, len(words)))
    return Page(
        f"{recipe.model.name}: a sweep over {', '.join(words)}",
        lead,
        (),
        (*curve, table, parts.assumed(recipe, None)),
    )


def _cells(row: SweepRow) -> tuple[str, ...]:
    estimate = row.estimate
    why = (
        row.breaches[0].message
        if row.breaches
        else ""
        if estimate is not None and estimate.fits
        else not_fitting(estimate)
    )
    if estimate is None:
        return ("", "", "", "", "", "", why)
    return (
        f"{estimate.step_s:.3f}",
        f"{estimate.tokens_per_s_per_gpu:,.0f}",
        f"{estimate.mfu:.1%}",
        f"{estimate.bubble_share:z.1%}",
        f"{estimate.memory_bytes / GIB:.1f}",
        f"{estimate.oom_probability:.0%}",
        why,
    )


def _curve(answer: Sweep, words: list[str]) -> list[Section]:
    """Throughput over the last word, one curve for each value of the others; only where that word
    is a number.
    """
    last, others = words[-1], words[:-1]
    series: dict[str, tuple[list[float], list[float]]] = {}
    for row in answer.rows:
        value = row.words[last]
        if row.estimate is None or not str(value).replace(".", "").isdigit():
            continue
        name = ", ".join(f"{word} {row.words[word]}" for word in others) or "all"
        xs, ys = series.setdefault(name, ([], []))
        xs.append(float(value))
        ys.append(float(row.estimate.tokens_per_s_per_gpu))
    if not series:
        return []
    return [
        Section(
            "Throughput",
            charts=(
                plotly_charts.lines(series, last, "tokens/s a GPU", f"Tokens/s a GPU over {last}."),
            ),
        )
    ]
