"""Forward-only pipelines as text for a person on 100 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.pipeline.serving.serve import Served
from planner.report.draw.gantt_chart import MAX_BARS, Chart, of_passage
from planner.report.text.gantt import gantt
from planner.report.text.parts import grid, paragraph, sentences

CHUNKS = 12
"""Chunk sizes printed; of more, the first ten and the last."""


def report(
    served: Served, others: Sequence[tuple[str, Served]], assumed: Sequence[str], width: int
) -> Group:
    """Title, figures, pictures, and the other ways to serve the same."""
    parts: list[RenderableType] = [Text(title(served), "bold")]
    for name, pool in served.pools or (("", served),):
        parts += _picture(name, pool, width)
    parts.append(_figures((("as asked", served), *served.pools)))
    if served.chunks:
        parts.append(paragraph("Chunks", chunks_in_words(served.chunks)))
    if len(others) > 1:
        parts += [Text("\nOther ways to serve the same", "bold"), _figures(others)]
    return Group(*parts, *sentences("Assumed", assumed), _words())


def title(served: Served) -> str:
    if served.passed is None:
        return "Two pools: prefill and decode apart"
    batches, stages = served.passed.starts.shape
    return (
        f"Forward only: {stages} stage{'s' * (stages > 1)}, {batches:,} batch{'es' * (batches > 1)}"
    )


def chart(served: Served) -> Chart:
    """The Gantt chart of one pool."""
    assert served.passed is not None and served.decodes is not None
    note = f"Makespan {served.makespan_ms:,.2f} ms, bubble {served.bubble_ratio:.2%}"
    if served.ttft_ms is not None:
        note += f", time to first token {served.ttft_ms:,.2f} ms"
    if served.tpot_ms is not None:
        note += f", token period {served.tpot_ms:,.2f} ms"
    return of_passage(served.passed, served.decodes, title(served), note)


def chunks_in_words(chunks: Sequence[int]) -> str:
    """How many, and their sizes: equal ones as a product."""
    first, last = chunks[0], chunks[-1]
    if len(chunks) > 1 and len(set(chunks[:-1])) == 1:
        if last == first:
            return f"{len(chunks)} x {first:,} tokens."
        return f"{len(chunks) - 1} x {first:,}, then {last:,} tokens."
    sizes = [f"{size:,}" for size in chunks]
    if len(sizes) > CHUNKS:
        sizes[10:-1] = ["..."]
    return f"{', '.join(sizes)} tokens."


def _picture(name: str, served: Served, width: int) -> list[RenderableType]:
    if served.passed is None or served.passed.starts.size > MAX_BARS:
        return []
    return [Text(name, "bold"), gantt(chart(served), width), Text()]


COLUMNS = ("ms", "makespan", "TTFT", "TPOT", "TPOT max", "tokens/s", "bubble", "max/mean", "chunks")


def row(name: str, served: Served) -> list[str]:
    """One way to serve, under COLUMNS."""
    return [
        name,
        _figure(served.makespan_ms),
        _figure(served.ttft_ms),
        _figure(served.tpot_ms),
        _figure(served.tpot_max_ms),
        _figure(served.tokens_per_s, 0),
        f"{served.bubble_ratio:.2%}",
        f"{served.max_over_mean:.2f}",
        _figure(None if served.chunks is None else len(served.chunks), 0),
    ]


def _figures(rows: Sequence[tuple[str, Served]]) -> RenderableType:
    table = grid(*COLUMNS)
    for name, served in rows:
        table.add_row(*row(name, served))
    return table


def _figure(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _words() -> Text:
    return Text(
        "TTFT: time to first token, the end of the last prefill chunk on the last stage. TPOT: time"
        " per output token, the period of a round of the decode groups. bubble: idle time / (stages"
        " x makespan). max/mean: the largest batch over the mean.",
        "dim",
    )
