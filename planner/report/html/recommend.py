"""The report of `ppplan recommend`."""

from __future__ import annotations

from planner.answers import Recommendation
from planner.report.draw import plotly_charts
from planner.report.html import parts
from planner.report.html.page import Grid, More, Page, Section
from planner.report.text.recommend import counts, why_others
from planner.search import SearchResult


def page(answer: Recommendation) -> Page:
    """The plans, why, where time and memory go, the whole search as a picture; or why nothing fits
    and what would.
    """
    recipe, result = answer.recipe, answer.search
    title = f"How to train {recipe.model.name} on {recipe.gpus:,} x {recipe.hardware.name}"
    if result is None or not result.plans:
        return Page(
            title, (parts.question(recipe),), (), (*_nothing(answer), parts.assumed(recipe, None))
        )
    best = result.plans[0]
    rows = [
        (f"{plan.rank} {', '.join(plan.roles)}", plan.layout, plan.estimate)
        for plan in result.plans
    ]
    others = tuple(f"{line}." for line in why_others(result.plans))
    named = [(f"{plan.rank}: {parts.short(plan.layout)}", plan.estimate) for plan in result.plans]
    lead = (
        parts.question(recipe),
        f"Best: {parts.short(best.layout)}. Limited by {result.limits}." if result.limits else "",
    )
    sections = (
        Section("Plans", others, grid=parts.layouts(rows, "plan")),
        *([Section("Why plan 1", tuple(f"- {line}" for line in best.why))] if best.why else []),
        Section(
            "Time of a step",
            charts=(plotly_charts.time_by_term(named),),
            more=(More("Terms of plan 1", grid=parts.time_terms(best.estimate)),),
        ),
        parts.memory(best.estimate),
        *parts.by_kind(recipe, best.layout),
        *parts.timeline(recipe, best.layout),
        parts.schedules(answer.schedules),
        *_searched(answer, result),
        parts.assumed(recipe, best.estimate, answer.goodput),
        parts.formulas(),
    )
    return Page(title, lead, parts.headline(best.estimate), sections)


def _searched(answer: Recommendation, result: SearchResult) -> list[Section]:
    """All layouts that were looked at, and the rules that removed others."""
    if result.computed is None or not len(result.computed.step_s):
        return []
    plans = [(plan.layout, plan.estimate) for plan in result.plans]
    cloud = plotly_charts.search_cloud(
        result.computed, plans, answer.recipe.tokens, answer.recipe.gpus
    )
    removed = Grid(
        ("rule", "layouts removed"),
        tuple((rule, f"{count:,}") for rule, count in result.counts.removed.most_common()),
    )
    return [
        Section(
            "Everything that was searched",
            (counts(result),),
            charts=(cloud,),
            more=(More("Rules", grid=removed),),
        )
    ]


def _nothing(answer: Recommendation) -> tuple[Section, ...]:
    result = answer.search
    if result is None:
        return (Section("No layout fits", ("No number of GPUs is enough.",), alert=True),)
    near = [(change.change, change.layout, change.estimate) for change in result.nearest or ()]
    changes = [Section("It would fit with", grid=parts.layouts(near, "change"))] if near else []
    verdict = "No layout fits." if result.legal else "No layout is legal."
    return (
        Section(
            "The answer is no",
            (verdict, *([result.limits] if result.limits else []), counts(result)),
            alert=True,
        ),
        *changes,
        *_searched(answer, result),
    )
