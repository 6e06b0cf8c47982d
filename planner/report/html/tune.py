"""The report of `ppplan tune`: trials, failures, predicted against measured, the best so far, what
the knobs did, what was fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.layout import SCHEDULES, Layout
from planner.reasons import zero
from planner.report.draw import plotly_charts, trial_charts
from planner.report.draw.chart import Chart
from planner.report.html import parts
from planner.report.html.page import Grid, More, Page, Section
from planner.report.text import tune
from planner.specs import switches
from planner.tune.study.trials import FAILED, Row
from planner.tune.tune import Tuned
from planner.units import GIB

SLICES = 4
"""Knobs drawn one by one."""
_UNBROKEN = "\u00a0x\u00a0"
STEPS = 20
"""Trials whose steps are drawn."""


def page(answer: Tuned) -> Page:
    """Everything that the study found; charts only of what was measured."""
    timed = [one for one in answer.rows if one.measured_s]
    lead = (parts.question(answer.recipe), *_best(answer))
    proxy = next((one.proxy for one in answer.rows if one.proxy), "")
    sections = (
        *([Section("What was measured", (f"{proxy}.",))] if proxy else []),
        Section("Trials", grid=_trials(answer)),
        *_failures(answer.rows),
        *([Section("Predicted against measured", charts=(_predicted(timed),))] if timed else []),
        *_history(answer.plots),
        *_knobs(answer, timed),
        *_switches(answer.rows),
        *_overlay(answer),
        Section(
            "The study",
            (
                f"{answer.study} in {answer.storage}: {_space(answer)}.",
                f"Files: {', '.join(answer.files)}.",
            ),
        ),
        *([parts.assumed(answer.recipe, None)] if answer.recipe.assumed else []),
    )
    return Page(
        f"{answer.recipe.model.name} tuned on {answer.bench.devices:,} x {answer.bench.device}",
        lead,
        _figures(answer),
        sections,
    )


def _space(answer: Tuned) -> str:
    never = (
        f"; {answer.certain_oom:,} more would run out of memory for certain and are never launched"
        if answer.certain_oom
        else ""
    )
    return f"{answer.candidates:,} layouts{never}"


def _best(answer: Tuned) -> tuple[str, ...]:
    stopped = ("Stopped by the user.",) if answer.interrupted else ()
    if answer.best is None:
        return (*stopped, "No trial ran to its end.")
    return (*stopped, f"Best: #{answer.best.number}, {tune.named_by(answer.best)}.")


def _figures(answer: Tuned) -> tuple[tuple[str, str], ...]:
    one, done = answer.best, sum(row.state == "done" for row in answer.rows)
    if one is None:
        return ((f"0 of {len(answer.rows):,}", "trials ran to their end"),)
    gain = (
        [(f"{answer.speedup_over_first:.2f} times", "as fast as the plan that came in")]
        if answer.speedup_over_first
        else []
    )
    error = (
        [(f"{answer.error:.1%}", "median error of the predicted steps")]
        if answer.error is not None
        else []
    )
    return (
        (
            f"{one.measured_s:,.4g} s",
            f"a step, give or take {one.noise_share:.1%}; predicted {one.predicted_s:,.4g} s",
        ),
        *gain,
        *error,
        (f"{done:,} of {len(answer.rows):,}", "trials ran to their end"),
    )


def _trials(answer: Tuned) -> Grid:
    head = (
        "trial",
        "tp x pp x dp x cp",
        "mbs x m",
        "v",
        "schedule",
        "zero",
        "recompute",
        "switches",
        "state",
        "predicted, s",
        "measured, s",
        "error",
        "noise",
        "memory, GiB",
    )
    strong = tuple(
        at
        for at, one in enumerate(answer.rows)
        if answer.best is not None and one.number == answer.best.number
    )
    return Grid(head, tuple(_cells(one) for one in answer.rows), 9, strong)


def _cells(row: Row) -> tuple[str, ...]:
    layout = row.layout
    gpus = _UNBROKEN.join(str(getattr(layout, word)) for word in ("tp", "pp", "dp", "cp"))
    return (
        f"#{row.number}" + ", again" * (row.repeat > 0),
        gpus,
        f"{layout.mbs}{_UNBROKEN}{layout.m}",
        str(layout.v),
        SCHEDULES[layout.schedule],
        zero(layout),
        layout.recomputation.replace(",", ", "),
        switches.text(row.switches),
        row.state,
        f"{row.predicted_s:,.4g}",
        f"{row.measured_s:,.4g}" if row.measured_s else "",
        f"{row.predicted_s / row.measured_s - 1:+.1%}" if row.measured_s else "",
        f"{row.noise_share:.1%}" if row.measured_s else "",
        f"{row.memory_bytes / GIB:.1f}" if row.memory_bytes else "",
    )


def _failures(rows: Sequence[Row]) -> list[Section]:
    """Why trials did not run to their end, and the last that they said."""
    failed = [
        one for one in rows if one.state in FAILED or (one.state == "interrupted" and one.reason)
    ]
    if not failed:
        return []
    told = tuple((f"#{one.number}", one.state, tune.named_by(one), one.reason) for one in failed)
    tails = tuple((f"#{one.number}", one.stderr_tail) for one in failed if one.stderr_tail)
    more = (More("The last that they wrote to stderr", tails),) if tails else ()
    return [
        Section(
            "What failed, and why",
            grid=Grid(("trial", "state", "layout", "reason"), told, 4),
            more=more,
        )
    ]


def _predicted(timed: Sequence[Row]) -> Chart:
    groups: dict[str, tuple[list[float], list[float], list[str]]] = {}
    for one in timed:
        measured, predicted, words = groups.setdefault(
            one.state + ", switched" * bool(one.switches), ([], [], [])
        )
        measured.append(one.measured_s or 0.0)
        predicted.append(one.predicted_s)
        words.append(f"#{one.number}: {tune.named_by(one)}")
    return plotly_charts.predicted_against_measured(groups)


def _history(plots: dict[str, Any]) -> list[Section]:
    """The best so far over trials, and the steps of each as they ran."""
    past = plots.get("history", [])
    if not past:
        return []
    numbers = [float(one["number"]) for one in past]
    best = {
        "each": (numbers, [one["step_s"] for one in past]),
        "best so far": (numbers, [one["best_s"] for one in past]),
    }
    steps = {
        f"#{one['number']}, {one['state']}": (
            [float(at) for at in range(1, len(one["steps_s"]) + 1)],
            one["steps_s"],
        )
        for one in plots.get("intermediate", [])[-STEPS:]
    }
    drawn = [
        plotly_charts.lines(
            best,
            "trial",
            "s of a step",
            "Measured step of each trial that ran to its end, and the best so far.",
        )
    ]
    drawn += (
        [
            plotly_charts.lines(
                steps, "timed step", "s", f"Every timed step of the last {len(steps)} trials."
            )
        ]
        if steps
        else []
    )
    return [Section("The best so far", charts=tuple(drawn))]


def _knobs(answer: Tuned, timed: Sequence[Row]) -> list[Section]:
    """How much each knob mattered (Optuna's importances), each trial as a line over its knobs, and
    the step over the first few knobs.
    """
    weights = dict(sorted(answer.plots.get("importance", {}).items(), key=lambda one: -one[1]))
    slices = {
        name: points
        for name, points in answer.plots.get("slice", {}).items()
        if len({str(value) for value, _ in points}) > 1
    }
    says = (
        "Share of the differences between steps that goes with a knob (Optuna's PED-ANOVA), over"
        " the trials that ran to their end."
    )
    drawn = (
        [plotly_charts.bars(list(weights), list(weights.values()), "importance", says)]
        if any(weights.values())
        else []
    )
    drawn += (
        [trial_charts.parallel(*_axes(timed))] if len({one.layout for one in timed}) > 1 else []
    )
    names = sorted(slices, key=lambda name: -weights.get(name, 0.0))[:SLICES]
    drawn += [trial_charts.slice_of(name, slices[name]) for name in names]
    return [Section("What the knobs did", charts=tuple(drawn))] if drawn else []


def _axes(timed: Sequence[Row]) -> tuple[dict[str, list[Any]], list[float], list[str]]:
    """Knobs that differ, a value a trial; the steps; the words of each trial."""

    def value(layout: Layout, name: str) -> Any:
        return (
            layout.recomputation
            if name == "recompute"
            else SCHEDULES[layout.schedule]
            if name == "schedule"
            else getattr(layout, name)
        )

    names = ("tp", "pp", "dp", "cp", "ep", "v", "mbs", "m", "zero", "sp", "schedule", "recompute")
    axes = {name: [value(one.layout, name) for one in timed] for name in names}
    return (
        {name: values for name, values in axes.items() if len(set(values)) > 1},
        [one.measured_s or 0.0 for one in timed],
        [f"#{one.number}: {tune.named_by(one)}" for one in timed],
    )


def _switches(rows: Sequence[Row]) -> list[Section]:
    lines = tuple(f"- {line}" for line in tune.switched(rows))
    return [Section("Overlap switches and bucket sizes", lines)] if lines else []


def _overlay(answer: Tuned) -> list[Section]:
    """The profile's efficiencies as trials correct them."""
    fitted = answer.overlay
    if fitted is None:
        return (
            [Section("The profile", (f"{answer.overlay_reason}.",))]
            if answer.overlay_reason
            else []
        )
    says = (
        f"{fitted.name}.yaml, fitted to {fitted.trials:,} layouts: median error"
        f" {fitted.error_before:.1%} before, {fitted.error_after:.1%} after. `recommend --cluster`"
        " takes it."
    )
    grid = Grid(
        ("figure of the profile", "fitted over base"),
        tuple((name, f"{factor:.3f}") for name, factor in fitted.factors.items()),
    )
    return [Section("The corrected profile", (says,), grid)]
