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
from planner.specs.switches import table as switches
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
    timed = [row for row in answer.rows if row.measured_s]
    lead = (parts.question(answer.recipe), *_best(answer))
    proxy = tune.proxy_measured(answer)
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
                f"{answer.study} in {answer.storage}: {tune.space(answer)}.",
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


def _best(answer: Tuned) -> tuple[str, ...]:
    stopped = ("Stopped by the user.",) if answer.interrupted else ()
    if answer.best is None:
        return (*stopped, "No trial ran to its end.")
    return (*stopped, f"Best: #{answer.best.number}, {tune.named_by(answer.best)}.")


def _figures(answer: Tuned) -> tuple[tuple[str, str], ...]:
    best, done = answer.best, sum(trial.state == "done" for trial in answer.rows)
    if best is None:
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
            f"{best.measured_s:,.4g} s",
            f"a step, give or take {best.noise_share:.1%}; predicted {best.predicted_s:,.4g} s",
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
        for at, row in enumerate(answer.rows)
        if answer.best is not None and row.number == answer.best.number
    )
    return Grid(head, tuple(_cells(row) for row in answer.rows), 9, strong)


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
        row for row in rows if row.state in FAILED or (row.state == "interrupted" and row.reason)
    ]
    if not failed:
        return []
    reasons = tuple((f"#{row.number}", row.state, tune.named_by(row), row.reason) for row in failed)
    tails = tuple((f"#{row.number}", row.stderr_tail) for row in failed if row.stderr_tail)
    more = (More("The last that they wrote to stderr", tails),) if tails else ()
    return [
        Section(
            "What failed, and why",
            grid=Grid(("trial", "state", "layout", "reason"), reasons, 4),
            more=more,
        )
    ]


def _predicted(timed: Sequence[Row]) -> Chart:
    groups: dict[str, tuple[list[float], list[float], list[str]]] = {}
    for row in timed:
        measured, predicted, words = groups.setdefault(
            row.state + ", switched" * bool(row.switches), ([], [], [])
        )
        measured.append(row.measured_s or 0.0)
        predicted.append(row.predicted_s)
        words.append(f"#{row.number}: {tune.named_by(row)}")
    return plotly_charts.predicted_against_measured(groups)


def _history(plots: dict[str, Any]) -> list[Section]:
    """The best so far over trials, and the steps of each as they ran."""
    past = plots.get("history", [])
    if not past:
        return []
    numbers = [float(trial["number"]) for trial in past]
    best = {
        "each": (numbers, [trial["step_s"] for trial in past]),
        "best so far": (numbers, [trial["best_s"] for trial in past]),
    }
    steps = {
        f"#{trial['number']}, {trial['state']}": (
            [float(at) for at in range(1, len(trial["steps_s"]) + 1)],
            trial["steps_s"],
        )
        for trial in plots.get("intermediate", [])[-STEPS:]
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
    weights = dict(sorted(answer.plots.get("importance", {}).items(), key=lambda item: -item[1]))
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
        [trial_charts.parallel(*_axes(timed))] if len({row.layout for row in timed}) > 1 else []
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
    axes = {name: [value(row.layout, name) for row in timed] for name in names}
    return (
        {name: values for name, values in axes.items() if len(set(values)) > 1},
        [row.measured_s or 0.0 for row in timed],
        [f"#{row.number}: {tune.named_by(row)}" for row in timed],
    )


def _switches(rows: Sequence[Row]) -> list[Section]:
    lines = tuple(f"- {line}" for line in tune.switched(rows))
    return [Section("Switches", lines)] if lines else []


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
