"""`ppplan compare`: one question over clusters, sizes, sequence lengths, precisions, software, its
versions and switches, or over saved plans.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from planner import reasons
from planner.advice.best_plans import best_plans
from planner.advice.goodput import of_plan
from planner.advice.price import Spent, spent
from planner.cost.goodput import Goodput
from planner.cost.terms import Estimate
from planner.errors import InputError
from planner.estimate import estimate
from planner.layout import Layout
from planner.numerics import Held, held
from planner.rules.table import breaches
from planner.specs import library, resolve
from planner.specs import plan as plans
from planner.specs.recipe import Recipe
from planner.specs.sweep import at, is_switch
from planner.specs.words import Question
from planner.views import TableViews

OVER = (
    "cluster",
    "gpus",
    "seq_length",
    "precision",
    "software",
    "stack",
    "framework_version",
    "container",
)
"""Words that rows may differ in, beside switches of the software."""
MAX_CASES = 200
"""Rows of one comparison."""
KNOBS = ("tp", "pp", "dp", "cp", "ep", "v", "mbs", "zero", "recompute", "schedule")
MIN_GROWN_SHARE = 0.005
"""A term that grew by less than this share of the step is not the reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """The best plan of one question, or why there is none."""

    name: str
    """What tells it from the other rows."""
    recipe: Recipe | None
    layout: Layout | None
    estimate: Estimate | None
    limits: str = ""
    spent: Spent | None = None
    goodput: Goodput | None = None
    scaling: float | None = None
    """Tokens/s a GPU over those of the fewest GPUs of the same cluster, sequence length, precision
    and software.
    """
    changes: tuple[str, ...] = ()
    """Against the first row: what is different in the best layout, and which term made it so."""
    held: tuple[Held, ...] = ()
    """What of it changes the numbers."""
    fault: str = ""
    """Why there is no plan: nothing fits, or the words cannot hold here."""
    words: Mapping[str, Any] = field(default_factory=dict)
    """What was put into the question for this row; nothing for a saved plan."""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(TableViews):
    """All rows in the order asked."""

    rows: tuple[Row, ...]
    over: tuple[str, ...]
    assumed: tuple[str, ...] = ()


def compare_best_plans(
    question: Question | None,
    over: Mapping[str, Sequence[Any]],
    saved: Sequence[str | Path] = (),
    usd_per_gpu_hour: float | None = None,
) -> Comparison:
    """The best plan for every combination of the words of `over` (those of OVER), then the saved
    plans as they are.

    Raises InputError for unknown names and for nothing to compare; a question that has no answer is
    a row that says so.
    """
    points = math.prod(len(values) for values in over.values()) if question is not None else 0
    _check(points + len(saved), over.get("cluster", ()), usd_per_gpu_hour)
    axes = (*OVER, *(word for word in over if is_switch(word)))
    varied = tuple(word for word in axes if len(over.get(word, ())) > 1)
    rows = []
    if question is not None:
        for values in product(*over.values()):
            words = dict(zip(over, values, strict=True))
            rows.append(_best(question, words, varied, usd_per_gpu_hour))
    rows += [_of_plan(Path(path), usd_per_gpu_hour) for path in saved]
    faults = {row.fault for row in rows if row.recipe is None}
    if len(faults) == 1 and all(row.recipe is None for row in rows):
        raise InputError(faults.pop())  # what no row can hold is a slip of the question
    first, *others = [replace(row, scaling=_scaling(row, rows)) for row in rows]
    rows = [first, *(replace(row, changes=_changes(first, row)) for row in others)]
    assumed: list[str] = []
    for row in rows:
        if row.recipe and row.spent:
            assumed += [*row.recipe.assumed, *row.spent.assumed]
    for row in rows:
        assumed += row.goodput.assumed if row.goodput else ()
    return Comparison(tuple(rows), varied or ("plan",), tuple(dict.fromkeys(assumed)))


def _check(rows: int, clusters: Sequence[Any], price: float | None) -> None:
    if not 2 <= rows <= MAX_CASES:
        raise InputError(
            f"compare must have from 2 to {MAX_CASES} rows, but got {rows}; name several"
            " --cluster, --gpus, --seq-length, --precision, --software or --stack, values"
            " of a --switch, or several plan.yaml"
        )
    if price is not None and not 0 < price < 1e6:
        raise InputError(f"price must be dollars a GPU hour, above 0, but got {price:g}")
    for name in clusters:
        library.hardware(str(name))  # an unknown name is a slip, not an answer


def _best(
    question: Question, words: dict[str, Any], varied: tuple[str, ...], price: float | None
) -> Row:
    name = ", ".join(_in_words(word, words[word]) for word in varied)
    varied_question = at(question, words)
    try:
        answered = best_plans(varied_question, top=1)
        varied_question, recipe = answered.question, answered.recipe
        match = answered.result
        name = name or recipe.hardware.name
    except InputError as fault:
        return Row(name or question.model, None, None, None, fault=str(fault), words=words)
    if not match.plans:
        why = match.limits or ("no layout fits" if match.legal else "no layout is legal")
        if match.nearest and match.nearest[0].change:
            why += f"; it would fit with: {match.nearest[0].change}"
        return Row(name, recipe, None, None, fault=why, words=words)
    best = match.plans[0]
    row = _row(name, varied_question, recipe, best.layout, best.estimate, match.limits, price)
    changing = held(varied_question, recipe, best.layout, answered.taken)
    return replace(row, words=words, held=changing)


def _of_plan(path: Path, price: float | None) -> Row:
    """A saved plan with its own layout, costed anew."""
    question = plans.read_layout(path)
    recipe, layout = resolve.recipe_and_layout(question)
    estimated = estimate(recipe, layout, exact=True)
    row = _row(str(path), question, recipe, layout, estimated, reasons.limit(estimated), price)
    row = replace(row, held=held(question, recipe, layout))
    broken = breaches(recipe, layout)
    return replace(row, fault=broken[0].message) if broken else row


def _row(
    name: str,
    question: Question,
    recipe: Recipe,
    layout: Layout,
    estimated: Estimate,
    limits: str,
    price: float | None,
) -> Row:
    goodput = of_plan(question, recipe, estimated)
    cost = spent(recipe, estimated, goodput, price)
    return Row(name, recipe, layout, estimated, limits, cost, goodput)


def _in_words(word: str, value: Any) -> str:
    named = {
        "gpus": f"{value} GPUs",
        "seq_length": f"{value} tokens",
        "framework_version": f"version {value}",
    }
    return named.get(word, f"{word} {value}" if is_switch(word) else str(value))


def _scaling(row: Row, rows: Sequence[Row]) -> float | None:
    """1 for the fewest GPUs; None where nothing else of the row's kind was compared."""
    if row.recipe is None or row.estimate is None:
        return None
    rates: dict[int, float] = {}
    for other in rows:
        if other.recipe is None or other.estimate is None:
            continue
        if _kind(other.recipe) == _kind(row.recipe):
            rates.setdefault(other.recipe.gpus, float(other.estimate.tokens_per_s_per_gpu))
    if len(rates) < 2:
        return None
    return float(row.estimate.tokens_per_s_per_gpu) / rates[min(rates)]


def _kind(recipe: Recipe) -> tuple[Any, ...]:
    software = recipe.software
    switches = tuple(sorted(software.switches.items()))
    where = (recipe.model.name, recipe.hardware.name, recipe.seq_length, recipe.precision)
    return (*where, software.name, recipe.framework_version, switches)


def _changes(first: Row, row: Row) -> tuple[str, ...]:
    """What differs from the first row's best layout; and what that layout would take here, by the
    term that grew most.
    """
    if first.recipe is None or first.layout is None or first.estimate is None:
        return ()
    if row.recipe is None or row.layout is None or row.estimate is None:
        return ()
    if first.recipe.model.name != row.recipe.model.name:
        return (f"another model: {row.recipe.model.name}, not {first.recipe.model.name}",)
    before, after = first.layout.named(), row.layout.named()
    differs = [f"{k} {before[k]} -> {after[k]}" for k in KNOBS if before[k] != after[k]]
    if not differs:
        grown = _grown_term(first.estimate, row.estimate)
        return "the same layout", _growth(first, grown)
    layout = f"layout: {', '.join(differs)}"
    kept = _first_layout_here(first.layout, row.recipe)
    if kept is None:
        return (layout,)
    growth = _growth(first, _grown_term(first.estimate, kept))
    ratio = float(kept.step_s / row.estimate.step_s)
    if ratio > 1:
        growth += f"; it would take {ratio:.2f} times this one's time here"
    if kept.fits:
        return layout, growth
    chance = f"OOM probability {kept.oom_probability:.0%}"
    return layout, growth, f"that of {first.name} would not fit here ({chance})"


def _growth(first: Row, grown: str) -> str:
    return f"that of {first.name}: {grown}" if grown else f"no term of that of {first.name} grows"


def _first_layout_here(layout: Layout, recipe: Recipe) -> Estimate | None:
    """The first row's layout on another row's machine; None where it cannot run there."""
    if layout.gpus != recipe.gpus or layout.gbs != recipe.global_batch_size:
        return None
    if breaches(recipe, layout):
        return None
    try:
        return estimate(recipe, layout, exact=True)
    except InputError:
        return None


def _grown_term(before: Estimate, after: Estimate) -> str:
    """The term of the step that grew most from one machine to the other, in words; empty when none
    did.
    """
    terms = []
    for term in fields(before.time):
        was, now = float(getattr(before.time, term.name)), float(getattr(after.time, term.name))
        terms.append((now - was, term.name, was, now))
    growth, name, was, now = max(terms, key=lambda term: term[0])
    if growth < MIN_GROWN_SHARE * float(after.step_s):
        return ""
    return (
        f"{reasons.TERMS[name]} {_time(was)} -> {_time(now)}, of a step of"
        f" {_time(float(before.step_s))} -> {_time(float(after.step_s))}"
    )


def _time(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1e3:,.0f} ms"
