"""Columns computed once for each combination of the knobs that matter, and spread over the batch:
far fewer than layouts.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from planner.layout import Layout, Numeric

T = TypeVar("T")
Rows = tuple[Any, Any]
"""First row of each combination and, for every row, its combination; nothing for one layout."""

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


def combinations(layout: Layout, knobs: tuple[str, ...]) -> Rows:
    """The combinations of these knobs in a batch."""
    columns = [getattr(layout, name) for name in knobs]
    if not any(isinstance(c, np.ndarray) for c in columns):
        return None, None
    key = np.zeros(len(layout), dtype=np.int64)
    for column in columns:
        key = key * (int(np.max(column)) + 1) + column
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first, inverse


def spread(few: T, inverse: np.ndarray) -> T:
    """A dataclass of columns, one value a combination, with one value a row."""
    columns = {f.name: getattr(few, f.name) for f in fields(few)}  # type: ignore[arg-type]
    return type(few)(**{name: _spread(column, inverse) for name, column in columns.items()})


def _spread(column: Numeric, inverse: np.ndarray) -> Numeric:
    return column[inverse] if isinstance(column, np.ndarray) and column.ndim else column
