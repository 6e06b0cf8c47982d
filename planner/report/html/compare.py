"""The report of `ppplan compare`."""

from __future__ import annotations

from planner.advice.comparison import Comparison, Row
from planner.report.draw import plotly_charts
from planner.report.draw.chart import Chart
from planner.report.html import parts
from planner.report.html.page import Grid, More, Page, Section
from planner.report.text import compare
from planner.report.text.parts import KIND, kind_rows


def page(answer: Comparison) -> Page:
    """The table, time and throughput as charts, scaling curves where sizes differ, what changes and
    why.
    """
    there = [row for row in answer.rows if row.estimate is not None]
    models = dict.fromkeys(row.recipe.model.name for row in there if row.recipe)
    title = f"{', '.join(models) or 'One question'} compared over {', '.join(answer.over)}"
    named = [
        (f"{row.name}<br>{parts.short(row.layout)}", row.estimate)
        for row in there
        if row.layout and row.estimate
    ]
    graphs = (
        (plotly_charts.time_by_term(named), plotly_charts.memory_by_term(named)) if named else ()
    )
    changes = tuple(
        (
            row.name,
            "\n".join([*row.changes, *([row.fault] if row.fault else [])])
            or "the first row: others are set against it",
        )
        for row in answer.rows
    )
    sections = (
        Section(
            "Side by side",
            ("T: a trillion tokens; failures are counted where they are stated.",),
            _table(answer),
        ),
        *([Section("Throughput", charts=(_throughput(there), *_scaling(there)))] if there else []),
        *([Section("Time and memory", charts=graphs)] if graphs else []),
        Section("Layers by kind", more=_kinds(there)),
        Section(
            "What changes, and why", more=tuple(More(name, (("", text),)) for name, text in changes)
        ),
        Section("Assumed", tuple(f"{text}." for text in answer.assumed)),
        parts.formulas(),
    )
    return Page(title, (), (), sections)


def _table(answer: Comparison) -> Grid:
    head = (
        "",
        "tp x pp x dp",
        "v",
        "mbs",
        "zero",
        "step, s",
        "tokens/s a GPU",
        "MFU",
        "memory, GiB",
        "scaling",
        "goodput",
        "days/T",
        "USD/T",
        "MWh/T",
        "limited by",
    )
    rows = tuple(
        (*compare.cells(row, True, True, True), row.limits or row.fault) for row in answer.rows
    )
    return Grid(head, rows)


def _kinds(rows: list[Row]) -> tuple[More, ...]:
    """One layer of each kind, where there are several, of each row."""
    tables = [
        (row.name, tuple(kind_rows(row.recipe, row.layout)))
        for row in rows
        if row.recipe and row.layout
    ]
    return tuple(More(name, grid=Grid(KIND, table)) for name, table in tables if len(table) > 1)


def _throughput(rows: list[Row]) -> Chart:
    rates = [float(row.estimate.tokens_per_s_per_gpu) for row in rows if row.estimate]
    return plotly_charts.bars(
        [row.name for row in rows], rates, "tokens/s a GPU", "Tokens/s a GPU of the best plan."
    )


def _scaling(rows: list[Row]) -> list[Chart]:
    """Tokens/s of all GPUs over their number, one curve a cluster; nothing where sizes do not
    differ.
    """
    series: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        if row.scaling is None or row.recipe is None or row.estimate is None:
            continue
        name = (
            f"{row.recipe.hardware.name}, {row.recipe.seq_length:,} tokens, {row.recipe.precision}"
        )
        xs, ys = series.setdefault(name, ([], []))
        xs.append(float(row.recipe.gpus))
        ys.append(float(row.estimate.tokens_per_s_per_gpu))
    says = "Tokens/s a GPU over the number of GPUs: a level line is perfect scaling."
    return (
        [plotly_charts.lines(series, "GPUs", "tokens/s a GPU", says, log_x=True)] if series else []
    )
