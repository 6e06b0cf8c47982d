"""The answer of `tune` as text: the trials, the best, how far predictions were off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from planner.layout import SCHEDULES, Layout
from planner.report.text.parts import GPUS, grid, heading, paragraph, product
from planner.specs.switches import table as switches
from planner.tune.study.trials import Row, combined
from planner.tune.tune import Tuned
from planner.units import GIB, MIB

REASON = 160
"""Characters of a failure's reason that are printed; the CSV has all."""


def text(answer: Tuned) -> Group:
    """The trials, the best, how far predictions were, what was written."""
    parts: list[Any] = [heading(answer.recipe)]
    if answer.rows:
        parts.append(table(answer.rows, answer.best))
    for row in answer.rows:
        if row.reason and row.state != "pruned":
            parts.append(paragraph(f"#{row.number} {row.state}", row.reason[:REASON]))
    parts += [paragraph("Switches", line) for line in switched(answer.rows)]
    if answer.unsupported:
        parts.append(paragraph("Not measured", f"{unsupported(answer)}."))
    parts.append(_best(answer))
    proxy = proxy_measured(answer)
    if proxy:
        parts.append(paragraph("Measured", f"{proxy}."))
    if answer.best is not None and answer.best.layers:
        parts.append(layers(answer.best))
    if answer.error is not None:
        parts.append(paragraph("Predicted", _errors(answer)))
    if answer.overlay_reason:
        parts.append(paragraph("Profile", f"{answer.overlay_reason}."))
    return Group(
        *parts,
        paragraph("Space", f"{space(answer)}."),
        paragraph("Study", f"{answer.study} in {answer.storage}; --resume goes on with it."),
        paragraph("Files", ", ".join(answer.files) + "."),
    )


def proxy_measured(answer: Tuned) -> str:
    """What ran in place of a plan that is larger than the machine; empty where plans ran whole."""
    return next((row.proxy for row in answer.rows if row.proxy), "")


def unsupported(answer: Tuned) -> str:
    """Switches that the runner does not turn, and which does."""
    names = ", ".join(answer.unsupported)
    return f"--runner {answer.bench.runner} does not turn {names}"


def space(answer: Tuned) -> str:
    """How many layouts there were to try, and how many are never launched."""
    words = f"{answer.candidates:,} layouts"
    if answer.certain_oom:
        words += (
            f"; {answer.certain_oom:,} more would run out of memory for certain and are never"
            " launched"
        )
    return words


def table(rows: Iterable[Row], fastest: Row | None) -> Table:
    """Trials in the order in which they ran."""
    trials = grid(
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
    for row in rows:
        style = None
        if fastest is not None and row.number == fastest.number:
            style = "bold"
        elif row.state not in ("done", "running"):
            style = "dim"
        trials.add_row(
            f"{row.number}",
            *cells(row.layout),
            f"{row.predicted_s:.4g}",
            "" if row.measured_s is None else f"{row.measured_s:.4g}",
            f"{row.noise_share:.1%}" * bool(row.measured_s),
            "" if row.memory_bytes is None else f"{row.memory_bytes / GIB:.1f}",
            row.state + ", switched" * bool(row.switches) + ", again" * (row.repeat > 0),
            style=style,
        )
    return trials


def layers(row: Row) -> Table:
    """What ran of a plan that is larger than the machine, a micro-batch: measured, and the
    prediction's error.
    """
    parts = grid(
        f"layer of #{row.number}",
        "forward ms",
        "predicted",
        "backward ms",
        "predicted",
        "kept MiB",
        "predicted",
    )
    for part in row.layers:
        figures = []
        for name, scale in (("forward_s", 1e3), ("backward_s", 1e3), ("kept_bytes", 1 / MIB)):
            if name in part:
                measured, predicted = part[name] * scale, part[f"predicted_{name}"] * scale
                figures += [f"{measured:.4g}", _off(predicted, measured)]
        parts.add_row(part["name"], *figures)
    return parts


def _off(predicted: float, measured: float) -> str:
    return f"{predicted / measured - 1:+.0%}" if measured > 0 else f"{predicted:.4g}"


def cells(layout: Layout) -> tuple[str, ...]:
    """A layout in the columns of the table."""
    return (
        product(layout, GPUS, "*"),
        f"{layout.mbs}*{layout.m}",
        str(layout.v),
        SCHEDULES[layout.schedule],
        str(layout.zero),
        layout.recomputation,
    )


def _best(answer: Tuned) -> Text:
    stopped = "Stopped by the user. " * answer.interrupted
    best, gain = answer.best, answer.speedup_over_first
    if best is None:
        return paragraph("Best", f"{stopped}no trial ran to its end; trials.csv has the reasons.")
    than = ""
    if gain is not None:
        than = f", {gain:.2f} times as fast as" * (gain > 1) or ","
        than += " the plan that came in"
    return paragraph(
        "Best",
        f"{stopped}#{best.number}, {best.measured_s:.4g} s a step, give or take"
        f" {best.noise_share:.1%}{than}: {named_by(best)}.",
    )


def named_by(row: Row) -> str:
    """A trial's layout and switches in a line."""
    gpus, batch, v, schedule, zero, recompute = cells(row.layout)
    words = (
        f"{'*'.join(GPUS)} {gpus}, mbs*m {batch}, v {v}, schedule {schedule}, zero {zero},"
        f" recompute {recompute}"
    )
    return words + f", {switches.text(row.switches)}" * bool(row.switches)


def switched(rows: Iterable[Row]) -> list[str]:
    """What other switches did, a line a setting."""
    trials = combined(rows)
    plain = {row.layout: row for row in trials if not row.switches}
    return [
        f"{switches.text(row.switches)}: {row.measured_s:.4g}"
        f" s{_change(row, plain.get(row.layout))} (#{row.number})."
        for row in trials
        if row.switches
    ]


def _change(row: Row, before: Row | None) -> str:
    if before is None:
        return ""
    change = (row.measured_s or 0.0) / (before.measured_s or 1.0) - 1
    noise = max(row.noise_share, before.noise_share)
    small = ", no more than noise" * (abs(change) <= noise)
    return f", {change:+.1%} of #{before.number} without them{small}"


def _errors(answer: Tuned) -> str:
    text, fitted = f"steps were off by {answer.error:.1%} (median)", answer.overlay
    if fitted is not None:
        text += f"; {fitted.error_after:.1%} with {fitted.name}.yaml, for `recommend --cluster`"
    return f"{text}."
