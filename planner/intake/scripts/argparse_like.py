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
    concatenated,
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
            if not blank(words[at]):
                out.positional.append(words[at])
            at += 1
            continue
        first = at
        spelling, equals, _ = name.partition("=")
        flag = named(spelling, table)
        values: list[Text] = []
        at += 1
        if equals:
            values.append(cut(source(words[first]), len(spelling) + 1, len(name)))
        while not equals and at < len(words) and _takes(flag, values, words[at]):
            values.append(words[at])
            at += 1
        _record(out, spelling, words[first:at], flag, values, texts)
        _note_repeated(out, seen, spelling, values)
    return out


def named(spelling: str, table: Mapping[str, Flag]) -> Flag | None:
    """The flag as spelled, else with dashes for underscores."""
    return table.get(spelling) or table.get("--" + spelling.lstrip("-").replace("_", "-"))


def _takes(flag: Flag | None, values: list[Text], word: Text) -> bool:
    """Whether a flag with these values takes the next word too."""
    text = plain(word)
    if is_flag(text) or (blank(word) and values):
        return False
    if flag is None:
        return "=" not in text or not values
    if flag.kind in ("true", "false"):
        return not values and text.lower() in ("true", "false")
    return flag.many or not values


def _note_repeated(out: Parsed, seen: dict[str, str], spelling: str, values: list[Text]) -> None:
    value = " ".join(map(shown, values))
    key = spelling.replace("_", "-")
    before = seen.get(key, value)
    if before != value and len(out.notes) < MAX_NOTES:
        out.notes.append(
            f"{spelling} stands twice, with {before[:40] or 'no value'} and"
            f" {value[:40] or 'no value'}: the last counts"
        )
    seen[key] = value


def _record(
    out: Parsed,
    spelling: str,
    words: Sequence[Text],
    flag: Flag | None,
    values: list[Text],
    texts: Mapping[str, str],
) -> None:
    """Records a flag. words: its own and those of its values; values: what it is given."""
    name = spelling.lstrip("-").replace("-", "_")
    if flag is None:
        out.unknown.append(spelling)
        weighty = True
    else:
        out.flags.append(flag)
        typed = flag.kind in ("int", "float") or flag.choices
        weighty = bool(typed or _WEIGHTY.search(flag.dest))
    unknown = first_unknown(concatenated(values))
    if unknown and weighty and len(values) == 1:
        variable = unknown_variable(unknown, name)
        why = f"{spelling} takes {describe_unknown(unknown)}; --set {variable}=VALUE supplies it"
        out.unresolved.append(Unresolved(variable, why, place(words[0], texts)))
        return
    if flag:
        name = flag.dest
        if not values and flag.kind not in ("true", "false") and not flag.optional:
            out.notes.append(f"{spelling} needs a value, but none follows")
            return
    value = _value(flag, values, out, spelling)
    out.leaves.append(leaf((name,), value, words[0], values, texts, spelling, words))


def unknown_variable(unknown: Piece, name: str) -> str:
    """What --set calls a value that is not known: its variable, else the name given."""
    return unknown.unknown if re.fullmatch(r"\w+", unknown.unknown) else name


def describe_unknown(unknown: Piece) -> str:
    """Why a value is not known: what takes the place of `$NAME` in a sentence."""
    if unknown.unset:
        return f"${unknown.unknown}, which nobody sets"
    if unknown.needs_command:
        return f"${unknown.unknown}, which would need running {unknown.needs_command[:80]}"
    return f"the output of {unknown.unknown[:80]}, which is never run"


def _value(flag: Flag | None, values: list[Text], out: Parsed, spelling: str) -> Any:
    """The values as Python's, by the flag's kind; one that is no whole number where the flag takes
    one is noted.
    """
    words = [shown(value) for value in values]
    if flag is not None and flag.kind in ("true", "false"):
        if not words:
            return flag.kind == "true"
        value = _BOOLS.get(words[0].lower(), True)
        as_spelled = flag.kind == "true" or flag.dest == flag.name
        return value == as_spelled
    if not words:
        return True
    kind = flag.kind if flag else "any"
    typed = [_typed(word, kind, out, spelling) for word in words]
    if flag and flag.many and flag.name.endswith(LISTS):
        return typed
    return typed if len(typed) > 1 else typed[0]


def _typed(word: str, kind: str, out: Parsed, spelling: str) -> Any:
    if kind == "str":
        return word
    value = meaning(word[:200]) if word else word
    if kind == "int" and not isinstance(value, int) and word.lower() not in ("none", "auto"):
        out.notes.append(f"{spelling} takes a whole number, but got {word[:40]!r}")
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
    pieces = [piece for piece in concatenated(values) if piece.text]
    origin, through = _origin(word, pieces)
    file, span, at = "", None, place(word, texts)
    if len(pieces) == 1 and len(values) == 1 and pieces[0].start >= 0 and not pieces[0].unknown:
        piece = pieces[0]
        file, span = piece.file, (piece.start, piece.start + len(piece.text))
        at = place((piece,), texts)
    where = f"{at} {name}".strip()
    if through:
        where = f"{where} through {through}".strip()
    return Leaf(path, value, file, span, origin, where, stretch(words, texts))


def _origin(word: Text, pieces: list[Piece]) -> tuple[Origin, str]:
    """How a value comes, and through which variable: written beside its flag, it is the flag's
    own.
    """
    for origin in ("option", "environment"):
        for piece in pieces:
            if piece.origin == origin:
                return piece.origin, piece.via
    own = next((piece for piece in word if piece.text), Piece(""))
    for piece in pieces:
        if piece.via != own.via or piece.start < 0 <= own.start:
            return "variable", piece.via
    return "flag", ""
