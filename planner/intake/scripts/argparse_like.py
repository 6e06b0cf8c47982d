"""A command line read as argparse would: flags, their values, and where each value stands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.intake.bash.state import blank, place
from planner.intake.bash.traced_text import (
    Piece,
    Text,
    cut,
    first_unknown,
    plain,
    shown,
    source,
    stretch,
)
from planner.intake.documents.scalars import plain as meaning
from planner.intake.documents.tree import Leaf
from planner.intake.frameworks.megatron_flags import Flag
from planner.intake.reading import Origin, Unresolved

_BOOLS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_WEIGHTY = re.compile(
    r"size|num|layers|batch|seq|hidden|heads|experts|degree|stage|nodes|gpus|length|topk|"
    r"granularity|method|format|dtype"
)
LISTS = ("modules", "path", "sizes", "ranks")
"""Ends of the names whose value is a list even of one."""
MAX_NOTES = 12


@dataclass(slots=True)
class Parsed:
    """What a command line states, in its order: of a flag that stands twice the last counts."""

    leaves: list[Leaf] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    unresolved: list[Unresolved] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    """Those that the table knows."""
    positional: list[Text] = field(default_factory=list)


def is_flag(word: str) -> bool:
    """Whether argparse takes a word for a flag and not for a value."""
    return (
        len(word) > 1
        and word[0] == "-"
        and not re.match(r"-\.?\d", word)
        and " " not in word.partition("=")[0]
    )


def parse(words: Sequence[Text], table: Mapping[str, Flag], texts: Mapping[str, str]) -> Parsed:
    """Values by flag. `table` tells what each takes; the rest take what follows up to the next
    flag.

    texts: of the files that words stand in, to count lines.
    """
    out = Parsed()
    seen: dict[str, str] = {}
    at = 0
    while at < len(words):
        name = plain(words[at])
        if not is_flag(name):
            out.positional += [words[at]] if not blank(words[at]) else []
            at += 1
            continue
        first = at
        stated, equals, _ = name.partition("=")
        values = [cut(source(words[at]), len(stated) + 1, len(name))] if equals else []
        flag = named(stated, table)
        at += 1
        while not equals and at < len(words) and _takes(flag, values, words[at]):
            values.append(words[at])
            at += 1
        _state(out, stated, words[first:at], flag, values, texts)
        _repeated(out, seen, stated, values)
    return out


def named(stated: str, table: Mapping[str, Flag]) -> Flag | None:
    """The flag as spelled, else with dashes for underscores."""
    return table.get(stated) or table.get("--" + stated.lstrip("-").replace("_", "-"))


def _takes(flag: Flag | None, values: list[Text], word: Text) -> bool:
    text = plain(word)
    if is_flag(text) or (blank(word) and values):
        return False
    if flag is None:
        return "=" not in text or not values
    if flag.kind in ("true", "false"):
        return not values and text.lower() in ("true", "false")
    return flag.many or not values


def _repeated(out: Parsed, seen: dict[str, str], stated: str, values: list[Text]) -> None:
    told = " ".join(shown(value) for value in values)
    key = stated.replace("_", "-")
    if seen.get(key, told) != told and len(out.notes) < MAX_NOTES:
        out.notes.append(
            f"{stated} stands twice, with {seen[key][:40] or 'no value'} and"
            f" {told[:40] or 'no value'}: the last counts"
        )
    seen[key] = told


def _state(
    out: Parsed,
    stated: str,
    words: Sequence[Text],
    flag: Flag | None,
    values: list[Text],
    texts: Mapping[str, str],
) -> None:
    """Records a flag. words: its own and those of its values; values: what it is given."""
    name = flag.dest if flag else stated.lstrip("-").replace("-", "_")
    if flag is None:
        out.unknown.append(stated)
    else:
        out.flags.append(flag)
    first = next((found for value in values if (found := first_unknown(value))), None)
    if (
        first
        and (flag is None or flag.kind in ("int", "float") or _WEIGHTY.search(name))
        and len(values) == 1
    ):
        out.unresolved.append(_open(first, stated, words[0], texts))
        return
    if flag and not values and flag.kind not in ("true", "false") and not flag.optional:
        out.notes.append(f"{stated} needs a value, but none follows")
        return
    value = _value(flag, values, out, stated)
    out.leaves.append(leaf((name,), value, words[0], values, texts, stated, words))


def _open(first: Piece, stated: str, word: Text, texts: Mapping[str, str]) -> Unresolved:
    variable = (
        first.unknown
        if re.fullmatch(r"\w+", first.unknown)
        else stated.lstrip("-").replace("-", "_")
    )
    return Unresolved(
        variable,
        f"{stated} takes {asked(first)}; --set {variable}=VALUE supplies it",
        place(word, texts),
    )


def asked(first: Piece) -> str:
    """What is not known, in words."""
    if first.unset:
        return f"${first.unknown}, which nobody sets"
    command = (
        f", which would need running {first.needs_command[:80]}" if first.needs_command else ""
    )
    return (
        f"${first.unknown}{command}"
        if first.needs_command
        else f"the output of {first.unknown[:80]}, which is never run"
    )


def _value(flag: Flag | None, values: list[Text], out: Parsed, stated: str) -> Any:
    words = [shown(value) for value in values]
    if flag is not None and flag.kind in ("true", "false"):
        said = _BOOLS.get(words[0].lower(), True) if words else True
        return said if flag.kind == "true" or (words and flag.dest == flag.name) else not said
    if not words:
        return True
    kind = flag.kind if flag else "any"
    typed = [_typed(word, kind, out, stated) for word in words]
    return (
        typed if len(typed) > 1 or (flag and flag.many and flag.name.endswith(LISTS)) else typed[0]
    )


def _typed(word: str, kind: str, out: Parsed, stated: str) -> Any:
    if kind == "str":
        return word
    value = meaning(word[:200]) if word else word
    if kind == "int" and not isinstance(value, int) and word.lower() not in ("none", "auto"):
        out.notes.append(f"{stated} takes a whole number, but got {word[:40]!r}")
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return word if value is None else value


def leaf(
    path: tuple[str, ...],
    value: Any,
    word: Text,
    values: Sequence[Text],
    texts: Mapping[str, str],
    name: str = "",
    words: Sequence[Text] = (),
) -> Leaf:
    """A value with its place: the span where it alone stands there, and the variable that it comes
    through.

    word: the flag's. name: of the flag, for people. words: all that state it, where they may be
    taken out.
    """
    pieces = [piece for one in values for piece in one if piece.text]
    alone = (
        pieces[0]
        if len(pieces) == 1 and len(values) == 1 and pieces[0].start >= 0 and not pieces[0].unknown
        else None
    )
    span = (alone.start, alone.start + len(alone.text)) if alone else None
    origin, through = _origin(word, pieces)
    told = place((alone,) if alone else word, texts)
    where = " ".join(one for one in (told, name, f"through {through}" if through else "") if one)
    removal = stretch(words, texts) if words else None
    return Leaf(path, value, alone.file if alone else "", span, origin, where, removal)


def _origin(word: Text, pieces: list[Piece]) -> tuple[Origin, str]:
    """How a value comes, and through which variable: written beside its flag, it is the flag's
    own.
    """
    stated = next((piece for piece in word if piece.text), Piece(""))
    for origin in ("option", "environment"):
        found = next((piece for piece in pieces if piece.origin == origin), None)
        if found:
            return found.origin, found.via
    through = next(
        (piece for piece in pieces if piece.via != stated.via or (piece.start < 0 <= stated.start)),
        None,
    )
    return ("variable", through.via) if through else ("flag", "")
