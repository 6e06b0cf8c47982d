"""The report of `ppplan check`: the verdict, findings with their ways out, memory by stage, time
against the best plan, provenance.
"""

from __future__ import annotations

from planner.advice.findings import Checked, Finding
from planner.advice.flag_names import flag_line
from planner.layout import SCHEDULES
from planner.report.draw import plotly_charts
from planner.report.html import parts
from planner.report.html.page import Grid, More, Page, Section
from planner.report.json.check import shown
from planner.report.text.check import verdict_says

ORIGINS = {
    "flag": "written as such",
    "variable": "through a variable",
    "environment": "from the environment",
    "option": "from --set or an option",
    "default": "the framework's default",
}


def page(answer: Checked) -> Page:
    """Everything that `check` prints, and every value with the place it came from."""
    launch, estimate = answer.launch, answer.estimate
    lead = (
        verdict_says(answer)[0] + ".",
        *((parts.question(launch.recipe),) if launch.sized else ()),
    )
    sections = (
        *_findings(answer),
        *_costs(answer),
        *_oom(answer),
        *_measured(answer),
        *_unknown(answer),
        _values(answer),
        *_fixed(answer),
        parts.assumed(launch.recipe, estimate),
        *([parts.formulas()] if estimate is not None else []),
    )
    return Page(
        f"Check of {answer.file}", lead, parts.headline(estimate) if estimate else (), sections
    )


def _findings(answer: Checked) -> list[Section]:
    """One section a severity; of each finding all ways out behind a click."""
    kind = answer.launch.reading.kind
    titles = {
        "error": "Errors: it stops, or cannot fit",
        "warning": "Warnings: not what it seems",
        "hint": "Hints: could be better",
    }
    out = []
    for severity, title in titles.items():
        found = [one for one in answer.findings if one.severity == severity]
        if found:
            lines = tuple(_line(one, kind) for one in found)
            out.append(
                Section(
                    title,
                    lines,
                    more=tuple(_ways(one, kind) for one in found if len(one.ways) > 1),
                    alert=severity == "error",
                )
            )
    return out


def _line(finding: Finding, kind: str) -> str:
    fix = (
        f" Fix: {flag_line(kind, finding.ways[0].values)}."
        if finding.ways and finding.ways[0].values
        else ""
    )
    return f"{finding.rule}: {finding.message}.{fix}"


def _ways(finding: Finding, kind: str) -> More:
    rows = tuple(
        (
            flag_line(kind, way.values),
            way.says,
            "" if way.step_s is None else f"{way.step_s:.3g}",
            "" if way.memory_gib is None else f"{way.memory_gib:.1f}",
        )
        for way in finding.ways
    )
    return More(
        f"Ways out: {finding.rule}",
        grid=Grid(("change", "what it gives", "step, s", "memory, GiB"), rows, 2),
    )


def _costs(answer: Checked) -> list[Section]:
    """The stated layout beside the best one: table, time by term, memory by stage."""
    if answer.estimate is None:
        return []
    rows = [("stated", answer.launch.layout, answer.estimate)]
    rows += [("best", answer.best.layout, answer.best.estimate)] if answer.best else []
    schedule = SCHEDULES[answer.launch.layout.schedule]
    return [
        Section(
            "Layouts", (f"The stated schedule is {schedule}.",), grid=parts.layouts(rows, "plan")
        ),
        Section(
            "Time of a step",
            charts=(
                plotly_charts.time_by_term(
                    [(f"{name}: {parts.short(layout)}", said) for name, layout, said in rows]
                ),
            ),
            more=(More("Every term of the stated layout", grid=parts.time_terms(answer.estimate)),),
        ),
        parts.memory(answer.estimate),
    ]


def _oom(answer: Checked) -> list[Section]:
    if answer.oom is None:
        return []
    rows = tuple(
        (one["tensor"], one["arithmetic"], "exact" if one["exact"] else "near")
        for one in answer.oom["matches"]
    )
    says = (
        ()
        if rows
        else (
            str(
                answer.oom.get(
                    "says", "No tensor of this launch has the size that the message asks for."
                )
            ),
        )
    )
    return [
        Section(
            "The tensor that the error message names",
            says,
            Grid(("tensor", "arithmetic", "match"), rows, 3) if rows else None,
        )
    ]


def _measured(answer: Checked) -> list[Section]:
    told = (answer.measured or {}).items()
    rows = tuple(
        (name.replace("_", " "), f"{value:.4g}")
        for name, value in told
        if isinstance(value, int | float)
    )
    return [Section("Measured, from the log", grid=Grid(("figure", "value"), rows))] if rows else []


def _unknown(answer: Checked) -> list[Section]:
    launch = answer.launch
    lines = [
        f"{one.name}: {one.why}" + (f" ({one.where})" if one.where else "")
        for one in launch.unresolved
    ]
    lines += (
        [f"Unknown flags, kept: {', '.join(launch.reading.unknown)}"]
        if launch.reading.unknown
        else []
    )
    return (
        [Section("Not known", (*lines, *launch.reading.notes))]
        if lines or launch.reading.notes
        else []
    )


def _values(answer: Checked) -> Section:
    """Every value with its provenance, a click for each kind of origin."""
    values = answer.launch.values
    more = []
    for origin, says in ORIGINS.items():
        rows = tuple(
            (name, str(shown(one)), one.where)
            for name, one in values.items()
            if one.origin == origin
        )
        more += (
            [More(f"{len(rows)} {says}", grid=Grid(("name", "value", "where"), rows, 3))]
            if rows
            else []
        )
    return Section(
        "Where every value comes from",
        (f"{len(values)} values were read or taken as defaults.",),
        more=tuple(more),
    )


def _fixed(answer: Checked) -> list[Section]:
    if not answer.fixed:
        return []
    rows = tuple((line,) for line in answer.diff.splitlines())
    return [
        Section(
            "Written again",
            (f"Files: {', '.join(answer.fixed)}.",),
            more=(More("The changes", grid=Grid(("diff",), rows)),),
        )
    ]
