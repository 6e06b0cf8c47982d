"""Reads a file of measured runs: typed columns, or one message that names file, line and column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from planner.accuracy import proven
from planner.accuracy.columns import COLUMNS, FIGURES, NUMBERS, REQUIRED, SWITCHES
from planner.errors import InputError, unknown
from planner.intake.logs.proof import MARK, proofs
from planner.intake.plain_file import first_bytes

MAX_BYTES = 256 * 10**6
MAX_NUMBER = 1e18
BLANKS = {"", "nan", "na", "n/a", "none", "null", "-"}
WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


def read(path: Path) -> pd.DataFrame:
    """One run a row; numbers are floats and texts objects, NaN where a cell is empty; unknown
    columns are kept.

    Errors: InputError for a file that cannot be read, is empty, binary or too large, lacks a
    column, or has a cell of the wrong type.
    """
    if _has_proofs(path):
        return _completed(pd.DataFrame(list(map(proven.row, proofs(path)))), path)
    rows = _rows(path)
    try:
        _, header = next(rows)
    except StopIteration:
        raise InputError(
            f"{path} must hold a header line and one run a line, but it is empty"
        ) from None
    names = _header(path, header)
    lines, cells = _cells(path, rows, names)
    if not lines:
        raise InputError(f"{path} must hold one run a line below its header, but it has no runs")
    table = {
        name: _column(path, name, lines, [row[place] for row in cells])
        for place, name in enumerate(names)
    }
    frame = pd.DataFrame(table)
    return _completed(frame, path)


def _has_proofs(path: Path) -> bool:
    """Whether a file is of lines that `prove.py` printed: one stands at its beginning."""
    return path.is_file() and MARK.encode() in first_bytes(path, 1 << 20)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells; blank lines are left out."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise InputError(
                f"{path} must be a file, but it is a device or a pipe, whose end nobody knows; save"
                " it first"
            )
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(
                f"{path} must be at most {MAX_BYTES // 10**6} MB, but it has {size / 1e6:,.0f} MB"
            )
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(_text_lines(path, file), strict=True)
            for row in reader:
                if any(cell.strip() for cell in row):
                    yield reader.line_num, row
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} must be a CSV text in UTF-8, but byte {error.start:,} is not: is it a binary"
            " file?"
        ) from None
    except csv.Error as error:
        raise InputError(
            f"{path} line {reader.line_num}: must be well-formed CSV, but {error}"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} must be a readable CSV file, but {getattr(error, 'strerror', None) or error}"
        ) from None


def _text_lines(path: Path, file: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(file, start=1):
        if "\0" in line:
            raise InputError(
                f"{path} line {number}: must be text, but it holds a zero byte: is it a binary"
                " file?"
            )
        yield line


def _header(path: Path, header: list[str]) -> list[str]:
    names = [name.strip() for name in header]
    where = f"{path} line 1"
    for place, name in enumerate(names):
        if not name:
            raise InputError(
                f"{where}: every column must have a name, but column {place + 1} has none"
            )
        if names.count(name) > 1:
            raise InputError(
                f"{where}: column names must differ, but {name[:80]!r} occurs {names.count(name)}"
                " times"
            )
    missing = [name for name in REQUIRED if name not in names]
    if len(missing) == len(REQUIRED) and not set(names) & set(COLUMNS):
        raise InputError(
            f"{where}: must name the columns of a run ({', '.join(REQUIRED)}, ...), but got"
            f" {', '.join(names)[:120]!r}"
        )
    if missing:
        raise InputError(
            f"{where}: column {missing[0]!r} must be there, but it is"
            f" missing{_near(missing[0], names)}"
        )
    return names


def _near(name: str, names: list[str]) -> str:
    message = str(
        unknown("column", name, [column for column in names if column not in COLUMNS] or names)
    )
    return f"; {message.rsplit('; ', 1)[1]}" if "did you mean" in message else ""


def _cells(
    path: Path, rows: Iterator[tuple[int, list[str]]], names: list[str]
) -> tuple[list[int], list[list[str]]]:
    lines, cells = [], []
    for line, row in rows:
        if len(row) != len(names):
            raise InputError(
                f"{path} line {line}: must have {len(names)} cells as the header has, but got"
                f" {len(row)}; quote commas"
            )
        lines.append(line)
        cells.append([cell.strip() for cell in row])
    return lines, cells


def _column(path: Path, name: str, lines: list[int], cells: list[str]) -> pd.Series:
    """A column of floats where its name says so, or an unknown column holds nothing but numbers;
    else of texts.
    """
    if name in NUMBERS:
        return pd.Series(
            [_number(path, name, line, cell) for line, cell in zip(lines, cells, strict=True)],
            dtype=float,
        )
    if name not in COLUMNS:
        numbers = _as_numbers(cells)
        if numbers is not None:
            return pd.Series(numbers, dtype=float)
    # `none` is a word in text columns (recompute none), not a blank.
    return pd.Series(
        [np.nan if cell.lower() in BLANKS - {"none"} else cell for cell in cells], dtype=object
    )


def _as_numbers(cells: list[str]) -> list[float] | None:
    try:
        return [math.nan if cell.lower() in BLANKS else float(cell) for cell in cells]
    except ValueError:
        return None


def _number(path: Path, name: str, line: int, cell: str) -> float:
    if cell.lower() in BLANKS:
        return math.nan
    if name in SWITCHES and cell.lower() in WORDS:
        return WORDS[cell.lower()]
    try:
        value = math.nan if "_" in cell else float(cell)
    except ValueError:
        value = math.nan
    if not 0 <= value < MAX_NUMBER or (name in SWITCHES and value > 1):
        kind = "a whole number from 1 to 1e18"
        if name in SWITCHES:
            kind = "0 or 1"
        elif name in FIGURES:
            kind = "a number from 0 to 1e18"
        got = f"must be {kind}, but got {cell[:60]!r}; leave it empty when it is not stated"
        raise InputError(f"{path} line {line}, column {name!r}: {got}")
    return value


def _completed(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Every column of the contract; a run without a source is of its file."""
    kinds = {name: float if name in NUMBERS else object for name in COLUMNS if name not in frame}
    empty = {name: pd.Series(np.nan, index=frame.index, dtype=kind) for name, kind in kinds.items()}
    completed = pd.concat([frame, pd.DataFrame(empty)], axis=1) if empty else frame
    named = completed["source"].where(completed["source"].notna(), path.stem)
    return completed.assign(source=named.astype(object))
