"""The report of `ppplan tune`: trials, failures, predicted against measured, the best so far, what
the knobs did, what was fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.layout import SCHEDULES, Layout
from planner.report.draw import plotly_charts, trial_charts
from planner.report.html import parts
from planner.report.html.page import Chart, Grid, More, Page, Section
from planner.report.text import tune
from planner.report.text.parts import recomputed, zero
from planner.specs import switches
from planner.tune.study.trials import FAILED, Row
from planner.tune.tune import Tuned
from planner.units import GIB

SLICES = 4
"""Knobs drawn one by one."""
_UNBROKEN = "\u00a0x\u00a0"
STEPS = 20
"""Trials whose steps are drawn."""


def page(found: Tuned) -> Page:
    """Everything that the study found; charts only of what was measured."""
    timed = [one for one in found.rows if one.measured_s]
    lead = (parts.question(found.recipe), *_best(found))
    proxy = next((one.proxy for one in found.rows if one.proxy), "")
    sections = (
        *([Section("What was measured", (f"{proxy}.",))] if proxy else []),
        Section("Trials", grid=_trials(found)),
        *_failures(found.rows),
        *([Section("Predicted against measured", charts=(_predicted(timed),))] if timed else []),
        *_history(found.plots),
        *_knobs(found, timed),
        *_switches(found.rows),
        *_overlay(found),
        Section(
            "The study",
            (
                f"{found.study} in {found.storage}: {_space(found)}.",
                f"Files: {', '.join(found.files)}.",
            ),
        ),
        *([parts.assumed(found.recipe, None)] if found.recipe.assumed else []),
    )
    return Page(
        f"{found.recipe.model.name} tuned on {found.bench.devices:,} x {found.bench.device}",
        lead,
        _figures(found),
        sections,
    )


def _space(found: Tuned) -> str:
    never = (
        f"; {found.certain_oom:,} more would run out of memory for certain and are never launched"
        if found.certain_oom
        else ""
    )
    return f"{found.candidates:,} layouts{never}"


def _best(found: Tuned) -> tuple[str, ...]:
    stopped = ("Stopped by the user.",) if found.interrupted else ()
    if found.best is None:
        return (*stopped, "No trial ran to its end.")
    return (*stopped, f"Best: #{found.best.number}, {tune.named_by(found.best)}.")


def _figures(found: Tuned) -> tuple[tuple[str, str], ...]:
    one, done = found.best, sum(row.state == "done" for row in found.rows)
    if one is None:
        return ((f"0 of {len(found.rows):,}", "trials ran to their end"),)
    gain = (
        [(f"{found.speedup_over_first:.2f} times", "as fast as the plan that came in")]
        if found.speedup_over_first
        else []
    )
    error = (
        [(f"{found.error:.1%}", "median error of the predicted steps")]
        if found.error is not None
        else []
    )
    return (
        (
            f"{one.measured_s:,.4g} s",
            f"a step, give or take {one.noise_share:.1%}; predicted {one.predicted_s:,.4g} s",
        ),
        *gain,
        *error,
        (f"{done:,} of {len(found.rows):,}", "trials ran to their end"),
    )


def _trials(found: Tuned) -> Grid:
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
        for at, one in enumerate(found.rows)
        if found.best is not None and one.number == found.best.number
    )
    return Grid(head, tuple(_cells(one) for one in found.rows), 9, strong)


def _cells(one: Row) -> tuple[str, ...]:
    layout = one.layout
    gpus = _UNBROKEN.join(str(getattr(layout, word)) for word in ("tp", "pp", "dp", "cp"))
    return (
        f"#{one.number}" + ", again" * (one.repeat > 0),
        gpus,
        f"{layout.mbs}{_UNBROKEN}{layout.m}",
        str(layout.v),
        SCHEDULES[layout.schedule],
        zero(layout),
        recomputed(layout).replace(",", ", "),
        switches.said(one.switches),
        one.state,
        f"{one.predicted_s:,.4g}",
        f"{one.measured_s:,.4g}" if one.measured_s else "",
        f"{one.predicted_s / one.measured_s - 1:+.1%}" if one.measured_s else "",
        f"{one.noise_share:.1%}" if one.measured_s else "",
        f"{one.memory_bytes / GIB:.1f}" if one.memory_bytes else "",
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


def _knobs(found: Tuned, timed: Sequence[Row]) -> list[Section]:
    """How much each knob mattered (Optuna's importances), each trial as a line over its knobs, and
    the step over the first few knobs.
    """
    weights = dict(sorted(found.plots.get("importance", {}).items(), key=lambda one: -one[1]))
    slices = {
        name: points
        for name, points in found.plots.get("slice", {}).items()
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
            recomputed(layout)
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


def _overlay(found: Tuned) -> list[Section]:
    """The profile's efficiencies as trials correct them."""
    fitted = found.overlay
    if fitted is None:
        return (
            [Section("The profile", (f"{found.overlay_reason}.",))] if found.overlay_reason else []
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
