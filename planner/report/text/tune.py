"""The answer of `tune` as text: the trials, the best, how far predictions were off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from planner.layout import SCHEDULES, Layout
from planner.report.text.parts import GPUS, grid, heading, paragraph
from planner.specs import switches
from planner.tune.study.trials import Row, combined
from planner.tune.tune import Tuned
from planner.units import GIB, MIB

REASON = 160
"""Characters of a failure's reason that are printed; the CSV has all."""


def text(answer: Tuned) -> Group:
    """The trials, the best, how far predictions were, what was written."""
    parts: list[Any] = [
        heading(answer.recipe),
        *((table(answer.rows, answer.best),) if answer.rows else ()),
    ]
    parts += [
        paragraph(f"#{one.number} {one.state}", one.reason[:REASON])
        for one in answer.rows
        if one.reason and one.state != "pruned"
    ]
    parts += [paragraph("Switches", line) for line in switched(answer.rows)]
    parts.append(_best(answer))
    proxy = next((one.proxy for one in answer.rows if one.proxy), "")
    parts += [paragraph("Measured", proxy + ".")] if proxy else []
    parts += [layers(answer.best)] if answer.best is not None and answer.best.layers else []
    parts += [paragraph("Predicted", _errors(answer))] if answer.error is not None else []
    parts += [paragraph("Profile", f"{answer.overlay_reason}.")] if answer.overlay_reason else []
    never = (
        f"; {answer.certain_oom:,} more would run out of memory for certain and are never launched"
        if answer.certain_oom
        else ""
    )
    parts.append(paragraph("Space", f"{answer.candidates:,} layouts{never}."))
    parts.append(
        paragraph("Study", f"{answer.study} in {answer.storage}; --resume goes on with it.")
    )
    return Group(*parts, paragraph("Files", ", ".join(answer.files) + "."))


def table(rows: Iterable[Row], fastest: Row | None) -> Table:
    """Trials in the order in which they ran."""
    made = grid(
        "#",
        "*".join(GPUS),
        "mbs*m",
        "v",
        "schedule",
        "zero",
        "recompute",
        "predicted s",
        "measured s",
        "noise",
        "GiB",
        "state",
    )
    for one in rows:
        layout, failed = one.layout, one.state not in ("done", "running")
        made.add_row(
            f"{one.number}",
            *cells(layout),
            f"{one.predicted_s:.4g}",
            "" if one.measured_s is None else f"{one.measured_s:.4g}",
            f"{one.noise_share:.1%}" if one.measured_s else "",
            "" if one.memory_bytes is None else f"{one.memory_bytes / GIB:.1f}",
            one.state + ", switched" * bool(one.switches) + ", again" * (one.repeat > 0),
            style=(
                "bold"
                if fastest is not None and one.number == fastest.number
                else "dim"
                if failed
                else None
            ),
        )
    return made


def layers(row: Row) -> Table:
    """What ran of a plan that is larger than the machine, a micro-batch: measured, and the
    prediction's error.
    """
    made = grid(
        f"layer of #{row.number}",
        "forward ms",
        "predicted",
        "backward ms",
        "predicted",
        "kept MiB",
        "predicted",
    )
    for part in row.layers:
        figures = [
            (part[f"{way}_s"] * 1e3, part[f"predicted_{way}_s"] * 1e3)
            for way in ("forward", "backward")
        ]
        if "kept_bytes" in part:
            figures.append((part["kept_bytes"] / MIB, part["predicted_kept_bytes"] / MIB))
        told = [
            text
            for figure, predicted in figures
            for text in (f"{figure:.4g}", _off(predicted, figure))
        ]
        made.add_row(part["name"], *told, *("" for _ in range(6 - len(told))))
    return made


def _off(predicted: float, measured: float) -> str:
    return f"{predicted / measured - 1:+.0%}" if measured > 0 else f"{predicted:.4g}"


def cells(layout: Layout) -> tuple[str, ...]:
    """A layout in the columns of the table."""
    gpus = "*".join(str(getattr(layout, word)) for word in GPUS)
    return (
        gpus,
        f"{layout.mbs}*{layout.m}",
        str(layout.v),
        SCHEDULES[layout.schedule],
        str(layout.zero),
        layout.recomputation,
    )


def _best(answer: Tuned) -> Text:
    stopped = "Stopped by the user. " if answer.interrupted else ""
    one = answer.best
    if one is None:
        return paragraph("Best", f"{stopped}no trial ran to its end; trials.csv has the reasons.")
    gain = answer.speedup_over_first
    than = (
        ""
        if gain is None
        else (
            f", {gain:.2f} times as fast as the plan that came in"
            if gain > 1
            else ", the plan that came in"
        )
    )
    return paragraph(
        "Best",
        f"{stopped}#{one.number}, {one.measured_s:.4g} s a step, give or take"
        f" {one.noise_share:.1%}{than}: {named_by(one)}.",
    )


def named_by(row: Row) -> str:
    """A trial's layout and switches in a line."""
    return said(row.layout) + (f", {switches.text(row.switches)}" if row.switches else "")


def switched(rows: Iterable[Row]) -> list[str]:
    """What other switches did, a line a setting."""
    each = combined(rows)
    plain = {one.layout: one for one in each if not one.switches}
    return [
        f"{switches.text(one.switches)}: {one.measured_s:.4g}"
        f" s{_change(one, plain.get(one.layout))} (#{one.number})."
        for one in each
        if one.switches
    ]


def _change(row: Row, before: Row | None) -> str:
    if before is None:
        return ""
    change = (row.measured_s or 0.0) / (before.measured_s or 1.0) - 1
    noise = max(row.noise_share, before.noise_share)
    return f", {change:+.1%} of #{before.number} without them" + (
        ", no more than noise" if abs(change) <= noise else ""
    )


def said(layout: Layout) -> str:
    """A layout in a line."""
    gpus, batch, *rest = cells(layout)
    v, schedule, zero, recompute = rest
    return (
        f"{'*'.join(GPUS)} {gpus}, mbs*m {batch}, v {v}, schedule {schedule}, zero {zero},"
        f" recompute {recompute}"
    )


def _errors(answer: Tuned) -> str:
    fitted = answer.overlay
    after = (
        ""
        if fitted is None
        else f"; {fitted.error_after:.1%} with {fitted.name}.yaml, for `recommend --cluster`"
    )
    return f"steps were off by {answer.error:.1%} (median){after}."
