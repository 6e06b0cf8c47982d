"""The reports of `ppplan explain`: one layout in full, or a table over swept words."""

from __future__ import annotations

from planner.answers import Explanation, Sweep, SweepRow
from planner.layout import SCHEDULES
from planner.report.draw import plotly_charts
from planner.report.html import pieces
from planner.report.html.page import Grid, More, Page, Section
from planner.report.text.explain import in_flight_says
from planner.units import GIB, MIB


def explanation(answer: Explanation) -> Page:
    """Every term of time and memory, stage by stage, the timeline, what plain schedules would hold,
    formulas.
    """
    recipe, layout, said = answer.recipe, answer.layout, answer.estimate
    broken = (
        [Section("It breaks a rule", tuple(one.message for one in answer.breaches), alert=True)]
        if answer.breaches
        else []
    )
    beside = tuple(
        (
            one.schedule,
            f"{one.in_flight:.2f}",
            f"{one.estimate.memory_bytes / GIB:.1f}",
            f"{one.estimate.bubble_share:z.1%}",
            f"{one.estimate.step_s:.3f}",
        )
        for one in answer.beside
    )
    sent = said.p2p
    sections = (
        *broken,
        Section(
            "The layout",
            grid=pieces.layouts([(SCHEDULES[layout.schedule], layout, said)], "schedule"),
        ),
        Section(
            "Time of a step",
            charts=(plotly_charts.time_by_term([(pieces.short(layout), said)]),),
            more=(More("Every term", grid=pieces.time_terms(said)),),
        ),
        pieces.memory(said),
        *pieces.timeline(recipe, layout),
        Section(
            "Activations in flight",
            (in_flight_says(answer).plain,),
            Grid(("plain schedule, v 1", "in flight", "memory, GiB", "bubble", "step, s"), beside),
        ),
        Section(
            "Transfers between stages",
            (
                (
                    f"{sent.tensors_per_step:,.0f} activation tensors a step of"
                    f" {sent.bytes_per_tensor / MIB:,.2f} MiB each;"
                    f" {sent.bytes_per_link_per_step / MIB:,.1f} MiB a link, one way."
                ),
            ),
        ),
        pieces.assumed(recipe, said, answer.goodput),
        pieces.formulas(),
    )
    return Page(
        f"{recipe.model.name} as {pieces.short(layout)}",
        (pieces.question(recipe),),
        pieces.headline(said),
        sections,
    )


def sweep(answer: Sweep) -> Page:
    """The table of the sweep and the curve of its first word."""
    recipe = answer.recipe
    words = list(answer.rows[0].words)
    head = (*words, "step, s", "tokens/s a GPU", "MFU", "bubble", "memory, GiB", "OOM", "why not")
    rows = tuple((*(str(row.words[word]) for word in words), *_cells(row)) for row in answer.rows)
    curve = _curve(answer, words)
    lead = (pieces.question(recipe), f"Swept: {', '.join(words)}.")
    table = Section("All points", grid=Grid(head, rows, len(words)))
    return Page(
        f"{recipe.model.name}: a sweep over {', '.join(words)}",
        lead,
        (),
        (*curve, table, pieces.assumed(recipe, None)),
    )


def _cells(row: SweepRow) -> tuple[str, ...]:
    said = row.estimate
    why = (
        row.breaches[0].message
        if row.breaches
        else ""
        if said is not None and said.fits
        else "does not fit"
    )
    if said is None:
        return ("", "", "", "", "", "", why)
    return (
        f"{said.step_s:.3f}",
        f"{said.tokens_per_s_per_gpu:,.0f}",
        f"{said.mfu:.1%}",
        f"{said.bubble_share:z.1%}",
        f"{said.memory_bytes / GIB:.1f}",
        f"{said.oom_probability:.0%}",
        why,
    )


def _curve(answer: Sweep, words: list[str]) -> list[Section]:
    """Throughput over the last word, one curve for each value of the others; only where that word
    is a number.
    """
    last, others = words[-1], words[:-1]
    series: dict[str, tuple[list[float], list[float]]] = {}
    for row in answer.rows:
        value = row.words[last]
        if row.estimate is None or not str(value).replace(".", "").isdigit():
            continue
        name = ", ".join(f"{word} {row.words[word]}" for word in others) or "all"
        xs, ys = series.setdefault(name, ([], []))
        xs.append(float(value))
        ys.append(float(row.estimate.tokens_per_s_per_gpu))
    if not series:
        return []
    return [
        Section(
            "Throughput",
            charts=(
                plotly_charts.lines(series, last, "tokens/s a GPU", f"Tokens/s a GPU over {last}."),
            ),
        )
    ]
