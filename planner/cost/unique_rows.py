"""Evaluate a formula once per distinct combination of the knobs that it reads: far fewer than
layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

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


def remembered(
    knobs: Callable[[Recipe], tuple[str, ...]],
) -> Callable[[Formula[[], T]], Formula[[], T]]:
    """As once_per, of a formula without further arguments; of the last recipe it is not evaluated
    again for combinations that it was evaluated for.
    """

    def decorate(formula: Formula[[], T]) -> Formula[[], T]:
        memo: list[_Memo[T]] = []

        @wraps(formula)
        def evaluate(recipe: Recipe, layout: Layouts, /) -> T:
            names = knobs(recipe)
            rows = unique_rows(layout, names)
            if rows is None:
                return formula(recipe, layout)
            first, inverse = rows
            few = layout[first]
            if len(first) > REMEMBERED:
                return broadcast(formula(recipe, few), inverse)
            if not memo or memo[0].recipe is not recipe:
                memo[:] = [_Memo(recipe, formula)]
            value, at = memo[0].value(few, names)
            return broadcast(value, at[inverse])

        return evaluate

    return decorate


REMEMBERED = 2**15
"""Combinations, at most, whose values are kept."""


class _Memo(Generic[T]):
    """What a formula gave for a recipe, row by row."""

    def __init__(self, recipe: Recipe, formula: Formula[[], T]) -> None:
        self.recipe, self.formula = recipe, formula
        self._row: dict[tuple[int, ...], int] = {}
        self._values: Any = None

    def value(self, layout: Layouts, knobs: tuple[str, ...]) -> tuple[T, NDArray[np.int64]]:
        """Values of different combinations of the knobs, and the row of each layout among them."""
        columns = [np.broadcast_to(getattr(layout, name), len(layout)) for name in knobs]
        keys = list(zip(*(column.tolist() for column in columns), strict=True))
        missing = [at for at, key in enumerate(keys) if key not in self._row]
        if len(self._row) + len(missing) > REMEMBERED:
            self._row, missing = {}, list(range(len(keys)))
        if missing:
            known = len(self._row)
            more = self.formula(self.recipe, layout[np.array(missing)])
            self._values = _joined(self._values, more, known, len(missing)) if known else more
            self._row |= {keys[at]: known + row for row, at in enumerate(missing)}
        return self._values, np.array([self._row[key] for key in keys])


def _joined(one: Any, other: Any, rows: int, more: int) -> Any:
    """Two values with every column of the second, however deep, below that of the first."""
    if isinstance(one, tuple):
        return tuple(_joined(*each, rows, more) for each in zip(one, other, strict=True))
    kind: Any = type(one)
    names = _fields(kind)
    if names:
        pairs = ((getattr(one, name), getattr(other, name)) for name in names)
        return kind(*(_joined(*pair, rows, more) for pair in pairs))
    if np.ndim(one) == np.ndim(other) == 0:
        return one
    return np.concatenate((np.broadcast_to(one, rows), np.broadcast_to(other, more)))


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
    elif not isinstance(value, float | int):
        kind: Any = type(value)
        columns = [broadcast(getattr(value, name), rows) for name in _fields(kind)]
        picked = kind(*columns) if columns else value
    return picked


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    """Names of the fields of a dataclass, in order; of another type none."""
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else ()
