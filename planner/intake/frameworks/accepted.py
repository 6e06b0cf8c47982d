"""The values that keys of DeepSpeed's configuration and of torchtitan's TOML take: facts in
deepspeed_values.csv and torchtitan_values.csv.

Source: the models of DeepSpeed's sections (zero_optimization, fp16, bf16) and torchtitan 0.2.2's
JobConfig; `python -m tests.judges.value_tables` writes both.
"""

from __future__ import annotations

import csv
import operator
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

DEEPSPEED = Path(__file__).with_name("deepspeed_values.csv")
TORCHTITAN = Path(__file__).with_name("torchtitan_values.csv")
YES = {"true", "on", "yes", "y", "t", "1", "1.0"}
NO = {"false", "off", "no", "n", "f", "0", "0.0"}
BOUNDS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
"""The longer first."""
WORDS = {
    operator.ge: "at least",
    operator.le: "at most",
    operator.gt: "above",
    operator.lt: "below",
}


class Accepted(NamedTuple):
    """What one key takes."""

    key: str
    """Its path: `zero_optimization.stage`."""
    kind: str
    """bool, int, float or str."""
    choices: tuple[str, ...]
    """The words that it takes; none where it takes any of the kind."""
    optional: bool
    """Whether null is a value."""
    limits: str
    """Of a number: `>=0 <=1`."""

    def takes(self, value: Any) -> bool:
        """Whether a value passes, as pydantic reads it: what means a number is one."""
        if value is None:
            return self.optional
        if self.kind == "bool":
            return str(value).lower() in YES | NO and not isinstance(value, list | dict)
        if self.kind == "str":
            return isinstance(value, str) and (not self.choices or value in self.choices)
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            return False
        if self.kind == "int" and not number.is_integer():
            return False
        if self.choices:
            return str(int(number)) in self.choices
        return all(holds(number, bound) for holds, bound in self._bounds())

    def bounds_in_words(self) -> str:
        """The limits of a number: `at least 0 and at most 1`."""
        return " and ".join(f"{WORDS[holds]} {bound:g}" for holds, bound in self._bounds())

    def nearest(self, value: Any) -> float | None:
        """The bound that a number is beyond."""
        for holds, bound in self._bounds():
            if not holds(float(value), bound):
                beyond = 1 if self.kind == "int" else 0
                step = {operator.gt: beyond, operator.lt: -beyond}.get(holds, 0)
                return type(bound)(bound + step)
        return None

    def _bounds(self) -> list[tuple[Any, int | float]]:
        bounds: list[tuple[Any, int | float]] = []
        for limit in self.limits.split():
            sign = next(sign for sign in BOUNDS if limit.startswith(sign))
            text = limit.removeprefix(sign)
            bounds.append((BOUNDS[sign], float(text) if self.kind == "float" else int(text)))
        return bounds


@cache
def table(path: Path) -> dict[str, Accepted]:
    """Every key of a table, by its path."""
    with path.open(newline="") as stream:
        rows = [
            Accepted(
                row["key"],
                row["kind"].rstrip("?"),
                tuple(filter(None, row["choices"].split("|"))),
                row["kind"].endswith("?"),
                row["limits"],
            )
            for row in csv.DictReader(stream)
        ]
    return {row.key: row for row in rows}


def write(path: Path, keys: Iterable[Accepted]) -> None:
    """Writes a table."""
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("key", "kind", "choices", "limits"))
        for key in sorted(keys):
            kind = key.kind + "?" * key.optional
            writer.writerow((key.key, kind, "|".join(key.choices), key.limits))
