"""What `ppplan compare` says: a row a question, then what changes in the best layout and why."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.text import Text

from planner.advice.comparison import Comparison, Row
from planner.reasons import zero
from planner.report.text.parts import NO_PROGRESS, bullets, grid, paragraph
from planner.units import GIB


def text(answer: Comparison) -> Group:
    """The table on 100 columns, changes against the first row, what was assumed."""
    priced = any(row.spent and row.spent.usd is not None for row in answer.rows)
    scaled = any(row.scaling is not None for row in answer.rows)
    failing = any(row.goodput for row in answer.rows)
    table = grid(
        "",
        "tp x pp x dp",
        "v",
        "mbs",
        "zero",
        "step s",
        "tok/s/GPU",
        "MFU",
        "GiB",
        *["scaling"] * scaled,
        *["goodput"] * failing,
        "days/T",
        *["$/T"] * priced,
        "MWh/T",
    )
    table.columns[0].no_wrap = False
    for row in answer.rows:
        table.add_row(*cells(row, priced, scaled, failing))
    said: list[Any] = []
    for row in answer.rows:
        limits = ": " + "; ".join(
            one for one in (row.limits and f"limited by {row.limits}", row.fault) if one
        )
        said += [
            Text.assemble(("\n" + row.name, "bold"), limits),
            *([bullets(row.changes)] if row.changes else []),
        ]
    means = (
        "T: a trillion tokens, failures counted where they are stated. scaling: tokens/s a GPU over"
        " those of the fewest."
    )
    assumed = (
        [Text(), paragraph("Assumed", "; ".join(answer.assumed) + ".")] if answer.assumed else []
    )
    return Group(table, Text(means, "dim"), *said, *assumed)


def cells(row: Row, priced: bool, scaled: bool, failing: bool) -> list[str]:
    """One row of the table; dashes where there is no plan."""
    one, said, cost = row.layout, row.estimate, row.spent
    if one is None or said is None or cost is None:
        return [row.name, "no plan", *["-"] * (9 + priced + scaled + failing)]
    endless = row.goodput is not None and bool(row.goodput.goodput_share < NO_PROGRESS)
    degrees = (
        f"{one.tp} x {one.pp} x {one.dp}"
        + (f" cp{one.cp}" if one.cp > 1 else "")
        + (f" ep{one.ep}" if one.ep > 1 else "")
    )
    return [
        row.name,
        degrees,
        str(one.v),
        str(one.mbs),
        zero(one),
        f"{said.step_s:.2f}",
        f"{said.tokens_per_s_per_gpu:,.0f}",
        f"{said.mfu:.1%}",
        f"{said.memory_bytes / GIB:.1f}",
        *[_share(row.scaling)] * scaled,
        *[_share(float(row.goodput.goodput_share) if row.goodput else None)] * failing,
        "never" if endless else f"{cost.days:,.1f}",
        *["-" if cost.usd is None or endless else f"{cost.usd:,.0f}"] * priced,
        "-" if endless else f"{cost.energy_mwh:,.0f}",
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
