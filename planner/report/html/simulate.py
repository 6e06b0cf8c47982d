"""The report of `ppplan simulate`: one schedule's timeline, or all of them beside one another."""

from __future__ import annotations

from planner.pipeline.answer import Answer, ServedAnswer
from planner.pipeline.fewest_microbatches import FewestMicrobatches
from planner.pipeline.timelines import ScheduleComparison, SimulatedSchedule
from planner.report.draw import plotly_charts
from planner.report.html.page import Grid, Page, Section
from planner.report.text import serve, simulate


def page(answer: Answer) -> Page:
    """Whichever of its answers `simulate` gives."""
    if isinstance(answer, ScheduleComparison):
        return _comparison(answer)
    if isinstance(answer, ServedAnswer):
        return _served(answer)
    if isinstance(answer, FewestMicrobatches):
        return _fewest(answer)
    return _schedule(answer)


def _schedule(simulated: SimulatedSchedule, lead: tuple[str, ...] = ()) -> Page:
    head, rows = simulate.RANK_COLUMNS, tuple(tuple(row) for row in simulate.rank_rows(simulated))
    line = simulated.timeline
    figures = (
        (simulate.time(line.makespan, simulated.unit), "makespan"),
        (f"{line.bubble_share:.2%}", "bubble, share of the makespan"),
        (f"{line.peak_in_flight.max() / simulated.v:g}", "activations at the peak, whole stages"),
        (f"{line.messages:,}", "messages"),
    )
    sections = (
        Section("Timeline", charts=(plotly_charts.gantt(simulate.chart(simulated)),)),
        Section("Ranks", grid=Grid(head, rows)),
        *(
            [Section("Assumed", tuple(f"{text}." for text in simulated.assumed))]
            if simulated.assumed
            else []
        ),
    )
    lead += tuple(simulate.figures(simulated))
    return Page(simulate.title(simulated), lead, figures, tuple(sections))


def _fewest(fewest: FewestMicrobatches) -> Page:
    if fewest.simulated is None:
        return Page("No number of micro-batches is enough", (f"{fewest.reason}.",), (), ())
    return _schedule(
        fewest.simulated,
        (f"m = {fewest.m} is the fewest micro-batches for a bubble under {fewest.bubble:.4g}.",),
    )


def _comparison(comparison: ScheduleComparison) -> Page:
    head = ("schedule", "v", "makespan", "bubble", "activations, stages", "messages")
    rows = tuple(
        (
            schedule.schedule,
            str(schedule.v),
            simulate.time(schedule.timeline.makespan, schedule.unit),
            f"{schedule.timeline.bubble_share:.2%}",
            f"{schedule.timeline.peak_in_flight.max() / schedule.v:g}",
            f"{schedule.timeline.messages:,}",
        )
        for schedule in comparison.schedules
    )
    names = [schedule.schedule for schedule in comparison.schedules]
    shares = [100 * schedule.timeline.bubble_share for schedule in comparison.schedules]
    bubbles = plotly_charts.bars(names, shares, "bubble, %", "Idle share of the makespan, %.")
    held = plotly_charts.bars(
        names,
        [
            float(schedule.timeline.peak_in_flight.max()) / schedule.v
            for schedule in comparison.schedules
        ],
        "whole stages in flight",
        "Activations at the peak on the fullest rank, in whole stages.",
        "#f58518",
    )
    refused = Section("Not legal here", tuple(reason for _, reason in comparison.refused))
    first = comparison.schedules[0] if comparison.schedules else None
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
    return Page(title, (), (), (*sections, *((refused,) if comparison.refused else ())))


def _served(answer: ServedAnswer) -> Page:
    pools = [("", answer.served), *answer.others]
    rows = tuple(tuple(serve.row(name, pool)) for name, pool in pools)
    timeline = []
    if answer.served.passed is not None:
        chart = plotly_charts.gantt(serve.chart(answer.served))
        timeline.append(Section("Timeline", charts=(chart,)))
    sections = (*timeline, Section("Figures", grid=Grid(tuple(serve.COLUMNS), rows)))
    return Page(
        "A forward-only pipeline",
        tuple(f"Assumed: {text}." for text in answer.assumed),
        (),
        sections,
    )
