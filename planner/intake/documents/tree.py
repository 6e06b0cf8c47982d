"""A config as nested plain values, and as a list of leaves: what it states, where, and where that
stands in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.errors import InputError
from planner.intake.reading import Edit, Origin

DEEPEST = 60
MAX_LEAVES = 20_000
"""Values of one config, also through aliases: a file of a few lines can state billions."""

Path = tuple[str, ...]
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed config. Values may share lists and mappings (YAML's aliases): read, never
    changed.
    """

    file: str
    """Path as given."""
    data: Any
    spans: Mapping[Path, Span]
    """Of the values that are written out, by path; a list's items by their index."""
    duplicates: tuple[str, ...] = ()
    """Keys stated twice in one mapping: the last counts, except where the framework refuses them.
    """
    notes: tuple[str, ...] = ()
    strict: bool = True
    """JSON: without comments, trailing commas or anything that json.load refuses."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One stated value."""

    path: Path
    value: Any
    """Plain; a list is one leaf, a mapping is not."""
    file: str = ""
    span: Span | None = None
    origin: Origin = "flag"
    where: str = ""
    """For people; made of file and path when empty."""
    removal: Edit | None = None
    """Of a command line: the flag with its value."""


def leaves(document: Document) -> list[Leaf]:
    """Every value by its path, in the order written. InputError where there are too many."""
    return [
        Leaf(path, value, document.file, document.spans.get(path))
        for path, value in _walk(document.data)
    ]


def location(leaf: Leaf) -> str:
    """Where a leaf stands, for people."""
    name = leaf.file.rsplit("/", 1)[-1]
    return leaf.where or f"{name} {'.'.join(leaf.path)}".strip()


def _walk(root: Any) -> Iterator[tuple[Path, Any]]:
    stack: list[tuple[Path, Any]] = [((), root)]
    steps = 0
    while stack:
        path, value = stack.pop()
        steps += 1
        if steps > MAX_LEAVES or len(path) > DEEPEST:
            raise InputError(
                f"a config must state at most {MAX_LEAVES:,} values, {DEEPEST} deep, but this one"
                " states more"
            )
        if isinstance(value, dict) and value:
            for key, child in reversed(value.items()):
                stack.append(((*path, str(key)), child))
        elif path:
            yield path, bounded(value)


def bounded(value: Any) -> Any:
    """A list as written, or InputError where aliases make it endless."""
    stack: list[tuple[Any, int]] = [(value, 0)]
    steps = 0
    while stack:
        item, depth = stack.pop()
        steps += 1
        if steps > MAX_LEAVES or depth > DEEPEST:
            raise InputError(
                f"a list of a config must have at most {MAX_LEAVES:,} values, {DEEPEST} deep, but"
                " this one has more"
            )
        if isinstance(item, dict):
            item = list(item.values())
        if isinstance(item, list):
            stack.extend((child, depth + 1) for child in item)
    return value


def under(leaves: Sequence[Leaf], *prefix: str) -> list[Leaf]:
    """The leaves below a path, with that path taken off their front."""
    depth = len(prefix)
    return [
        replace(leaf, path=leaf.path[depth:], where=location(leaf))
        for leaf in leaves
        if leaf.path[:depth] == prefix and len(leaf.path) > depth
    ]


def last(leaves: Sequence[Leaf], *path: str) -> Leaf | None:
    """The leaf of a path that counts: the last stated."""
    for leaf in reversed(leaves):
        if leaf.path == path:
            return leaf
    return None


def last_value(leaves: Sequence[Leaf], *path: str) -> Any:
    """The value that counts; None where nothing states it."""
    leaf = last(leaves, *path)
    return leaf.value if leaf else None
