"""Fits constants of stacks and profiles to published runs, jointly over sources, and again with
each source left out.

    python -m planner.accuracy.maintain.fit NAME

prints, for a fit of fits.yaml, every constant before and after, the median error of every source,
and its error when it was left out. The values are written into the documents by hand, with the
fit's name as their source: a profile stays a document that a person wrote.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from planner.accuracy.predict import best_layout, estimates, joined, predicted
from planner.accuracy.rows import Run, run
from planner.accuracy.skipped import Skipped
from planner.accuracy.validate import runs, select
from planner.errors import unknown
from planner.layout import Layout
from planner.rules.table import mask
from planner.specs.recipe import Recipe

SMALL_ERROR = 0.05
"""Errors beyond this count linearly: a few odd runs do not bend a fit."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants, by `software NAME.group.field` or `hardware NAME.field`, with their bounds, and
    the rows that they are fitted to.
    """

    name: str
    rows: tuple[tuple[str, str | None], ...]
    """(source, where) pairs; each weighs the same."""
    constants: dict[str, tuple[float, float]]
    figure: str = "step_s"


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one source that ask one question, with what was measured."""

    source: int
    recipe: Recipe
    layouts: Layout
    legal: np.ndarray
    spans: tuple[slice, ...]
    measured: np.ndarray


def fits() -> dict[str, Fit]:
    """The fits that the project knows."""
    table = yaml.safe_load(Path(__file__).with_name("fits.yaml").read_text(encoding="utf-8"))
    return {
        name: Fit(
            name,
            tuple((row["source"], row.get("where")) for row in entry["rows"]),
            {constant: tuple(bounds) for constant, bounds in entry["constants"].items()},
            entry.get("figure", "step_s"),
        )
        for name, entry in table.items()
    }


def gathered(fit: Fit) -> list[Group]:
    """The rows of a fit as documents; those that cannot be predicted are left out."""
    published = runs()
    column = {"step_s": "measured_step_s"}.get(fit.figure, "peak_mem_gib")
    groups = []
    for index, (source, where) in enumerate(fit.rows):
        rows = predicted(select(published, source, where))
        by_recipe: dict[int, list[tuple[Run, float]]] = {}
        for record in rows[rows["skipped"].isna() & rows[column].notna()].to_dict("records"):
            try:
                document = run(
                    {str(name): None if cell != cell else cell for name, cell in record.items()}
                )
            except Skipped:
                continue
            by_recipe.setdefault(id(document.recipe), []).append((document, float(record[column])))
        groups += [_group(index, pairs) for pairs in by_recipe.values()]
    return groups


def _group(source: int, pairs: list[tuple[Run, float]]) -> Group:
    layouts = joined([document.layouts for document, _ in pairs])
    ends = np.cumsum([0, *(len(document.layouts) for document, _ in pairs)])
    spans = tuple(slice(int(start), int(end)) for start, end in pairwise(ends))
    recipe = pairs[0][0].recipe
    return Group(
        source,
        recipe,
        layouts,
        mask(recipe, layouts)[0],
        spans,
        np.array([value for _, value in pairs]),
    )


def changed(recipe: Recipe, values: dict[str, float]) -> Recipe:
    """The recipe with constants of its stack and profile replaced, where they are its own; `*`
    names any.
    """
    for path, value in values.items():
        kind, rest = path.split(" ", 1)
        name, *fields = rest.split(".")
        document = recipe.software if kind == "software" else recipe.hardware
        if name in ("*", document.name):
            recipe = recipe.model_copy(update={kind: _replaced(document, fields, value)})
    return recipe


def _replaced(document: Any, fields: list[str], value: float) -> Any:
    if not fields:
        return value
    if isinstance(document, dict):
        return {**document, fields[0]: _replaced(document[fields[0]], fields[1:], value)}
    return document.model_copy(
        update={fields[0]: _replaced(getattr(document, fields[0]), fields[1:], value)}
    )


def current(groups: list[Group], path: str) -> float:
    """The constant as the documents have it."""
    kind, rest = path.split(" ", 1)
    name, *fields = rest.split(".")
    for group in groups:
        document: Any = group.recipe.software if kind == "software" else group.recipe.hardware
        if name in ("*", document.name):
            for field in fields:
                document = (
                    document[field] if isinstance(document, dict) else getattr(document, field)
                )
            return float(document)
    raise unknown("constant", path, [])


def errors(
    groups: list[Group], values: dict[str, float], figure: str
) -> tuple[np.ndarray, np.ndarray]:
    """(rows,) log of predicted over measured, and the index of each row's source."""
    logs, sources = [], []
    for group in groups:
        columns = estimates(changed(group.recipe, values), group.layouts)
        column = getattr(columns, figure)
        best = [
            column[span.start + best_layout(columns, group.legal, span)] for span in group.spans
        ]
        scale = 1.0 if figure == "step_s" else 2.0**30
        logs.append(np.log(np.array(best) / scale / group.measured))
        sources += [group.source] * len(best)
    return np.concatenate(logs), np.array(sources)


def fitted(fit: Fit, groups: list[Group]) -> dict[str, float]:
    """The constants that make errors smallest: soft-L1 least squares, every source weighing the
    same.
    """
    from scipy.optimize import least_squares  # heavy, and only here

    names = list(fit.constants)
    low, high = (np.array([fit.constants[name][end] for name in names]) for end in (0, 1))
    start = np.clip(
        [current(groups, name) for name in names],
        low + 1e-6 * (high - low),
        high - 1e-6 * (high - low),
    )

    def residuals(unit: np.ndarray) -> np.ndarray:
        logs, sources = errors(
            groups, dict(zip(names, low + unit * (high - low), strict=True)), fit.figure
        )
        soft = (
            SMALL_ERROR * np.sign(logs) * np.sqrt(2 * (np.sqrt(1 + (logs / SMALL_ERROR) ** 2) - 1))
        )
        return np.asarray(
            soft / np.sqrt(np.bincount(sources, minlength=sources.max() + 1)[sources])
        )

    solution = least_squares(
        residuals,
        (start - low) / (high - low),
        bounds=(0, 1),
        diff_step=1e-3,
        max_nfev=25,
        xtol=1e-4,
        ftol=1e-4,
    )
    return dict(zip(names, (low + solution.x * (high - low)).tolist(), strict=True))


def by_source(
    groups: list[Group], values: dict[str, float], figure: str
) -> dict[int, tuple[float, float]]:
    """(median absolute error, bias) of each source."""
    logs, sources = errors(groups, values, figure)
    error = np.expm1(logs)
    return {
        source: (
            float(np.median(np.abs(error[sources == source]))),
            float(np.median(error[sources == source])),
        )
        for source in np.unique(sources).tolist()
    }


def main(arguments: list[str], tell: Callable[[str], None] = print) -> None:
    known = fits()
    if not arguments or arguments[0] not in known:
        raise unknown("fit", arguments[0] if arguments else "", known)
    fit = known[arguments[0]]
    groups = gathered(fit)
    before = by_source(groups, {}, fit.figure)
    values = fitted(fit, groups)
    for name, value in values.items():
        was = current(groups, name)
        tell(f"{name:60} {was:12.4f} -> {value:12.4f}   within {fit.constants[name]}")
    after = by_source(groups, values, fit.figure)
    for index, (source, where) in enumerate(fit.rows):
        alone = ""
        if len(fit.rows) > 1 and "--quick" not in arguments:
            others = fitted(fit, [group for group in groups if group.source != index])
            own = [group for group in groups if group.source == index]
            alone = f"   left out {by_source(own, others, fit.figure)[index][0]:.3f}"
        if index in after:
            medians = (
                f"median {before[index][0]:.3f} -> {after[index][0]:.3f} (bias"
                f" {after[index][1]:+.3f}){alone}"
            )
            tell(f"{source:20} {medians}   {where or ''}")


if __name__ == "__main__":
    main(sys.argv[1:])
