"""The answer of `explain --sweep` as text: a table over the swept words."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from planner.answers import Sweep, SweepRow
from planner.cost.terms import ACCEPTED_OOM_PROBABILITY, Estimate
from planner.report.text.parts import grid, heading, paragraph, tflops
from planner.units import GIB

_SHOWN = {"tp", "pp", "dp", "v", "mbs", "m"}


def text(answer: Sweep) -> Group:
    """The question, a row a point, and what the marks mean."""
    return Group(heading(answer.recipe, batches(answer)), table(answer), *notes(answer))


def table(answer: Sweep) -> Table:
    """One row a point; the best step that fits and breaks no rule is marked."""
    words = [word for word in answer.rows[0].words if word not in _SHOWN]
    points = grid(
        "",
        *words,
        "tp x pp x dp",
        "dp x mbs x m",
        "v",
        "bubble",
        "MFU",
        "TFLOP/s",
        "step s",
        "GiB",
        "OOM",
    )
    best = min((row for row in answer.rows if runs(row)), key=_rate, default=None)
    for row in answer.rows:
        mark, style = ("*", "bold") if row is best else ("!" * (not runs(row)), "")
        points.add_row(mark, *(str(row.words[word]) for word in words), *_cells(row), style=style)
    return points


def batches(answer: Sweep) -> str:
    """The batch, or the range of batches, of all rows."""
    sizes = sorted({int(row.layout.gbs) for row in answer.rows if row.layout})
    return f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"


def runs(row: SweepRow) -> bool:
    """Whether the framework can run it and it fits."""
    return not row.breaches and row.estimate is not None and bool(row.estimate.fits)


def _rate(row: SweepRow) -> float:
    return -float(row.estimate.tokens_per_s_per_gpu) if row.estimate else 0.0


def _cells(row: SweepRow) -> list[str]:
    if row.layout is None or row.estimate is None:
        return [_point(row, " "), *["-"] * 8]
    layout, estimate = row.layout, row.estimate
    return [
        f"{layout.tp} x {layout.pp} x {layout.dp}",
        f"{layout.dp} x {layout.mbs} x {layout.m}",
        str(layout.v),
        f"{estimate.bubble_share:z.1%}",
        f"{estimate.mfu:.1%}",
        tflops(estimate),
        f"{estimate.step_s:.3f}",
        f"{estimate.memory_bytes / GIB:.1f}",
        f"{estimate.oom_probability:.0%}",
    ]


def notes(answer: Sweep) -> list[Text]:
    """What the marks mean, and why rows are marked `!`."""
    marked = [row for row in answer.rows if not runs(row)]
    out = [paragraph("*", "the most tokens per second and GPU of those that run.")]
    if len(marked) == len(answer.rows):
        out = [Text("No row runs.", "bold red")]
    for row in marked:
        reason = row.breaches[0].message if row.breaches else not_fitting(row.estimate)
        out.append(paragraph(f"! {_point(row, '=')}", reason))
    return out


def not_fitting(estimate: Estimate | None) -> str:
    """Why a row does not count as one that fits."""
    if estimate is None or estimate.host_bytes > estimate.host_limit_bytes:
        return "does not fit in memory"
    return (
        f"runs out of memory with probability {estimate.oom_probability:.0%}; below"
        f" {ACCEPTED_OOM_PROBABILITY:.0%} counts as fitting"
    )


def _point(row: SweepRow, equals: str) -> str:
    return " ".join(f"{word}{equals}{value}" for word, value in row.words.items())
