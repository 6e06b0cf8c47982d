"""Predictions against measured runs: reads, selects, predicts, compares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd

from planner.accuracy import measures
from planner.accuracy.csvfile import read
from planner.accuracy.predict import predicted
from planner.accuracy.where import fault
from planner.errors import InputError, unknown
from planner.views import TableViews

PUBLISHED = Path(__file__).parent / "runs"
"""Measured runs that come with the product, one source a file."""


@dataclass(frozen=True, slots=True, repr=False)
class Validation(TableViews):
    """Every row with its prediction, and how far they are apart."""

    rows: pd.DataFrame
    """The runs as read, and `predicted_*`, `measured_step_s`, `error`, `memory_error`, `assumed`,
    `skipped`.
    """
    overall: dict[str, Any]
    """Sources weighted equally."""
    groups: list[dict[str, Any]]
    """Of each source and machine."""
    skipped: dict[str, int]
    """Reason why rows could not be predicted, and how many."""
    seconds: float

    @property
    def predicted(self) -> int:
        return int(self.rows["predicted_step_s"].notna().sum())


def validate(
    files: Iterable[str | Path] | None = None, source: str | None = None, where: str | None = None
) -> Validation:
    """Predicts measured runs, those that come with the product unless files are named.

    source: only rows of this source; where: only rows for which this pandas query over the columns
    is true.
    Errors: InputError for a file that does not hold runs, an unknown source, an expression that is
    none.
    """
    started = perf_counter()
    return compare(predicted(select(runs(files), source, where)), started)


def compare(rows: pd.DataFrame, started: float) -> Validation:
    """The figures of predicted rows."""
    reasons = rows["skipped"].dropna().value_counts()
    overall, groups = measures.overall(rows), measures.groups(rows)
    return Validation(
        rows,
        overall,
        groups,
        {str(reason): int(count) for reason, count in reasons.items()},
        perf_counter() - started,
    )


def runs(files: Iterable[str | Path] | None = None) -> pd.DataFrame:
    """The rows of the files, one below the other."""
    paths = [Path(file) for file in files] if files else sorted(PUBLISHED.glob("*.csv"))
    return pd.concat([read(path) for path in paths], ignore_index=True)


def select(rows: pd.DataFrame, source: str | None = None, where: str | None = None) -> pd.DataFrame:
    """The rows of a source for which the expression is true."""
    if source is not None:
        known = sorted({str(name) for name in rows["source"].dropna()})
        if source not in known:
            raise unknown("source", source, known)
        rows = rows[rows["source"] == source]
    return rows if where is None else rows[_mask(rows, where)]


def _mask(rows: pd.DataFrame, where: str) -> pd.Series:
    """A pandas query by its python engine, which knows `and`, `x != x` for empty cells and methods
    of texts.
    """
    says = partial(
        (
            "--where must be a pandas query over the columns that is true or false for each row,"
            " but {}"
        ).format
    )
    more = fault(where)
    if more:
        raise InputError(says(f"{where[:120]!r} is none: {more}"))
    try:
        # NOTE: no target, so that an assignment is refused; no names from outside, so that @ finds
        # nothing.
        answer = rows.eval(
            where.strip() or "?", engine="python", local_dict={}, global_dict={}, target=None
        )
    except Exception as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(says(f"{where[:120]!r} gives: {line[:160]}")) from None
    if not isinstance(answer, pd.Series) or not answer.map(lambda x: isinstance(x, bool)).all():
        raise InputError(
            says(
                f"{where[:120]!r} gives {_kind(answer)}; write a comparison such as tp <= 8 and"
                " gpus <= 64"
            )
        )
    return answer.astype(bool)


def _kind(answer: Any) -> str:
    return (
        f"{answer.dtype} values"
        if isinstance(answer, pd.Series)
        else f"{type(answer).__name__} {str(answer)[:40]!r}"
    )
