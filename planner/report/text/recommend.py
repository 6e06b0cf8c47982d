"""Answers as text for a person on 100 columns: one table whose columns show the arithmetic, then
reasons, then files.
"""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.text import Text

from planner.answers import Explanation, Known, Recommendation, Sweep
from planner.report.text.parts import (
    bullets,
    goodput,
    heading,
    more_assumed,
    paragraph,
    plans,
    splits,
    unusual,
)
from planner.search import SearchResult
from planner.specs.recipe import Recipe
from planner.units import GIB

REMOVED = 6
"""Rules named of those that removed layouts."""


def ranking(answer: Recommendation) -> Group:
    """What `recommend` prints."""
    found = answer.search
    if found is None:
        return Group(
            Text(
                f"No layout of {answer.recipe.model.name} fits any number of"
                f" {answer.recipe.hardware.name} GPUs.",
                "bold red",
            )
        )
    parts: list[Any] = [heading(answer.recipe)]
    if found.plans:
        parts += [
            plans([(str(plan.rank), plan.layout, plan.estimate) for plan in found.plans], "#"),
            *splits(answer.recipe, [(str(plan.rank), plan.layout) for plan in found.plans]),
            *reasons(found),
            *more_assumed(answer.recipe, found.plans[0].estimate),
            *goodput(answer.goodput),
        ]
    else:
        parts += nothing_fits(answer.recipe, found)
    if answer.min_gpus:
        parts.append(
            paragraph(
                "Smallest",
                f"{answer.min_gpus:,} GPUs are the fewest on which a layout"
                f" fits{whole_nodes(answer)}.",
            )
        )
    parts.append(paragraph("Search", counts(found)))
    return Group(*parts, files(answer))


def whole_nodes(answer: Recommendation) -> str:
    """What counts were looked at: a part of a node only below one."""
    node = answer.recipe.hardware.node.gpus
    return f", of whole nodes of {node}" if (answer.min_gpus or 0) > node else ""


def reasons(found: SearchResult) -> list[Any]:
    best = found.plans[0]
    parts: list[Any] = [Text("Why plan 1:", "bold"), bullets(best.why)] if best.why else []
    low, high = best.estimate.step_s_low, best.estimate.step_s_high
    parts.append(
        paragraph(
            "Range",
            f"a step of plan 1 takes {low:.2f} to {high:.2f} s in 80% of runs like it; "
            f"{best.estimate.memory_limit_bytes / GIB:.1f} GiB are usable.",
        )
    )
    return parts + ([paragraph("Limits", found.limits)] if found.limits else [])


def nothing_fits(recipe: Recipe, found: SearchResult) -> list[Any]:
    """The answer no: the nearest changes that would let a layout fit."""
    parts: list[Any] = [
        Text("No layout fits." if found.legal else "No layout is legal.", "bold red")
    ]
    if found.limits:
        parts.append(paragraph("Limits", found.limits))
    for near in found.nearest or ():
        parts += [
            Text.assemble("\nIt would fit: ", (near.change, "bold")),
            plans([(unusual(near.layout), near.layout, near.estimate)]),
            *splits(recipe, [("", near.layout)]),
        ]
    return parts


def counts(found: SearchResult) -> str:
    removed = sorted(found.removed.items(), key=lambda item: -item[1])
    named = "; ".join(f"{rule} {count:,}" for rule, count in removed[:REMOVED])
    more = f"; {len(removed) - REMOVED} more rules" if len(removed) > REMOVED else ""
    gone = f" Removed: {named}{more}." if removed else ""
    return (
        f"{found.enumerated:,} layouts in {found.seconds:.2f} s: {found.legal:,} legal,"
        f" {found.fit:,} fit.{gone}"
    )


def files(answer: Recommendation) -> Text:
    if answer.files:
        return paragraph(
            "Files",
            ", ".join(answer.files)
            + (f"; launch files not written: {answer.refused}" if answer.refused else ""),
        )
    if answer.search and answer.search.plans:
        return paragraph(
            "Files", "none written; --out DIR writes plan.yaml and the launch script of plan 1."
        )
    return Text()


def explanation(answer: Explanation) -> Group:
    """What `explain` prints."""
    from planner.report.text import explain

    return Group(brief(answer), *explain.formulas(answer))


def brief(answer: Explanation) -> Group:
    """What `explain --no-formulas` prints."""
    from planner.report.text import explain

    table = plans([(unusual(answer.layout), answer.layout, answer.estimate)])
    return Group(
        heading(answer.recipe),
        table,
        *splits(answer.recipe, [("", answer.layout)]),
        *explain.parts(answer),
    )


def sweep(answer: Sweep) -> Group:
    """What `explain --sweep` prints."""
    from planner.report.text import sweep

    return Group(
        heading(answer.recipe, sweep.batches(answer)), sweep.table(answer), *sweep.notes(answer)
    )


def known(answer: Known) -> Group:
    """What `models`, `clusters`, `schedules` and `stacks` print."""
    from planner.report.text import listing

    return Group(*listing.parts(answer))
