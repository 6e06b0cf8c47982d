"""The answer of `validate` as text: predictions against measured runs, a line a source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from planner.accuracy.measures import FIGURES
from planner.accuracy.validate import Validation
from planner.report.text.parts import grid, paragraph

SHARES = (
    "median_abs_error",
    "p90_abs_error",
    "bias",
    "regret",
    "regret_top3",
    "inside_range_share",
    "memory_median_abs_error",
)

COLUMNS = (
    "rows: predicted / read. error, p90, bias: of the step time: median, 90% under, mean with sign."
    " tau: Kendall's, of layouts of one question by predicted and by measured time. regret: loss of"
    " running the predicted best, or the best of the predicted top 3. inside: measured inside the"
    " 80% range. mem: median error of the peak memory."
)
"""What the columns of the table mean."""


def text(answer: Validation, files: Sequence[str] = ()) -> Group:
    """One table, a line a source and machine; then the average of the sources; then what was not
    predicted, and why; files written.
    """
    wrote = [paragraph("Files", ", ".join(files))] if files else []
    if answer.rows.empty:
        return Group(Text("No run matches --source and --where.", "bold red"), *wrote)
    table = grid(
        "source",
        "cluster",
        "rows",
        "error",
        "p90",
        "bias",
        "tau",
        "regret",
        "top 3",
        "inside",
        "mem",
    )
    for group in answer.groups:
        table.add_row(
            str(group["source"]),
            str(group["hardware"] or "?"),
            f"{group['predicted']}/{group['rows']}",
            *_cells(group),
        )
    table.add_section()
    table.add_row(
        "sources, equal weight",
        "",
        f"{answer.predicted}/{len(answer.rows)}",
        *_cells(answer.overall),
        style="bold",
    )
    table.columns[0].no_wrap, table.columns[1].justify = True, "left"
    count = f"{len(answer.rows):,} row{'s' * (len(answer.rows) > 1)} in {answer.seconds:.1f} s"
    return Group(
        table,
        Text(COLUMNS, "dim"),
        *_oom(answer.overall["oom"]),
        *_skipped(answer),
        Text(count),
        *wrote,
    )


def _cells(figures: dict[str, Any]) -> list[str]:
    return [_cell(name, figures[name]) for name in FIGURES]


def _cell(name: str, value: float) -> str:
    if math.isnan(value):
        return "-"
    if name == "bias":
        return f"{value:+.1%}"
    return f"{value:.1%}" if name in SHARES else f"{value:.2f}"


def _oom(oom: dict[str, Any]) -> list[Text | Table]:
    """What memory was said to do, and did."""
    if not oom["bins"]:
        return []
    summary = (
        f"Memory: {oom['true_fit']} seen to fit, {oom['true_oom']} to run out; {oom['false_oom']}"
        f" said to run out and fitted, {oom['false_fit']} the other way; {oom['in_band']} between"
        f" 10% and 90%; Brier score {oom['brier']:.3f}"
    )
    table = grid("OOM predicted", "observed", "rows")
    for step in oom["bins"]:
        table.add_row(f"{step['predicted']:.1%}", f"{step['observed']:.1%}", f"{step['rows']:,}")
    return [Text(summary), table]


def _skipped(answer: Validation) -> list[Text | Table]:
    if not answer.skipped:
        return []
    table = grid("not predicted", "rows")
    table.columns[0].no_wrap = False
    for reason, count in answer.skipped.items():
        table.add_row(reason, f"{count:,}")
    return [table]
