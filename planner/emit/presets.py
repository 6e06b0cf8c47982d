"""A model by another software's name of it: where that builds its models from presets alone, the
sizes must be the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from planner.specs import library
from planner.specs.model import ModelSpec

_NO_SIZE = {
    "name",
    "aliases",
    "source",
    "note",
    "parameters",
    "max_seq_length",
    "frameworks",
    "family",
    "rope_theta",
    "position_rows",
}


def same(model: ModelSpec, names: Iterable[str]) -> str | None:
    """The name, among presets of ours, of one that has the model's sizes; its own name first. None:
    there is none.
    """
    known = list(names)
    first = [name for name in known if name == model.name]
    return next(
        (name for name in (*first, *known) if _shape(library.model(name)) == _shape(model)), None
    )


def _shape(model: ModelSpec) -> dict[str, Any]:
    return model.model_dump(exclude=_NO_SIZE)
