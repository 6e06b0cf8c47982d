"""What every reader of configs shares: leaves given the Reading's names, and a Reading made of
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from planner.intake.documents.scalars import plain
from planner.intake.documents.tree import Leaf, Path, location
from planner.intake.reading import Edit, Origin, Reading, Unresolved, Value

Framework = Literal["megatron", "deepspeed", "torch"]

_WEIGHTY = re.compile(
    r"size|num_|layers|batch|seq|hidden|heads|experts|degree|stage|nodes|gpus|devices|length|"
    r"precision|recompute|topk|channels|groups|_dim|rank"
    r"|bf16|fp16|fp8|^model$"
)
"""Names whose value is asked for when a file leaves it open; a data path that is open is nobody's
concern.
"""
_OPEN = re.compile(r"\$\{|\?\?\?")


MAX_DOUBTED = 200
"""Names that are compared with all arguments."""


class Named(NamedTuple):
    """A leaf under the Reading's name. `value` is the leaf's own unless the framework's word
    differs from Megatron's.
    """

    name: str
    leaf: Leaf
    value: Any
    known: bool = True


def named(name: str, leaf: Leaf, known: bool = True) -> Named:
    """As the leaf states it."""
    return Named(name, leaf, leaf.value, known)


def make_reading(
    file: str,
    kind: str,
    framework: Framework,
    named_leaves: Iterable[Named],
    *,
    version: str | None = None,
    notes: Sequence[str] = (),
    unresolved: Sequence[Unresolved] = (),
) -> Reading:
    """A Reading of named leaves, the last of a name counting. Null values state nothing; what
    stands for a variable is unresolved.
    """
    values: dict[str, Value] = {}
    edits: dict[str, Edit] = {}
    removals: dict[str, tuple[Edit, ...]] = {}
    no_place = set()
    unknown: dict[str, None] = {}
    opened = {question.name: question for question in unresolved}
    for name, leaf, value, known in named_leaves:
        if isinstance(value, str) and _OPEN.search(value) and _WEIGHTY.search(name):
            if name not in values:
                opened[name] = Unresolved(
                    name,
                    f"{value[:80]} is not set in the file; --set {name}=VALUE supplies it",
                    location(leaf),
                )
            continue
        values.pop(name, None)
        edits.pop(name, None)
        if leaf.removal is None:
            no_place.add(name)
        else:
            removals[name] = (*removals.get(name, ()), leaf.removal)
        if value is None:
            continue
        opened.pop(name, None)
        values[name] = Value(value, leaf.origin, location(leaf))
        if leaf.span is not None and value is leaf.value:
            edits[name] = Edit(leaf.file, *leaf.span)
        if not known:
            unknown[".".join(leaf.path)] = None
    for name in no_place:
        removals.pop(name, None)
    return Reading(
        file,
        kind,
        framework,
        version,
        values,
        tuple(opened.values()),
        tuple(unknown),
        tuple(notes),
        edits=edits,
        removals=removals,
    )


def merged(
    first: Reading, second: Reading, *, kind: str | None = None, framework: Framework | None = None
) -> Reading:
    """Two readings as one: where both state a value, the second counts."""
    unresolved = {question.name: question for question in (*first.unresolved, *second.unresolved)}
    edits, removals = dict(first.edits), dict(first.removals)
    for name in second.values:
        unresolved.pop(name, None)
        edits.pop(name, None)
        removals.pop(name, None)
    return replace(
        first,
        kind=kind or first.kind,
        framework=framework or first.framework,
        framework_version=second.framework_version or first.framework_version,
        values={**first.values, **second.values},
        unresolved=tuple(unresolved.values()),
        unknown=tuple(dict.fromkeys((*first.unknown, *second.unknown))),
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))),
        undecided=first.undecided or second.undecided,
        version_stated=first.version_stated or second.version_stated,
        edits={**edits, **second.edits},
        removals={**removals, **second.removals},
    )


def substituted(
    leaves: Iterable[Leaf], sets: Mapping[str, Any], pattern: re.Pattern[str]
) -> list[Leaf]:
    """Leaves with `${NAME}` and `${NAME:default}` replaced: by --set NAME=VALUE, else by the
    default; else left as they are.

    `pattern` has the groups `name` and `default`. Environment variables of this machine are never
    read: a file is checked for the machine that it will run on.
    """
    return [_substituted(leaf, sets, pattern) for leaf in leaves]


def _substituted(leaf: Leaf, sets: Mapping[str, Any], pattern: re.Pattern[str]) -> Leaf:
    if not isinstance(leaf.value, str) or "${" not in leaf.value:
        return leaf
    origins: list[Literal["option", "default"]] = []

    def fill(match: re.Match[str]) -> str:
        name, default = match["name"].strip(), match["default"]
        if name in sets:
            origins.append("option")
            return str(sets[name])
        if default is None:
            return match[0]
        origins.append("default")
        return default

    value = pattern.sub(fill, leaf.value[:2000])
    if not origins:
        return leaf
    if pattern.fullmatch(leaf.value):
        value = plain(value)
    origin: Origin = "option" if "option" in origins else "environment"
    where = f"{location(leaf)} ({leaf.value[:60]})"
    return replace(leaf, value=value, origin=origin, where=where, span=None)


def tail(path: Path, prefixes: Iterable[Path]) -> Path:
    """The path without the longest of the prefixes that it begins with."""
    longest = 0
    for prefix in prefixes:
        if path[: len(prefix)] == prefix and len(path) > len(prefix):
            longest = max(longest, len(prefix))
    return path[longest:]


def truth(value: Any) -> Any:
    """0 and 1 written for a bool."""
    return bool(value) if isinstance(value, int) and value in (0, 1) else value


def doubted(named_leaves: Iterable[Named], *, exact: bool) -> tuple[list[Named], list[str]]:
    """Names checked against Megatron's arguments, and what is said of those that miss one by a
    letter or two.

    exact: whatever is no argument is unknown; else only near misses are, as the framework has keys
    of its own.
    """
    from planner.intake.frameworks.megatron_flags import flags

    known: set[str] = set()
    for flag in flags().values():
        known |= {flag.dest, flag.name}
    out: list[Named] = []
    notes: dict[str, None] = {}
    near_of: dict[str, str | None] = {}
    for argument in named_leaves:
        name = argument.name
        if name in known or "." in name or name == "model" or name.isupper():
            out.append(argument)
            continue
        if name not in near_of:
            near_of[name] = _near(name, known) if len(near_of) < MAX_DOUBTED else None
        near = near_of[name]
        if near or exact:
            argument = argument._replace(known=False)
        out.append(argument)
        if near:
            notes[f"{name} is no argument of Megatron, {near} is one"] = None
    return out, list(notes)


def _near(name: str, known: Iterable[str]) -> str | None:
    import difflib

    if len(name) < 8:
        return None
    alike = [word for word in known if abs(len(word) - len(name)) <= 2 and word[:3] == name[:3]]
    near = difflib.get_close_matches(name, alike, n=1, cutoff=0.93)
    return near[0] if near else None
