"""A document that names a base and states only what differs: `extends: h100-sxm`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.specs.documents import read_mapping

OWN = (
    "name",
    "aliases",
    "price_usd_per_gpu_hour",
    "price_source",
    "max_gpus",
    "note",
    "reproduces",
)
"""What a base does not hand down: how a machine is called, what it costs, how many there are, what
is said of it; which runs a software is there for.
"""
_SUFFIXES = (".yaml", ".yml", ".json")

Find = Callable[[str], Path]
"""The file of a profile by name or path; raises InputError for one that is not known."""


def merged(path: Path, find: Find) -> dict[str, Any]:
    """The fields of a profile over those of its base, and of its base's base; groups merge field by
    field, null drops a field.

    Errors: InputError for a base that is not known, and for profiles that extend one another in a
    circle.
    """
    chain, documents = [path], [read_mapping(path)]
    while "extends" in documents[-1]:
        base = _base(documents[-1].pop("extends"), chain[-1], find)
        if _same(base) in map(_same, chain):
            circle = " -> ".join(profile.name for profile in (*chain, base))
            raise InputError(
                f"{path.name}: extends must end at a profile that extends nothing, but goes in a"
                f" circle: {circle}"
            )
        chain.append(base)
        documents.append(read_mapping(base))
    out = documents.pop()
    while documents:
        out = _over({key: value for key, value in out.items() if key not in OWN}, documents.pop())
    return out


def _base(base: object, where: Path, find: Find) -> Path:
    """The path of the base profile; a relative path starts at the document that names it."""
    if not isinstance(base, str) or not base.strip():
        raise InputError(
            f"{where.name}: extends must be the name or the path of one profile, but got"
            f" {repr(base)[:60]}; leave it out where every figure is stated"
        )
    path = where.parent / base
    try:
        there = base.lower().endswith(_SUFFIXES) and path.is_file()
        return path if there else find(base)
    except (InputError, OSError, ValueError) as fault:
        raise InputError(f"{where.name}: extends: {fault}") from None


def _same(path: Path) -> Path:
    return path.absolute().resolve()


def _over(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Groups of fields merge; everything else, lists too, is replaced; null drops what the base
    has.
    """
    out = dict(base)
    for key, value in changes.items():
        before = out.get(key)
        out[key] = (
            _over(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
        )
        if value is None:
            del out[key]
    return out
