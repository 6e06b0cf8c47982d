"""Distributions: names under which software is run, and the switches that each turns on by itself
(distributions.yaml).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from planner.specs.documents import FrozenDocument, build, read_mapping
from planner.specs.names import fold
from planner.specs.software import Software
from planner.specs.software_documents import software
from planner.specs.switches import table

FILE = Path(__file__).with_name("distributions.yaml")


class Distribution(FrozenDocument):
    """A software under the switches of somebody's recipes."""

    name: str
    software: str
    """The document of its figures."""
    switches: dict[str, bool | int | str] = Field(default_factory=dict)
    """What its recipes set beside the document's own settings."""
    kinds: tuple[str, ...] = ()
    """Kinds of files that are read as it (Reading.kind)."""
    unstated: Literal["recipes", "framework"] = "recipes"
    """What such a file leaves out: as the recipes have it, or the framework's defaults."""
    source: str

    def says(self, version: str = "") -> str:
        """What the name stands for: `megatron-core 0.19 with tp_comm_overlap on`."""
        versioned = f"{self.software} {version}".strip()
        return f"{versioned} with {table.text(self.switches) or 'its own switches'}"

    def built(self) -> Software:
        """The software under these switches, by this name."""
        switched = table.with_switches(software(self.software), self.switches)
        return switched.model_copy(update={"name": self.name})


@lru_cache(maxsize=1)
def distributions() -> dict[str, Distribution]:
    return {
        name: build(Distribution, {"name": name} | entry, f"{FILE.name}: {name}")
        for name, entry in read_mapping(FILE).items()
    }


def named(name: str) -> Distribution | None:
    """By name, spelled as freely as the names of documents are."""
    wanted = fold(name)
    for distribution in distributions().values():
        if fold(distribution.name) == wanted:
            return distribution
    return None


def of_file(kind: str, framework: str) -> Distribution:
    """What a file of a kind is read as; the first of its framework where the kind is of none."""
    of_framework = [
        distribution
        for distribution in distributions().values()
        if _framework(distribution.software) == framework
    ]
    for distribution in of_framework:
        if kind in distribution.kinds:
            return distribution
    return of_framework[0]


@lru_cache
def _framework(name: str) -> str:
    """Of a software's document, each of which is read once."""
    return software(name).framework
