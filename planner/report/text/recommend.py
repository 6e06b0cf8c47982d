"""The answer of `recommend` as text on 100 columns: one table whose columns show the arithmetic,
then reasons, then files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from planner.answers import Recommendation
from planner.numerics import Held
from planner.report.text.parts import (
    WIDTH,
    bullets,
    goodput,
    heading,
    more_assumed,
    paragraph,
    plans,
    splits,
    unusual,
)
from planner.report.text.schedule_options import tabled
from planner.search import Plan, SearchResult
from planner.specs.recipe import Recipe
from planner.specs.switches import table
from planner.switch_gains import acting, stated, worth
from planner.units import GIB

MAX_RULES = 6
"""Rules named of those that removed layouts."""


def text(answer: Recommendation) -> Group:
    """The plans and why, or the nearest changes that would let a layout fit."""
    result = answer.search
    if result is None:
        return Group(
            Text(
                f"No layout of {answer.recipe.model.name} fits any number of"
                f" {answer.recipe.hardware.name} GPUs.",
                "bold red",
            )
        )
    parts: list[Any] = [heading(answer.recipe)]
    if result.plans:
        parts += [
            ranked(result.plans),
            *splits(answer.recipe, [(str(plan.rank), plan.layout) for plan in result.plans]),
            *others(why_others(result.plans)),
            *reasons(result),
            *switches(answer),
            *more_assumed(answer.recipe, result.plans[0].estimate),
            *schedules(answer),
            *goodput(answer.goodput),
        ]
    else:
        parts += nothing_fits(answer.recipe, result)
    if answer.min_gpus:
        parts.append(
            paragraph(
                "Smallest",
                f"{answer.min_gpus:,} GPUs are the fewest on which a layout"
                f" fits{whole_nodes(answer)}.",
            )
        )
    parts.append(paragraph("Search", counts(result)))
    return Group(*parts, files(answer))


def ranked(found: Sequence[Plan]) -> Table:
    """The plans, with their roles where these leave the table narrow enough."""
    rows = [(plan, "\n  ".join(plan.roles)) for plan in found]
    wide = plans([(f"{p.rank} {names}", p.layout, p.estimate) for p, names in rows], "#")
    if Console(width=4 * WIDTH).measure(wide).maximum <= WIDTH:
        return wide
    return plans([(str(plan.rank), plan.layout, plan.estimate) for plan in found], "#")


def others(lines: Sequence[str]) -> list[Any]:
    return [Text("The others:", "bold"), bullets(lines)] if lines else []


def why_others(found: Sequence[Plan]) -> list[str]:
    """What the plans after the first are shown for, a line each."""
    return [f"{plan.rank}: {'; '.join(plan.why)}" for plan in found[1:] if plan.roles]


def whole_nodes(answer: Recommendation) -> str:
    """Which GPU counts were looked at: parts of a node only below one node."""
    node = answer.recipe.hardware.node.gpus
    return f", of whole nodes of {node}" if (answer.min_gpus or 0) > node else ""


def reasons(result: SearchResult) -> list[Any]:
    best = result.plans[0]
    parts: list[Any] = []
    if best.why:
        parts += [Text("Why plan 1:", "bold"), bullets(best.why)]
    low, high = best.estimate.step_s_low, best.estimate.step_s_high
    parts.append(
        paragraph(
            "Range",
            f"a step of plan 1 takes {low:.2f} to {high:.2f} s in 80% of runs like it; "
            f"{best.estimate.memory_limit_bytes / GIB:.1f} GiB are usable.",
        )
    )
    if result.limits:
        parts.append(paragraph("Limits", result.limits))
    return parts


def switches(answer: Recommendation) -> list[Any]:
    """What the switches of plan 1 are worth, and what others would save."""
    plan, recipe = answer.plans[0], answer.recipe
    on, off = worth(list(answer.switches), float(plan.estimate.step_s))
    settings = table.parse(answer.question.switch or (), recipe.framework)
    _, idle = stated(settings, recipe, plan.layout)
    on = ", ".join(filter(None, [on, acting(recipe, plan.layout, on)]))
    offers = ", ".join(map(str, answer.offers))
    sentences = [
        f"on: {on}." * bool(on),
        f"Left off: {off}; --switch NAME=VALUE sets one." * bool(off),
        *(
            f"Plan {other.rank} has {table.text(other.switches)}."
            for other in answer.plans
            if other.switches
        ),
        f"Without effect in plan 1: {', '.join(idle)}." * bool(idle),
        f"Would change the numbers: {offers}; --allow-numerics takes what helps." * bool(offers),
    ]
    text = " ".join(filter(None, sentences))
    return [*([paragraph("Switches", text)] if text else []), *numerics(answer.held)]


def schedules(answer: Recommendation) -> list[Any]:
    """What each schedule would give for plan 1."""
    table = tabled(answer.schedules)
    return [Text("Plan 1 (*) under each schedule:", "bold"), *table] if table else []


def numerics(held: tuple[Held, ...]) -> list[Any]:
    """What of a plan changes the numbers, and who decided on it."""
    return [paragraph("Numerics", f"changed by {', '.join(map(str, held))}.")] if held else []


def nothing_fits(recipe: Recipe, result: SearchResult) -> list[Any]:
    """The answer no: the nearest changes that would let a layout fit."""
    parts: list[Any] = [
        Text("No layout fits." if result.legal else "No layout is legal.", "bold red")
    ]
    if result.limits:
        parts.append(paragraph("Limits", result.limits))
    for change in result.nearest or ():
        parts += [
            Text.assemble("\nIt would fit: ", (change.change, "bold")),
            plans([(unusual(change.layout), change.layout, change.estimate)]),
            *splits(recipe, [("", change.layout)]),
        ]
    return parts


def counts(result: SearchResult) -> str:
    """How many layouts were covered and how, and the rules that remove most of them."""
    known = result.counts
    removed = known.removed.most_common()
    rules = [f"{rule} {count:,}" for rule, count in removed[:MAX_RULES]]
    if len(removed) > MAX_RULES:
        rules.append(f"{len(removed) - MAX_RULES} more rules")
    ways = [
        f"{sum(known.removed.values()):,} break a rule" * bool(rules),
        f"{known.too_large:,} cannot fit" * bool(known.too_large),
        f"{known.slower:,} cannot be faster" * bool(known.slower),
        f"{known.computed:,} computed, {result.simulated:,} of them simulated",
    ]
    proof = "None is faster than the fastest by the model. " * result.proved
    if result.turned is not None:
        proof += "Nor does a switch that keeps the arithmetic make one of the near ones faster. "
    gone = f"Rules: {'; '.join(rules)}." * bool(rules)
    return (
        f"{known.covered:,} layouts in {result.seconds:.2f} s: {', '.join(filter(None, ways))}."
        f" {proof}{gone}"
    ).strip()


def files(answer: Recommendation) -> Text:
    if answer.files:
        return paragraph(
            "Files",
            ", ".join(answer.files)
            + (answer.refused and f"; launch files not written: {answer.refused}"),
        )
    if answer.search and answer.search.plans:
        return paragraph(
            "Files", "none written; --out DIR writes plan.yaml and the launch script of plan 1."
        )
    return Text()
