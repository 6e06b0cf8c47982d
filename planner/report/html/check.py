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
    lead = [f"{verdict_says(answer)[0]}."]
    if launch.sized:
        lead.append(parts.question(launch.recipe))
    sections = [
        *_findings(answer),
        *_costs(answer),
        *_oom(answer),
        *_measured(answer),
        _unknown(answer),
        _values(answer),
        _fixed(answer),
        parts.assumed(launch.recipe, estimate),
    ]
    title = f"Check of {answer.file}"
    if estimate is None:
        return Page(title, tuple(lead), (), tuple(sections))
    sections.append(parts.formulas())
    return Page(title, tuple(lead), parts.headline(estimate), tuple(sections))


def _findings(answer: Checked) -> list[Section]:
    """One section a severity; of each finding all ways out behind a click."""
    kind = answer.launch.reading.kind
    titles = {
        "error": "Errors: it stops, or cannot fit",
        "warning": "Warnings: not what it seems",
        "hint": "Hints: could be better",
    }
    sections = []
    for severity, title in titles.items():
        findings = [finding for finding in answer.findings if finding.severity == severity]
        lines = tuple(_line(finding, kind) for finding in findings)
        ways = tuple(_ways(finding, kind) for finding in findings if len(finding.ways) > 1)
        sections.append(Section(title, lines, more=ways, alert=severity == "error"))
    return sections


def _line(finding: Finding, kind: str) -> str:
    line = f"{finding.rule}: {finding.message}."
    if finding.ways and finding.ways[0].values:
        line += f" Fix: {flag_line(kind, finding.ways[0].values)}."
    return line


def _ways(finding: Finding, kind: str) -> More:
    rows = tuple(
        (
            flag_line(kind, way.values),
            way.says,
            _figure(way.step_s, ".3g"),
            _figure(way.memory_gib, ".1f"),
        )
        for way in finding.ways
    )
    return More(
        f"Ways out: {finding.rule}",
        grid=Grid(("change", "what it gives", "step, s", "memory, GiB"), rows, 2),
    )


def _figure(value: float | None, digits: str) -> str:
    return "" if value is None else f"{value:{digits}}"


def _costs(answer: Checked) -> list[Section]:
    """The stated layout beside the best one: table, time by term, memory by stage."""
    if answer.estimate is None:
        return []
    rows = [("stated", answer.launch.layout, answer.estimate)]
    if answer.best:
        rows.append(("best", answer.best.layout, answer.best.estimate))
    named = [(f"{name}: {parts.short(layout)}", estimate) for name, layout, estimate in rows]
    schedule = SCHEDULES[answer.launch.layout.schedule]
    return [
        Section(
            "Layouts", (f"The stated schedule is {schedule}.",), grid=parts.layouts(rows, "plan")
        ),
        Section(
            "Time of a step",
            charts=(plotly_charts.time_by_term(named),),
            more=(More("Every term of the stated layout", grid=parts.time_terms(answer.estimate)),),
        ),
        parts.memory(answer.estimate),
        *parts.by_kind(answer.launch.recipe, answer.launch.layout),
        parts.schedules(answer.schedules),
    ]


def _oom(answer: Checked) -> list[Section]:
    if answer.oom is None:
        return []
    title = "The tensor that the error message names"
    rows = tuple(
        (match["tensor"], match["arithmetic"], "exact" if match["exact"] else "near")
        for match in answer.oom["matches"]
    )
    if rows:
        return [Section(title, grid=Grid(("tensor", "arithmetic", "match"), rows, 3))]
    none = "No tensor of this launch has the size that the message asks for."
    return [Section(title, (str(answer.oom.get("says", none)),))]


def _measured(answer: Checked) -> list[Section]:
    rows = tuple(
        (name.replace("_", " "), f"{value:.4g}")
        for name, value in (answer.measured or {}).items()
        if isinstance(value, int | float)
    )
    return [Section("Measured, from the log", grid=Grid(("figure", "value"), rows))] * bool(rows)


def _unknown(answer: Checked) -> Section:
    launch = answer.launch
    lines = []
    for value in launch.unresolved:
        where = f" ({value.where})" * bool(value.where)
        lines.append(f"{value.name}: {value.why}{where}")
    if launch.reading.unknown:
        lines.append(f"Unknown flags, kept: {', '.join(launch.reading.unknown)}")
    return Section("Not known", (*lines, *launch.reading.notes))


def _values(answer: Checked) -> Section:
    """Every value with its provenance, a click for each kind of origin."""
    values = answer.launch.values
    more = []
    for origin, says in ORIGINS.items():
        rows = tuple(
            (name, str(shown(value)), value.where)
            for name, value in values.items()
            if value.origin == origin
        )
        if rows:
            grid = Grid(("name", "value", "where"), rows, 3)
            more.append(More(f"{len(rows)} {says}", grid=grid))
    return Section(
        "Where every value comes from",
        (f"{len(values)} values were read or taken as defaults.",),
        more=tuple(more),
    )


def _fixed(answer: Checked) -> Section:
    if not answer.fixed:
        return Section("Written again")
    rows = tuple((line,) for line in answer.diff.splitlines())
    changes = More("The changes", grid=Grid(("diff",), rows))
    return Section("Written again", (f"Files: {', '.join(answer.fixed)}.",), more=(changes,))
