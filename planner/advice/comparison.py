"""`ppplan compare`: one question over clusters, sizes, sequence lengths and precisions, or over
saved plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from planner import reasons, search
from planner.advice.goodput import of_plan
from planner.advice.price import Spent, spent
from planner.cost.goodput import Goodput
from planner.cost.terms import Estimate
from planner.errors import InputError
from planner.estimate import estimate
from planner.layout import Layout
from planner.rules.table import breaches
from planner.specs import library, resolve
from planner.specs import plan as plans
from planner.specs.question import changed
from planner.specs.recipe import Recipe
from planner.specs.words import Question
from planner.views import TableViews

OVER = ("cluster", "gpus", "seq_length", "precision")
MAX_CASES = 200
"""Rows of one comparison."""
KNOBS = ("tp", "pp", "dp", "cp", "ep", "v", "mbs", "zero", "recompute", "schedule")
GREW_S = 0.005
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
    """Tokens/s a GPU over those of the fewest GPUs of the same cluster, sequence length and
    precision.
    """
    changes: tuple[str, ...] = ()
    """Against the first row: what is different in the best layout, and which term made it so."""
    fault: str = ""
    """Why there is no plan: nothing fits, or the words cannot hold here."""
    asked: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(TableViews):
    """All rows in the order asked."""

    rows: tuple[Row, ...]
    over: tuple[str, ...]
    assumed: tuple[str, ...] = ()


def compare_best_plans(
    asked: Question | None,
    over: Mapping[str, Sequence[Any]],
    saved: Sequence[str | Path] = (),
    usd_per_gpu_hour: float | None = None,
) -> Comparison:
    """The best plan for every combination of the words of `over` (those of OVER), then the saved
    plans as they are.

    Raises InputError for unknown names and for nothing to compare; a question that has no answer is
    a row that says so.
    """
    _check(asked, over, saved, usd_per_gpu_hour)
    varied = tuple(word for word in OVER if len(over.get(word, ())) > 1)
    points = (
        [dict(zip(over, values, strict=True)) for values in product(*over.values())]
        if asked is not None
        else []
    )
    rows = []
    for words in points:
        rows.append(_best(asked, words, varied, usd_per_gpu_hour))  # type: ignore[arg-type]
    rows += [_of_plan(Path(path), usd_per_gpu_hour) for path in saved]
    faults = {row.fault for row in rows if row.recipe is None}
    if len(faults) == 1 and all(row.recipe is None for row in rows):
        raise InputError(faults.pop())  # what no row can hold is a slip of the question
    rows = [
        replace(row, scaling=_scaling(row, rows), changes=_changes(rows[0], row) if at else ())
        for at, row in enumerate(rows)
    ]
    said = [
        assumption
        for row in rows
        if row.recipe and row.spent
        for assumption in (*row.recipe.assumed, *row.spent.assumed)
    ]
    failed = [assumption for row in rows if row.goodput for assumption in row.goodput.assumed]
    return Comparison(tuple(rows), varied or ("plan",), tuple(dict.fromkeys((*said, *failed))))


def _check(
    asked: Question | None,
    over: Mapping[str, Sequence[Any]],
    saved: Sequence[str | Path],
    price: float | None,
) -> None:
    count = len(saved)
    if asked is not None:
        size = 1
        for values in over.values():
            size *= len(values)
        count += size
    if not 2 <= count <= MAX_CASES:
        raise InputError(
            f"compare must have from 2 to {MAX_CASES} rows, but got {count}; name several"
            " --cluster, --gpus, --seq-length or --precision, or several plan.yaml"
        )
    if price is not None and not 0 < price < 1e6:
        raise InputError(f"price must be dollars a GPU hour, above 0, but got {price:g}")
    for name in over.get("cluster", ()):
        library.hardware(str(name))  # an unknown name is a slip, not an answer


def _best(
    asked: Question, words: dict[str, Any], varied: tuple[str, ...], price: float | None
) -> Row:
    name = ", ".join(_said(word, words[word]) for word in varied)
    stated = changed(asked, words)
    try:
        recipe = resolve.recipe(stated)
        name = name or recipe.hardware.name
        match = search.search(recipe, top=1)
    except InputError as fault:
        return Row(name or asked.model, None, None, None, fault=str(fault), asked=words)
    if not match.plans:
        near = match.nearest[0].change if match.nearest else ""
        why = match.limits or ("no layout fits" if match.legal else "no layout is legal")
        return Row(
            name,
            recipe,
            None,
            None,
            fault=why + (f"; it would fit with: {near}" if near else ""),
            asked=words,
        )
    best = match.plans[0]
    return _row(name, stated, recipe, best.layout, best.estimate, match.limits, price, words)


def _of_plan(path: Path, price: float | None) -> Row:
    """A saved plan with its own layout, costed anew."""
    stated = plans.read_layout(path)
    recipe, layout = resolve.recipe_and_layout(stated)
    said = estimate(recipe, layout, exact=True)
    broken = breaches(recipe, layout)
    row = _row(str(path), stated, recipe, layout, said, reasons.limit(said), price, {})
    return replace(row, fault=broken[0].message if broken else "")


def _row(
    name: str,
    asked: Question,
    recipe: Recipe,
    layout: Layout,
    said: Estimate,
    limits: str,
    price: float | None,
    words: Mapping[str, Any],
) -> Row:
    goodput = of_plan(asked, recipe, said)
    return Row(
        name,
        recipe,
        layout,
        said,
        limits,
        spent(recipe, said, goodput, price),
        goodput,
        asked=words,
    )


def _said(word: str, value: Any) -> str:
    return {"gpus": f"{value} GPUs", "seq_length": f"{value} tokens"}.get(word, str(value))


def _scaling(row: Row, rows: Sequence[Row]) -> float | None:
    """1 for the fewest GPUs; None where nothing else of the row's kind was asked."""
    if row.recipe is None or row.estimate is None:
        return None
    alike = [one for one in rows if one.estimate is not None and _kind(one) == _kind(row)]
    least = min(alike, key=lambda one: one.recipe.gpus)  # type: ignore[union-attr]
    if len({one.recipe.gpus for one in alike if one.recipe}) < 2 or least.estimate is None:
        return None
    return float(row.estimate.tokens_per_s_per_gpu / least.estimate.tokens_per_s_per_gpu)


def _kind(row: Row) -> tuple[Any, ...]:
    recipe = row.recipe
    return (
        (recipe.model.name, recipe.hardware.name, recipe.seq_length, recipe.precision)
        if recipe
        else ()
    )


def _changes(first: Row, row: Row) -> tuple[str, ...]:
    """What differs from the first row's best layout; and what that layout would take here, by the
    term that grew most.
    """
    if (
        first.layout is None
        or row.layout is None
        or first.estimate is None
        or row.recipe is None
        or row.estimate is None
    ):
        return ()
    if first.recipe and first.recipe.model.name != row.recipe.model.name:
        return (f"another model: {row.recipe.model.name}, not {first.recipe.model.name}",)
    one, other = first.layout.named(), row.layout.named()
    differs = [f"{knob} {one[knob]} -> {other[knob]}" for knob in KNOBS if one[knob] != other[knob]]
    says = [f"layout: {', '.join(differs)}"] if differs else ["the same layout"]
    kept = _kept(first, row) if differs else row.estimate
    if kept is None:
        return tuple(says)
    grew = _grew(first.estimate, kept)
    ratio = float(kept.step_s / row.estimate.step_s)
    would = (
        f"; it would take {ratio:.2f} times this one's time here" if differs and ratio > 1 else ""
    )
    says.append(
        (f"that of {first.name}: {grew}" if grew else f"no term of that of {first.name} grows")
        + would
    )
    if differs and not kept.fits:
        says.append(
            f"that of {first.name} would not fit here (OOM probability {kept.oom_probability:.0%})"
        )
    return tuple(says)


def _kept(first: Row, row: Row) -> Estimate | None:
    """The first row's layout on this row's machine; None where it cannot run there."""
    assert first.layout is not None and row.recipe is not None
    if (
        first.layout.gpus != row.recipe.gpus
        or first.layout.gbs != row.recipe.global_batch_size
        or breaches(row.recipe, first.layout)
    ):
        return None
    try:
        return estimate(row.recipe, first.layout, exact=True)
    except InputError:
        return None


def _grew(before: Estimate, after: Estimate) -> str:
    """The term of the step that grew most from one machine to the other, in words; empty when none
    did.
    """
    terms = [
        (f.name, float(getattr(before.time, f.name)), float(getattr(after.time, f.name)))
        for f in fields(before.time)
    ]
    name, was, now = max(terms, key=lambda term: term[2] - term[1])
    if now - was < GREW_S * float(after.step_s):
        return ""
    return (
        f"{reasons.TERMS[name]} {_time(was)} -> {_time(now)}, of a step of"
        f" {_time(float(before.step_s))} -> {_time(float(after.step_s))}"
    )


def _time(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1e3:,.0f} ms"
