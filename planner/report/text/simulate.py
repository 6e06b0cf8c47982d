"""The answers of `simulate` as text on 100 columns: the picture, the figures, a row a rank or a
schedule.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.action import to_text
from planner.errors import InputError
from planner.pipeline.inverse import Fewest
from planner.pipeline.timelines import Comparison, Simulated
from planner.pipeline.words import Answer, answers_no
from planner.report.draw.gantt_chart import Chart, of_timeline
from planner.report.text import serve
from planner.report.text.gantt import gantt
from planner.report.text.parts import grid, paragraph

MAX_RANKS = 32
"""Rows of the table of ranks; of more, the first and last half."""
MAX_PICTURE = 100_000


def text(answer: Answer, width: int, files: Sequence[str] = ()) -> Group:
    """Whichever of its answers `simulate` gives, and the files that were written."""
    if isinstance(answer, Comparison):
        view = comparison(answer)
    elif isinstance(answer, Fewest):
        view = fewest(answer, width)
    elif isinstance(answer, Simulated):
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
    simulated = answer.simulated if isinstance(answer, Fewest) else answer
    if not isinstance(simulated, Simulated):
        raise InputError(
            "--order is of one training schedule, but none was simulated; name a --schedule"
        )
    return to_text(simulated.order)


def schedule(done: Simulated, width: int) -> Group:
    """One schedule: title, Gantt chart, figures, ranks."""
    parts: list[RenderableType] = [Text(title(done), "bold")]
    if sum(len(rows) for rows in done.order.actions) <= MAX_PICTURE:
        parts += [Text(), gantt(chart(done), width), Text()]
    parts += [Text(line) for line in figures(done)]
    if done.assumed:
        parts.append(paragraph("Assumed", "; ".join(done.assumed) + "."))
    return Group(*parts, _ranks(done))


def comparison(found: Comparison) -> Group:
    """All legal schedules, fastest first; under them why the others are not."""
    first = found.schedules[0] if found.schedules else None
    head = (
        f"{first.pp} ranks, {first.m} micro-batches: every legal schedule, fastest first"
        if first
        else "No schedule is legal."
    )
    rows = grid("schedule", "v", "makespan", "bubble", "span bubble", "activations", "messages")
    for done in found.schedules:
        line, held = done.timeline, f"{done.timeline.peak_in_flight.max() / done.v:g}"
        shares = f"{line.bubble_share:.2%}", f"{max(line.span_bubble_share, 0.0):.2%}"
        rows.add_row(
            done.schedule,
            str(done.v),
            time(line.makespan, done.unit),
            *shares,
            held,
            f"{line.messages:,}",
        )
    notes = Text(
        "bubble: idle time / makespan, averaged over ranks. span bubble: within the longest time"
        " between a rank's own first start and last end. activations: in flight at the peak on the"
        " fullest rank, in whole stages (1/p of the model).",
        "dim",
    )
    refused = [Text.assemble(("not legal  ", "dim"), reason) for _, reason in found.refused]
    assumed = (
        [paragraph("Assumed", "; ".join(first.assumed) + ".")] if first and first.assumed else []
    )
    return Group(Text(head, "bold"), rows, notes, *refused, *assumed)


def fewest(found: Fewest, width: int) -> Group:
    """The smallest m for a bubble, with its timeline; or why none does."""
    share = f"a bubble under {found.bubble:.4g} of the makespan"
    where = f"{found.schedule} on {found.pp} ranks{f', v {found.v}' if found.v > 1 else ''}"
    if found.simulated is None:
        return Group(
            Text(f"No number of micro-batches gives {where} {share}: {found.reason}.", "bold red")
        )
    head = Text(f"m = {found.m} is the fewest micro-batches that give {where} {share}.", "bold")
    return Group(head, Text(), schedule(found.simulated, width))


def title(done: Simulated) -> str:
    virtual = f", {done.v} virtual stages each" if done.v > 1 else ""
    return (
        f"{done.schedule}: {done.pp} rank{'s' * (done.pp > 1)}{virtual}, {done.m}"
        f" micro-batch{'es' * (done.m > 1)}"
    )


def figures(done: Simulated) -> list[str]:
    """Makespan, bubble in both ways to count it, span, messages."""
    line = done.timeline
    busy, idle = float(line.busy.sum()), float(line.idle.sum())
    over_busy = f"; {idle / busy:.2%} of the busy time" if busy else ""
    bubble = f"Bubble {line.bubble_share:.2%} of the makespan{over_busy}."
    said = [f"Makespan {time(line.makespan, done.unit)}. {bubble} {line.messages:,} messages."]
    if line.span < line.makespan * (1 - 1e-9):
        share = max(line.span_bubble_share, 0.0)
        said.append(
            f"No rank works longer than {time(line.span, done.unit)} from first start to last end;"
            f" idle within that: {share:.2%}."
        )
    return said


def chart(done: Simulated) -> Chart:
    """The Gantt chart of a schedule, seconds shown as milliseconds."""
    return of_timeline(done.order, done.timeline, title(done), " ".join(figures(done)), done.unit)


def time(value: float, unit: str) -> str:
    """A time with its unit: the cost model's in milliseconds, numbers without a unit as they
    are.
    """
    return f"{value * 1e3:,.2f} ms" if unit == "s" else f"{value:.10g}"


RANK_COLUMNS = ("rank", "busy", "idle", "idle share", "in flight, chunks", "in flight, stages")


def rank_rows(done: Simulated) -> list[list[str]]:
    """A row a rank, under RANK_COLUMNS."""
    line, unit = done.timeline, done.unit
    columns = zip(line.busy.tolist(), line.idle.tolist(), line.peak_in_flight.tolist(), strict=True)
    return [
        [
            str(rank),
            time(busy, unit),
            time(idle, unit),
            f"{idle / (line.makespan or 1):.2%}",
            f"{peak:g}",
            f"{peak / done.v:g}",
        ]
        for rank, (busy, idle, peak) in enumerate(columns)
    ]


def _ranks(done: Simulated) -> RenderableType:
    rows = rank_rows(done)
    table = grid(*RANK_COLUMNS)
    half = MAX_RANKS // 2
    shown = (
        rows
        if len(rows) <= MAX_RANKS
        else [*rows[:half], ["..."] + [""] * (len(RANK_COLUMNS) - 1), *rows[-half:]]
    )
    for row in shown:
        table.add_row(*row)
    return table
