"""The report of `ppplan simulate`: one schedule's timeline, or all of them beside one another."""

from __future__ import annotations

from planner.pipeline.inverse import Fewest
from planner.pipeline.timelines import Comparison, Simulated
from planner.pipeline.words import Answer, ServedAnswer
from planner.report.draw import plotly_charts
from planner.report.html.page import Grid, Page, Section
from planner.report.text import serve, simulate


def page(found: Answer) -> Page:
    """Whichever of its answers `simulate` gives."""
    if isinstance(found, Comparison):
        return _comparison(found)
    if isinstance(found, ServedAnswer):
        return _served(found)
    if isinstance(found, Fewest):
        return _fewest(found)
    return _schedule(found)


def _schedule(done: Simulated, lead: tuple[str, ...] = ()) -> Page:
    head, rows = simulate.RANK_COLUMNS, tuple(tuple(row) for row in simulate.rank_rows(done))
    line = done.timeline
    figures = (
        (simulate.time(line.makespan, done.unit), "makespan"),
        (f"{line.bubble_share:.2%}", "bubble, share of the makespan"),
        (f"{line.peak_in_flight.max() / done.v:g}", "activations at the peak, whole stages"),
        (f"{line.messages:,}", "messages"),
    )
    sections = (
        Section("Timeline", charts=(plotly_charts.gantt(simulate.chart(done)),)),
        Section("Ranks", grid=Grid(head, rows)),
        *([Section("Assumed", tuple(f"{one}." for one in done.assumed))] if done.assumed else []),
    )
    return Page(simulate.title(done), (*lead, *simulate.figures(done)), figures, sections)


def _fewest(found: Fewest) -> Page:
    if found.simulated is None:
        return Page("No number of micro-batches is enough", (f"{found.reason}.",), (), ())
    return _schedule(
        found.simulated,
        (f"m = {found.m} is the fewest micro-batches for a bubble under {found.bubble:.4g}.",),
    )


def _comparison(found: Comparison) -> Page:
    head = ("schedule", "v", "makespan", "bubble", "activations, stages", "messages")
    rows = tuple(
        (
            one.schedule,
            str(one.v),
            simulate.time(one.timeline.makespan, one.unit),
            f"{one.timeline.bubble_share:.2%}",
            f"{one.timeline.peak_in_flight.max() / one.v:g}",
            f"{one.timeline.messages:,}",
        )
        for one in found.schedules
    )
    names = [one.schedule for one in found.schedules]
    shares = [100 * one.timeline.bubble_share for one in found.schedules]
    bubbles = plotly_charts.bars(names, shares, "bubble, %", "Idle share of the makespan, %.")
    held = plotly_charts.bars(
        names,
        [float(one.timeline.peak_in_flight.max()) / one.v for one in found.schedules],
        "whole stages in flight",
        "Activations at the peak on the fullest rank, in whole stages.",
        "#f58518",
    )
    refused = Section("Not legal here", tuple(reason for _, reason in found.refused))
    first = found.schedules[0] if found.schedules else None
    title = (
        f"Pipeline schedules of {first.pp} ranks and {first.m} micro-batches"
        if first
        else "No schedule is legal"
    )
    sections = (
        (Section("All schedules, fastest first", grid=Grid(head, rows), charts=(bubbles, held)),)
        if first
        else ()
    )
    return Page(title, (), (), (*sections, *((refused,) if found.refused else ())))


def _served(found: ServedAnswer) -> Page:
    pools = [("", found.served), *found.others]
    rows = tuple(tuple(serve.row(name, one)) for name, one in pools)
    drawn = [one for _, one in pools[:1] if one.passed is not None]
    timeline = (
        [Section("Timeline", charts=tuple(plotly_charts.gantt(serve.chart(one)) for one in drawn))]
        if drawn
        else []
    )
    sections = (*timeline, Section("Figures", grid=Grid(tuple(serve.COLUMNS), rows)))
    return Page(
        "A forward-only pipeline", tuple(f"Assumed: {one}." for one in found.assumed), (), sections
    )
