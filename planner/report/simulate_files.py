"""The files that `simulate` writes: a picture, a trace, a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from planner.errors import InputError
from planner.files import check_files
from planner.pipeline.answer import Answer, ServedAnswer
from planner.pipeline.fewest_microbatches import FewestMicrobatches
from planner.pipeline.timelines import SimulatedSchedule
from planner.report.csv import simulate as csv
from planner.report.draw import trace
from planner.report.draw.png import png
from planner.report.draw.svg import html, svg
from planner.report.text import serve, simulate

PICTURES = (".html", ".svg", ".png")


def check(
    every_schedule: bool, gantt: str | None, trace_file: str | None, csv: str | None, order: bool
) -> None:
    """Before the work: a picture's kind by its suffix; pictures, traces and orders are of one
    schedule. Raises InputError.
    """
    check_files([path for path in (gantt, trace_file, csv) if path is not None])
    if gantt is not None and Path(gantt).suffix.lower() not in PICTURES:
        raise InputError(
            f"--gantt must be a file that ends in {', '.join(PICTURES)}, but got {gantt}"
        )
    if every_schedule:
        for name, value in (("gantt", gantt), ("trace", trace_file), ("order", order or None)):
            if value is not None:
                raise InputError(
                    f"--{name} is of one schedule, but the schedule is all; name one (--csv writes"
                    " the table)"
                )


def contents(
    answer: Answer, gantt: str | None, trace_file: str | None, csv_file: str | None
) -> dict[str, str | bytes]:
    """Path -> content of every file that is wanted; all made before any is written. Empty where no
    number of micro-batches is enough.
    """
    made: dict[str, str | bytes] = {}
    if isinstance(answer, FewestMicrobatches) and answer.simulated is None:
        return made
    if gantt is not None:
        made[gantt] = picture(answer, Path(gantt).suffix.lower())
    if trace_file is not None:
        made[trace_file] = (
            trace.passage_trace(answer.pool)
            if isinstance(answer, ServedAnswer)
            else trace.trace(_schedule(answer))
        )
    if csv_file is not None:
        made[csv_file] = csv.table(answer)
    return made


def picture(answer: Answer, suffix: str) -> str | bytes:
    """The Gantt chart as .svg, .png, or .html with the table below it."""
    head: Sequence[str]
    if isinstance(answer, ServedAnswer):
        chart = serve.chart(answer.pool)
        head, rows = serve.COLUMNS, [serve.row("", answer.pool)]
    else:
        simulated = _schedule(answer)
        chart = simulate.chart(simulated)
        head, rows = simulate.RANK_COLUMNS, simulate.rank_rows(simulated)
    if suffix == ".png":
        return png(chart)
    return svg(chart) if suffix == ".svg" else html(chart, head, rows)


def _schedule(answer: Answer) -> SimulatedSchedule:
    """The one schedule of an answer."""
    simulated = answer.simulated if isinstance(answer, FewestMicrobatches) else answer
    assert isinstance(simulated, SimulatedSchedule)
    return simulated
