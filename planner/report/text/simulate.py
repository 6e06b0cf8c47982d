"""The answers of `simulate` as text on 100 columns: the picture, the figures, a row a rank or a
schedule.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.action import to_text
from planner.errors import InputError
from planner.pipeline.answer import Answer, answers_no
from planner.pipeline.fewest_microbatches import FewestMicrobatches
from planner.pipeline.timelines import ScheduleComparison, SimulatedSchedule
from planner.report.draw.gantt_chart import Chart, of_timeline
from planner.report.text import serve
from planner.report.text.gantt import gantt
from planner.report.text.parts import grid, paragraph, sentences

MAX_RANKS = 32
"""Rows of the table of ranks; of more, the first and last half."""
MAX_PICTURE = 100_000


def text(answer: Answer, width: int, files: Sequence[str] = ()) -> Group:
    """Whichever of its answers `simulate` gives, and the files that were written."""
    if isinstance(answer, ScheduleComparison):
        view = comparison(answer)
    elif isinstance(answer, FewestMicrobatches):
        view = fewest(answer, width)
    elif isinstance(answer, SimulatedSchedule):
        view = schedule(answer, width)
    else:
        view = serve.report(answer.served, answer.others, answer.assumed, width)
    if files and not answers_no(answer):
        return Group(view, paragraph("Files", ", ".join(files)))
    return Group(view, Text(end=""))


def order(answer: Answer) -> str:
    """A rank's actions a line, in torch's notation. Raises InputError where the answer is not one
    schedule.
    """
    simulated = answer.simulated if isinstance(answer, FewestMicrobatches) else answer
    if not isinstance(simulated, SimulatedSchedule):
        raise InputError(
            "--order is of one training schedule, but none was simulated; name a --schedule"
        )
    return to_text(simulated.order)


def schedule(simulated: SimulatedSchedule, width: int) -> Group:
    """One schedule: title, Gantt chart, figures, ranks."""
    parts: list[RenderableType] = [Text(title(simulated), "bold")]
    if sum(len(rows) for rows in simulated.order.actions) <= MAX_PICTURE:
        parts += [Text(), gantt(chart(simulated), width), Text()]
    parts += [Text(line) for line in figures(simulated)]
    return Group(*parts, *sentences("Assumed", simulated.assumed), _ranks(simulated))


def comparison(comparison: ScheduleComparison) -> Group:
    """All legal schedules, fastest first; under them why the others are not."""
    head, assumed = "No schedule is legal.", []
    for first in comparison.schedules[:1]:
        head = f"{first.pp} ranks, {first.m} micro-batches: every legal schedule, fastest first"
        assumed = sentences("Assumed", first.assumed)
    rows = grid("schedule", "v", "makespan", "bubble", "span bubble", "activations", "messages")
    for simulated in comparison.schedules:
        timeline = simulated.timeline
        rows.add_row(
            simulated.schedule,
            str(simulated.v),
            time(timeline.makespan, simulated.unit),
            f"{timeline.bubble_share:.2%}",
            f"{max(timeline.span_bubble_share, 0.0):.2%}",
            f"{timeline.peak_in_flight.max() / simulated.v:g}",
            f"{timeline.messages:,}",
        )
    notes = Text(
        "bubble: idle time / makespan, averaged over ranks. span bubble: within the longest time"
        " between a rank's own first start and last end. activations: in flight at the peak on the"
        " fullest rank, in whole stages (1/p of the model).",
        "dim",
    )
    refused = [Text.assemble(("not legal  ", "dim"), reason) for _, reason in comparison.refused]
    return Group(Text(head, "bold"), rows, notes, *refused, *assumed)


def fewest(fewest: FewestMicrobatches, width: int) -> Group:
    """The smallest m for a bubble, with its timeline; or why none does."""
    share = f"a bubble under {fewest.bubble:.4g} of the makespan"
    where = f"{fewest.schedule} on {fewest.pp} ranks" + f", v {fewest.v}" * (fewest.v > 1)
    if fewest.simulated is None:
        return Group(
            Text(f"No number of micro-batches gives {where} {share}: {fewest.reason}.", "bold red")
        )
    head = Text(f"m = {fewest.m} is the fewest micro-batches that give {where} {share}.", "bold")
    return Group(head, Text(), schedule(fewest.simulated, width))


def title(simulated: SimulatedSchedule) -> str:
    virtual = f", {simulated.v} virtual stages each" * (simulated.v > 1)
    return (
        f"{simulated.schedule}: {simulated.pp} rank{'s' * (simulated.pp > 1)}{virtual},"
        f" {simulated.m} micro-batch{'es' * (simulated.m > 1)}"
    )


def figures(simulated: SimulatedSchedule) -> list[str]:
    """Makespan, bubble in both ways to count it, span, messages."""
    line = simulated.timeline
    busy, idle = float(line.busy.sum()), float(line.idle.sum())
    over_busy = f"; {idle / busy:.2%} of the busy time" if busy else ""
    bubble = f"Bubble {line.bubble_share:.2%} of the makespan{over_busy}."
    lines = [
        f"Makespan {time(line.makespan, simulated.unit)}. {bubble} {line.messages:,} messages."
    ]
    if line.span < line.makespan * (1 - 1e-9):
        share = max(line.span_bubble_share, 0.0)
        lines.append(
            f"No rank works longer than {time(line.span, simulated.unit)} from first start to last"
            f" end; idle within that: {share:.2%}."
        )
    return lines


def chart(simulated: SimulatedSchedule) -> Chart:
    """The Gantt chart of a schedule, seconds shown as milliseconds."""
    return of_timeline(
        simulated.order,
        simulated.timeline,
        title(simulated),
        " ".join(figures(simulated)),
        simulated.unit,
    )


def time(value: float, unit: str) -> str:
    """A time with its unit: the cost model's in milliseconds, numbers without a unit as they
    are.
    """
    return f"{value * 1e3:,.2f} ms" if unit == "s" else f"{value:.10g}"


RANK_COLUMNS = ("rank", "busy", "idle", "idle share", "in flight, chunks", "in flight, stages")


def rank_rows(simulated: SimulatedSchedule) -> list[list[str]]:
    """A row a rank, under RANK_COLUMNS."""
    line, unit = simulated.timeline, simulated.unit
    columns = zip(line.busy.tolist(), line.idle.tolist(), line.peak_in_flight.tolist(), strict=True)
    return [
        [
            str(rank),
            time(busy, unit),
            time(idle, unit),
            f"{idle / (line.makespan or 1):.2%}",
            f"{peak:g}",
            f"{peak / simulated.v:g}",
        ]
        for rank, (busy, idle, peak) in enumerate(columns)
    ]


def _ranks(simulated: SimulatedSchedule) -> RenderableType:
    rows = rank_rows(simulated)
    table = grid(*RANK_COLUMNS)
    if len(rows) > MAX_RANKS:
        half = MAX_RANKS // 2
        rows[half:-half] = [["..."]]
    for row in rows:
        table.add_row(*row)
    return table
