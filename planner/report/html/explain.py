"""The report of `ppplan explain`: one layout in full."""

from __future__ import annotations

from planner.answers import Explanation
from planner.layout import SCHEDULES
from planner.report.draw import plotly_charts
from planner.report.html import parts
from planner.report.html.page import Grid, More, Page, Section
from planner.report.text.explain import in_flight, switch_rows, used_formulas
from planner.units import MIB


def page(answer: Explanation) -> Page:
    """Every term of time and memory, stage by stage, the timeline, what plain schedules would hold,
    formulas.
    """
    recipe, layout, estimate = answer.recipe, answer.layout, answer.estimate
    broken = (
        [Section("It breaks a rule", tuple(row.message for row in answer.breaches), alert=True)]
        if answer.breaches
        else []
    )
    sent = estimate.p2p
    sections = (
        *broken,
        Section(
            "The layout",
            grid=parts.layouts([(SCHEDULES[layout.schedule], layout, estimate)], "schedule"),
        ),
        Section(
            "Time of a step",
            charts=(plotly_charts.time_by_term([(parts.short(layout), estimate)]),),
            more=(More("Every term", grid=parts.time_terms(estimate)),),
        ),
        parts.memory(estimate),
        *parts.by_kind(recipe, layout),
        *parts.timeline(recipe, layout),
        Section(
            "Switches of the software",
            grid=Grid(("switch", "value", "what it is worth, or does"), tuple(switch_rows(answer))),
        ),
        parts.schedules(answer.schedules, (in_flight(answer),)),
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
        parts.assumed(recipe, estimate, answer.goodput),
        parts.formulas(*used_formulas(answer)),
    )
    return Page(
        f"{recipe.model.name} as {parts.short(layout)}",
        (parts.question(recipe),),
        parts.headline(estimate),
        sections,
    )
