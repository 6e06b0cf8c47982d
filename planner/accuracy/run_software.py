"""What the words of a published run say of its software: run_software.yaml, read in one place."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from planner.accuracy.shapes import Row
from planner.specs import library
from planner.specs.documents import FrozenDocument, build, read_mapping
from planner.specs.software import Software
from planner.specs.switches.table import BY_FRAMEWORK, with_switches

FILE = Path(__file__).with_name("run_software.yaml")
COLUMNS = (
    "stack",
    "source_ref",
    "notes",
    "model",
    "hardware",
    "schedule",
    "zero",
    "ep",
    "experts",
)
"""Columns of a row that patterns may name."""
Cells = tuple[str, ...]
"""Their texts, in this order; of what is not stated an empty one."""
Facts = tuple[tuple[str, Any], ...]
"""Switches of a run, and figures of its software by dotted name."""


class Named(NamedTuple):
    """The software of a run."""

    name: str
    """A software or a distribution."""
    stands_in_for: str = ""
    """What the row says, where that is not known."""
    assumed: tuple[str, ...] = ()


class Pattern(FrozenDocument):
    """Words of a row, and what they say."""

    when: dict[str, str]
    """By column the regular expression that must be found in it."""
    software: str = Field(default="", alias="is")
    """A software or a distribution."""
    switches: dict[str, bool | int | str] = Field(default_factory=dict)
    figures: dict[str, float | bool | str] = Field(default_factory=dict)
    """Figures of the software that no switch decides, by dotted name."""
    source: str

    def fits(self, cells: Cells) -> bool:
        text = dict(zip(COLUMNS, cells, strict=True))
        return all(re.search(words, text[column], re.I) for column, words in self.when.items())


@lru_cache(maxsize=1)
def patterns() -> dict[str, tuple[Pattern, ...]]:
    """The table: of software, of what comes nearest, of switches."""
    return {
        kind: tuple(build(Pattern, entry, f"{FILE.name}: {kind}") for entry in entries)
        for kind, entries in read_mapping(FILE).items()
    }


def cells(row: Row) -> Cells:
    values = (row[column] for column in COLUMNS)
    return tuple(
        "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        for value in values
    )


@lru_cache(maxsize=8192)
def software_of(cells: Cells) -> Named:
    """Software or distribution; where it is not known, the nearest of its time or kind."""
    for pattern in patterns()["software"]:
        if pattern.fits(cells):
            return Named(pattern.software)
    stated = cells[0]
    if not stated:
        return Named("megatron", "", ("stack megatron: not stated",))
    name, known = stated.lower(), library.stacks()
    if name in known:
        return Named(name)
    nearest = _of_its_time(name, known)
    if nearest is None:
        fitting = (pattern.software for pattern in patterns()["nearest"] if pattern.fits(cells))
        nearest = next(fitting)
    return Named(nearest, stated[:60], (f"stack {nearest}: nearest to {stated[:60]}",))


def _of_its_time(name: str, known: list[str]) -> str | None:
    """Of the eras of a software the nearest by year."""
    era = re.fullmatch(r"(.*)-(20\d\d)", name)
    if era is None:
        return None
    years: dict[int, str] = {}
    for stack in known:
        match = re.fullmatch(re.escape(era[1]) + r"-(20\d\d)", stack)
        if match:
            years[int(match[1])] = stack
    return years[min(years, key=lambda year: abs(year - int(era[2])))] if years else None


@lru_cache(maxsize=8192)
def facts(cells: Cells) -> Facts:
    """The switches that the row states, and figures that no switch decides, sorted."""
    out: dict[str, Any] = {}
    for pattern in patterns()["switches"]:
        if pattern.fits(cells):
            out = pattern.switches | pattern.figures | out
    return tuple(sorted(out.items()))


@lru_cache(maxsize=512)
def built(named: Named, changed: Facts = ()) -> Software:
    """The software under these switches and figures."""
    software = library.stack(named.name)
    software = software.model_copy(update={"stands_in_for": named.stands_in_for})
    switches = BY_FRAMEWORK[software.framework]
    settings = {name: value for name, value in changed if name in switches}
    own = {path: value for path, value in changed if "." in path}
    return with_switches(software, settings).with_figures(own)
