"""The software that is known: one document a software and era, of which a later may extend an
earlier; or the path of one's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from planner.specs.extends import merged
from planner.specs.names import checked, document_path, place, preset_names
from planner.specs.software import Software

FOLDER = Path(__file__).with_name("software")


def software_names() -> list[str]:
    return preset_names(FOLDER)


def software(name_or_path: str, known: Callable[[], list[str]] = software_names) -> Software:
    """A software by name or path, its base's figures below its own; `known` names what else could
    have been meant.
    """

    def found(name: str) -> Path:
        return document_path(name, FOLDER, known, "stack")

    path = found(name_or_path)
    document = checked(Software, merged(path, found), place(path, FOLDER))
    return document.model_copy(update={"document": document.name})


def reproductions() -> set[str]:
    """Software that is there for published runs alone, told by the line `reproduces:` without
    reading the rest.
    """
    line = re.compile(r"^reproduces:", re.MULTILINE)
    return {
        name
        for name in software_names()
        if line.search((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    }
