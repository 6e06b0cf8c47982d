"""What `ppplan compare` says: a row a question, then what changes in the best layout and why."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.text import Text

from planner.advice.comparison import Comparison, Row
from planner.reasons import zero
from planner.report.text.parts import NO_PROGRESS, bullets, by_kind, grid, product, sentences
from planner.switch_gains import guesses_on
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
    changes: list[Any] = []
    for row in answer.rows:
        reasons = [f"limited by {row.limits}"] * bool(row.limits) + [row.fault] * bool(row.fault)
        if row.held:
            reasons.append(f"numbers changed by {', '.join(map(str, row.held))}")
        if row.recipe is not None and row.layout is not None:
            guessed = guesses_on(row.recipe, row.layout)
            reasons += [f"counts on a guess: {', '.join(guessed)}"] * bool(guessed)
        changes.append(Text.assemble(("\n" + row.name, "bold"), ": ", "; ".join(reasons)))
        if row.changes:
            changes.append(bullets(row.changes))
    for row in answer.rows:
        if row.recipe is not None and row.layout is not None:
            changes += by_kind(row.recipe, row.layout, f"{row.name}: ")
    means = (
        "T: a trillion tokens, failures counted where they are stated. scaling: tokens/s a GPU over"
        " those of the fewest."
    )
    assumed = sentences("\nAssumed", answer.assumed)
    return Group(table, Text(means, "dim"), *changes, *assumed)


def cells(row: Row, priced: bool, scaled: bool, failing: bool) -> list[str]:
    """One row of the table; dashes where there is no plan."""
    layout, estimate, cost = row.layout, row.estimate, row.spent
    if layout is None or estimate is None or cost is None:
        return [row.name, "no plan", *["-"] * (9 + priced + scaled + failing)]
    progress = None if row.goodput is None else float(row.goodput.goodput_share)
    endless = progress is not None and progress < NO_PROGRESS
    degrees = product(layout, ("tp", "pp", "dp"), " x ")
    degrees += f" cp{layout.cp}" * (layout.cp > 1) + f" ep{layout.ep}" * (layout.ep > 1)
    return [
        row.name,
        degrees,
        str(layout.v),
        str(layout.mbs),
        zero(layout),
        f"{estimate.step_s:.2f}",
        f"{estimate.tokens_per_s_per_gpu:,.0f}",
        f"{estimate.mfu:.1%}",
        f"{estimate.memory_bytes / GIB:.1f}",
        *[_share(row.scaling)] * scaled,
        *[_share(progress)] * failing,
        "never" if endless else f"{cost.days:,.1f}",
        *["-" if cost.usd is None or endless else f"{cost.usd:,.0f}"] * priced,
        "-" if endless else f"{cost.energy_mwh:,.0f}",
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
