"""What several pages share: the question, the table of layouts, terms, formulas behind a click."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from planner.cost.goodput import Goodput
from planner.cost.terms import Estimate, Memory, StepTime
from planner.layout import SCHEDULES, Layout
from planner.pipeline.plan_timeline import plan_timeline
from planner.references import REFERENCES
from planner.report.draw import plotly_charts
from planner.report.formulas import Formula, cost_formulas, keys, meanings
from planner.report.html.page import Grid, More, Section
from planner.report.text import simulate
from planner.report.text.parts import experts, tflops, zero
from planner.report.text.parts import goodput as goodput_lines
from planner.specs.recipe import Recipe
from planner.units import GIB

Rows = Sequence[tuple[str, Layout, Estimate]]


def question(recipe: Recipe) -> str:
    """The question in a line."""
    return (
        f"{recipe.model.name} on {recipe.gpus:,} x {recipe.hardware.name}:"
        f" {recipe.global_batch_size:,} sequences of {recipe.seq_length:,} tokens a step,"
        f" {recipe.precision}, {recipe.framework} {recipe.framework_version} ({recipe.stack.name})."
    )


def headline(estimate: Estimate) -> tuple[tuple[str, str], ...]:
    """The few figures that a reader looks for first."""
    return (
        (
            f"{estimate.step_s:,.3g} s",
            (
                f"a step; 80% of runs like it: {estimate.step_s_low:,.3g} to"
                f" {estimate.step_s_high:,.3g} s"
            ),
        ),
        (f"{estimate.tokens_per_s_per_gpu:,.0f} tokens/s", "a GPU"),
        (f"{tflops(estimate, ',')} TFLOP/s", f"a GPU, MFU {estimate.mfu:.1%}"),
        (
            f"{estimate.memory_bytes / GIB:.1f} GiB",
            (
                f"of {estimate.memory_limit_bytes / GIB:.1f} GiB, OOM probability"
                f" {estimate.oom_probability:.0%}"
            ),
        ),
        (f"{estimate.bubble_share:z.1%}", "pipeline bubble, share of the step"),
    )


def layouts(rows: Rows, first: str) -> Grid:
    """Layouts with the arithmetic of their columns."""
    head = (
        first,
        "GPUs = tp x pp x dp x cp",
        "ep",
        "batch = dp x mbs x m",
        "v",
        "schedule",
        "zero",
        "recompute",
        "step, s",
        "TFLOP/s a GPU",
        "MFU",
        "bubble",
        "memory, GiB",
        "OOM",
    )
    cells = tuple(
        (
            name,
            f"{one.gpus:,} = {one.tp} x {one.pp} x {one.dp} x {one.cp}",
            experts(one),
            f"{one.gbs:,} = {one.dp} x {one.mbs} x {one.m}",
            str(one.v),
            SCHEDULES[one.schedule],
            zero(one),
            one.recomputation.replace(",", ", "),
            f"{said.step_s:.3f}",
            tflops(said),
            f"{said.mfu:.1%}",
            f"{said.bubble_share:z.1%}",
            f"{said.memory_bytes / GIB:.1f}",
            f"{said.oom_probability:.0%}",
        )
        for name, one, said in rows
    )
    return Grid(head, cells)


def short(layout: Layout) -> str:
    """A layout's degrees as one label of a chart."""
    words = [
        f"{name}{getattr(layout, name)}"
        for name in ("tp", "pp", "dp", "cp", "ep", "v")
        if getattr(layout, name) > 1
    ]
    return " ".join([*words, f"mbs{layout.mbs}"])


def time_terms(estimate: Estimate) -> Grid:
    """Every term of the step in milliseconds, with what it is."""
    means = meanings(StepTime)
    terms = [(f.name, float(getattr(estimate.time, f.name))) for f in fields(estimate.time)]
    rows = [
        (
            name.removesuffix("_s"),
            means[name],
            f"{value * 1e3:,.1f}",
            f"{value / estimate.step_s:.1%}",
        )
        for name, value in terms
        if value
    ]
    return Grid(
        ("term", "what it is", "ms", "share"),
        (*rows, ("step", "", f"{estimate.step_s * 1e3:,.1f}", "100%")),
        2,
        (len(rows),),
    )


def memory_terms(estimate: Estimate) -> Grid:
    """Every term of the worst stage's memory in GiB, with what it is."""
    means = meanings(Memory)
    terms = [(f.name, float(getattr(estimate.memory, f.name))) for f in fields(estimate.memory)]
    rows = [
        (
            name.removesuffix("_bytes"),
            means[name],
            f"{value / GIB:.2f}",
            f"{value / estimate.memory_bytes:.1%}",
        )
        for name, value in terms
        if value
    ]
    return Grid(
        ("term", "what it is", "GiB", "share"),
        (*rows, ("device", "", f"{estimate.memory_bytes / GIB:.2f}", "100%")),
        2,
        (len(rows),),
    )


def stages(estimate: Estimate) -> Grid:
    """Stage by stage."""
    head = (
        "stage",
        "layers",
        "parameters a GPU",
        "forward, ms",
        "backward, ms",
        "in flight, stages",
        "memory, GiB",
    )
    rows = tuple(
        (
            str(one.stage),
            str(one.layers),
            f"{one.params:,}",
            f"{one.forward_s * 1e3:.3f}",
            f"{one.backward_s * 1e3:.3f}",
            f"{one.in_flight:.2f}",
            f"{one.memory_bytes / GIB:.2f}",
        )
        for one in estimate.stages
    )
    return Grid(head, rows)


def memory(estimate: Estimate) -> Section:
    """Memory of every stage with the limit, terms and stages behind a click."""
    more = (
        More("Terms of the worst stage", grid=memory_terms(estimate)),
        More("Stage by stage", grid=stages(estimate)),
    )
    chart = (
        plotly_charts.memory_by_stage(estimate)
        if estimate.stages
        else plotly_charts.memory_by_term([("worst stage", estimate)])
    )
    return Section("Memory by stage", charts=(chart,), more=more if estimate.stages else more[:1])


def timeline(recipe: Recipe, layout: Layout) -> tuple[Section, ...]:
    """The Gantt chart of a plan's pipeline; nothing without one."""
    done = plan_timeline(recipe, layout)
    if done is None:
        return ()
    return (
        Section(
            "The pipeline's timeline",
            (*(f"{one}." for one in done.assumed),),
            charts=(plotly_charts.gantt(simulate.chart(done)),),
        ),
    )


def assumed(recipe: Recipe, estimate: Estimate | None, goodput: Goodput | None = None) -> Section:
    """What was not stated or measured, and what interrupts the run."""
    every = tuple(dict.fromkeys((*recipe.assumed, *(estimate.assumed if estimate else ()))))
    return Section(
        "Assumed",
        tuple(f"{one}." for one in every) + tuple(line.plain for line in goodput_lines(goodput)),
    )


def formulas(used: list[Formula] | None = None, note: str = "") -> Section:
    """Formulas with source and assumptions, behind clicks by room: those used, or every one of the
    cost model.
    """
    found = cost_formulas() if used is None else used
    rooms = dict.fromkeys(one.room for one in found)
    said = {
        room: tuple((one.name, _formula(one)) for one in found if one.room == room)
        for room in rooms
    }
    more = tuple(More(room, lines) for room, lines in said.items())
    cited = sorted({key for one in found for key in keys(one.source)})
    return Section(
        "Formulas and sources",
        (note,) if note else (),
        more=(*more, More("Sources", tuple((key, REFERENCES[key]) for key in cited))),
    )


def _formula(formula: Formula) -> str:
    return (
        f"{formula.says}\n{formula.formula}\nSource: {formula.source}\nAssumes: {formula.assumes}"
    )


def bullets(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"- {line}" for line in lines)
