"""What several pages share: the question, the table of layouts, terms, formulas behind a click."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.cost.goodput import Goodput
from planner.cost.terms import Estimate
from planner.layout import SCHEDULES, Layout
from planner.pipeline.plan_timeline import plan_timeline
from planner.reasons import zero
from planner.references import REFERENCES
from planner.report.draw import plotly_charts
from planner.report.formulas import Formula, cost_formulas, keys
from planner.report.html.page import Grid, More, Section
from planner.report.text import explain, simulate
from planner.report.text.parts import (
    BATCH,
    GPUS,
    KIND,
    experts,
    figures,
    kind_rows,
    product,
    tflops,
)
from planner.report.text.parts import goodput as goodput_lines
from planner.report.text.parts import question as question_line
from planner.report.text.schedule_options import HEAD, rows, sentences
from planner.schedule_options import ScheduleOption
from planner.specs.recipe import Recipe
from planner.units import GIB

Rows = Sequence[tuple[str, Layout, Estimate]]


def question(recipe: Recipe) -> str:
    """The question in a line."""
    return f"{question_line(recipe).plain}."


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
    cells = []
    for name, layout, estimate in rows:
        cells.append(
            (
                name,
                f"{layout.gpus:,} = {product(layout, GPUS, ' x ')}",
                experts(layout),
                f"{layout.gbs:,} = {product(layout, BATCH, ' x ')}",
                str(layout.v),
                SCHEDULES[layout.schedule],
                zero(layout),
                layout.recomputation.replace(",", ", "),
                *figures(estimate),
            )
        )
    return Grid(head, tuple(cells))


def short(layout: Layout) -> str:
    """A layout's degrees as one label of a chart."""
    return " ".join([*plotly_charts.degrees(layout), f"mbs{layout.mbs}"])


def time_terms(estimate: Estimate) -> Grid:
    """Every term of the step in milliseconds, with what it is."""
    return _terms("ms", explain.time_rows(estimate))


def memory_terms(estimate: Estimate) -> Grid:
    """Every term of the worst stage's memory in GiB, with what it is."""
    return _terms("GiB", explain.memory_rows(estimate))


def _terms(unit: str, rows: list[explain.TermRow]) -> Grid:
    return Grid(("term", "what it is", unit, "share"), tuple(rows), 2, (len(rows) - 1,))


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
    return Grid(head, tuple(explain.stage_rows(estimate)))


def memory(estimate: Estimate) -> Section:
    """Memory of every stage with the limit, terms and stages behind a click."""
    terms = More("Terms of the worst stage", grid=memory_terms(estimate))
    if not estimate.stages:
        chart = plotly_charts.memory_by_term([("worst stage", estimate)])
        return Section("Memory by stage", charts=(chart,), more=(terms,))
    chart = plotly_charts.memory_by_stage(estimate)
    more = (terms, More("Stage by stage", grid=stages(estimate)))
    return Section("Memory by stage", charts=(chart,), more=more)


def by_kind(recipe: Recipe, layout: Layout) -> tuple[Section, ...]:
    """One layer of each kind, where there are several."""
    rows = tuple(kind_rows(recipe, layout))
    says = "One layer and one micro-batch; FLOPs over the GPUs that share it."
    return (Section("Layer by kind", (says,), Grid(KIND, rows)),) * (len(rows) > 1)


def schedules(options: Sequence[ScheduleOption], more: tuple[str, ...] = ()) -> Section:
    """What each schedule would give, the plan's own in bold; not drawn without a pipeline."""
    if not options:
        return Section("Under each schedule")
    shown = [option.own for option in options if not option.refused]
    grid = Grid(HEAD, tuple(rows(options)), strong=(shown.index(True),))
    return Section("Under each schedule", (*sentences(options), *more), grid)


def timeline(recipe: Recipe, layout: Layout) -> tuple[Section, ...]:
    """The Gantt chart of a plan's pipeline; nothing without one."""
    simulated = plan_timeline(recipe, layout)
    if simulated is None:
        return ()
    chart = plotly_charts.gantt(simulate.chart(simulated))
    return (Section("The pipeline's timeline", full_stops(simulated.assumed), charts=(chart,)),)


def assumed(recipe: Recipe, estimate: Estimate | None, goodput: Goodput | None = None) -> Section:
    """What was not stated or measured, and what interrupts the run."""
    assumptions = dict.fromkeys(recipe.assumed)
    if estimate is not None:
        assumptions |= dict.fromkeys(estimate.assumed)
    failures = tuple(line.plain for line in goodput_lines(goodput))
    return Section("Assumed", full_stops(assumptions) + failures)


def full_stops(clauses: Iterable[str]) -> tuple[str, ...]:
    """Each clause as a sentence."""
    return tuple(f"{clause}." for clause in clauses)


def formulas(used: list[Formula] | None = None, note: str = "") -> Section:
    """Formulas with source and assumptions, behind clicks by room: those used, or every one of the
    cost model.
    """
    rooms: dict[str, list[tuple[str, str]]] = {}
    cited: set[str] = set()
    for formula in cost_formulas() if used is None else used:
        rooms.setdefault(formula.room, []).append((formula.name, _formula(formula)))
        cited.update(keys(formula.source))
    more = [More(room, tuple(lines)) for room, lines in rooms.items()]
    more.append(More("Sources", tuple((key, REFERENCES[key]) for key in sorted(cited))))
    return Section("Formulas and sources", (note,) * bool(note), more=tuple(more))


def _formula(formula: Formula) -> str:
    return (
        f"{formula.says}\n{formula.formula}\nSource: {formula.source}\nAssumes: {formula.assumes}"
    )
