"""Evaluate a formula once per distinct combination of the knobs that it reads: far fewer than
layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.layout import Layouts
from planner.specs.recipe import Recipe

T = TypeVar("T")
P = ParamSpec("P")
Formula = Callable[Concatenate[Recipe, Layouts, P], T]

REPLICA_KNOBS = (
    "tp",
    "pp",
    "dp",
    "cp",
    "ep",
    "etp",
    "zero",
    "hpz",
    "account_for_embedding",
    "account_for_loss",
    "first_layers",
    "last_layers",
)
"""What states and the collectives of data parallelism depend on; with experts on v too; between
sites v and m say which groups cross.
"""


def once_per(
    knobs: Callable[[Recipe], tuple[str, ...]],
) -> Callable[[Formula[P, T]], Formula[P, T]]:
    """A decorator of formula(recipe, layouts, *columns) that reads no knobs but these: of a batch
    it is evaluated on one row of each combination, and its result broadcast to all rows. Further
    arguments and the result are numbers, columns, or dataclasses and tuples of them.
    """

    def decorate(formula: Formula[P, T]) -> Formula[P, T]:
        @wraps(formula)
        def evaluate(recipe: Recipe, layout: Layouts, /, *columns: P.args, **named: P.kwargs) -> T:
            rows = unique_rows(layout, knobs(recipe))
            if rows is None:
                return formula(recipe, layout, *columns, **named)
            first, inverse = rows
            few = [broadcast(column, first) for column in columns]
            parts = formula(recipe, layout[first], *few, **named)  # type: ignore[arg-type]
            return broadcast(parts, inverse)

        return evaluate

    return decorate


def unique_rows(
    layout: Layouts, knobs: tuple[str, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Of a batch of n layouts with u distinct combinations of the knobs: (u,) the first row of each
    combination, (n,) the combination of every row. None of one layout.
    """
    columns = [getattr(layout, name) for name in knobs]
    if not any(isinstance(column, np.ndarray) for column in columns):
        return None
    key = np.zeros(len(layout), dtype=np.int64)
    for column in columns:
        key = key * (int(np.max(column)) + 1) + column
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first, inverse


def broadcast(value: T, rows: NDArray[np.int64]) -> T:
    """The value with every column in it, however deep, indexed by rows."""
    picked: Any = value
    if isinstance(value, np.ndarray):
        picked = value[rows] if value.ndim else value
    elif isinstance(value, tuple):
        picked = tuple(broadcast(each, rows) for each in value)
    elif is_dataclass(value) and not isinstance(value, type):
        columns = {f.name: broadcast(getattr(value, f.name), rows) for f in fields(value)}
        picked = type(value)(**columns)
    return picked
