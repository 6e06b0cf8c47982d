"""What `simulate` prints and writes, whichever of its answers it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from planner.action import to_text
from planner.errors import InputError
from planner.pipeline.inverse import Fewest
from planner.pipeline.timelines import Comparison, Simulated
from planner.pipeline.words import Answer, ServedAnswer
from planner.report import save
from planner.report.draw import trace
from planner.report.draw.gantt_chart import Chart
from planner.report.draw.png import png
from planner.report.draw.svg import html, svg
from planner.report.json import simulate as simulate_json
from planner.report.text import serve, simulate
from planner.report.text.parts import paragraph

PICTURES = (".html", ".svg", ".png")
Drawn = tuple[Chart, Sequence[str], Sequence[Sequence[str]]]
"""A chart, and the table that a page shows under it: its head and rows."""


def check(
    found_all: bool, gantt: str | None, trace_file: str | None, csv: str | None, order: bool
) -> None:
    """Before the work: a picture's kind by its suffix; pictures, traces and orders are of one
    schedule. Raises InputError.
    """
    save.check_all([path for path in (gantt, trace_file, csv) if path is not None])
    if gantt is not None and Path(gantt).suffix.lower() not in PICTURES:
        raise InputError(
            f"--gantt must be a file that ends in {', '.join(PICTURES)}, but got {gantt}"
        )
    if found_all:
        for name, value in (("gantt", gantt), ("trace", trace_file), ("order", order or None)):
            if value is not None:
                raise InputError(
                    f"--{name} is of one schedule, but the schedule is all; name one (--csv writes"
                    " the table)"
                )


def contents(
    found: Answer, gantt: str | None, trace_file: str | None, csv: str | None
) -> dict[str, str | bytes]:
    """Path -> content of every file asked for; all made before any is written."""
    made: dict[str, str | bytes] = {}
    if isinstance(found, Fewest) and found.simulated is None:
        return made
    if gantt is not None:
        made[gantt] = _picture(Path(gantt).suffix.lower(), *_drawn(found))
    if trace_file is not None:
        made[trace_file] = _one_pool(found, trace.trace, trace.passage_trace)
    if csv is not None:
        made[csv] = (
            compared_csv(found)
            if isinstance(found, Comparison)
            else _one_pool(found, trace.actions_csv, trace.batches_csv)
        )
    return made


def document(found: Answer, order: bool) -> dict[str, Any]:
    """The JSON of the answer; with `order` the text of the order too."""
    if isinstance(found, Comparison):
        return simulate_json.compared(found)
    if isinstance(found, ServedAnswer):
        others = [{"name": name, **simulate_json.served(one)} for name, one in found.others]
        return simulate_json.served(found.served) | {
            "others": others,
            "assumed": list(found.assumed),
        }
    one = found.simulated if isinstance(found, Fewest) else found
    text = {"order": to_text(one.order).splitlines()} if order and one is not None else {}
    return (
        simulate_json.fewest(found) if isinstance(found, Fewest) else simulate_json.simulated(found)
    ) | text


def order_text(found: Answer) -> str:
    """A rank's actions a line, in torch's notation."""
    one = found.simulated if isinstance(found, Fewest) else found
    if not isinstance(one, Simulated):
        raise InputError(
            "--order is of one training schedule, but none was simulated; name a --schedule"
        )
    return to_text(one.order)


def text(found: Answer, width: int, files: Sequence[str]) -> Group:
    """The answer for a person, and what was written."""
    if isinstance(found, Comparison):
        view = simulate.comparison(found)
    elif isinstance(found, Fewest):
        view = simulate.fewest(found, width)
    elif isinstance(found, Simulated):
        view = simulate.schedule(found, width)
    else:
        view = serve.report(found.served, found.others, found.assumed, width)
    return (
        Group(view, paragraph("Files", ", ".join(files)))
        if files and not no(found)
        else Group(view, Text(end=""))
    )


def no(found: Answer) -> bool:
    """Whether the answer is no."""
    nothing = isinstance(found, Comparison) and not found.schedules
    return nothing or (isinstance(found, Fewest) and found.m is None)


def compared_csv(found: Comparison) -> str:
    """A schedule a row."""
    lines = [
        "schedule,pp,m,v,makespan,span,bubble_share,span_bubble_share,peak_in_flight_stages,messages"
    ]
    for done in found.schedules:
        line = done.timeline
        figures = (
            line.makespan,
            line.span,
            line.bubble_share,
            line.span_bubble_share,
            float(line.peak_in_flight.max()) / done.v,
        )
        numbers = ",".join(repr(float(figure)) for figure in figures)
        lines.append(f"{done.schedule},{done.pp},{done.m},{done.v},{numbers},{line.messages}")
    return "\n".join(lines) + "\n"


def _picture(
    suffix: str, chart: Chart, head: Sequence[str], rows: Sequence[Sequence[str]]
) -> str | bytes:
    if suffix == ".png":
        return png(chart)
    return svg(chart) if suffix == ".svg" else html(chart, head, rows)


def _drawn(found: Answer) -> Drawn:
    if isinstance(found, ServedAnswer):
        pool = _pool(found)
        return serve.chart(pool), serve.COLUMNS, [serve.row("", pool)]
    one = found.simulated if isinstance(found, Fewest) else found
    assert isinstance(one, Simulated)
    return simulate.chart(one), simulate.RANK_COLUMNS, simulate.rank_rows(one)


def _one_pool(
    found: Answer,
    of_order: Callable[[Simulated], str],
    of_passage: Callable[[Any, tuple[int, ...]], str],
) -> str:
    if isinstance(found, ServedAnswer):
        pool = _pool(found)
        return of_passage(pool.passed, pool.returns)
    one = found.simulated if isinstance(found, Fewest) else found
    assert isinstance(one, Simulated)
    return of_order(one)


def _pool(found: ServedAnswer) -> Any:
    if found.served.passed is None:
        raise InputError(
            "a picture, trace or CSV is of one pipeline, but the scenario has two pools; use mode:"
            " prefill or mode: decode"
        )
    return found.served
