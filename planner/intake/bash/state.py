"""What a shell knows while a script is read: variables, functions, the commands met, and how much
work is left.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from time import thread_time
from typing import Any

from planner.errors import InputError
from planner.intake.bash.traced_text import (
    EMPTY,
    UNKNOWN,
    Piece,
    Source,
    Text,
    concatenated,
    first_placed,
)

MAX_DEPTH = 24
"""Nested substitutions, calls and files."""
MAX_WORK = 3_000_000
"""Characters and statements looked at: a loop or a doubling variable ends here."""
MAX_TIME_S = 2.0
"""Of the processor: a busy machine refuses nothing."""
MAX_TEXT = 1 << 20
"""Characters of one variable, and of one file."""
MAX_NOTES = 40

Variable = Text | list[Text]


@dataclass(frozen=True, slots=True)
class Command:
    """One command as it would run."""

    words: list[Text]
    environment: dict[str, Text]
    where: str
    outer: tuple[list[Text], ...] = ()
    """Commands that start it, outermost first: `srun ... bash -c`, `sbatch`."""


@dataclass(slots=True)
class Work:
    """What is shared by a script and all that it starts."""

    root: Path
    """Nothing outside this folder is read."""
    sets: Mapping[str, str]
    capture: Callable[[State, Source], Text]
    """Output of a command substitution."""
    follow: Callable[[State, Source, list[Any], int], bool | None]
    """Statements of a tree, in order; their status."""
    run: Callable[[State, Source], bool | None]
    """A whole text as a script."""
    texts: dict[str, str] = field(default_factory=dict)
    """Of the files read."""
    written: dict[str, Text] = field(default_factory=dict)
    """Files that the script would write, by path as stated."""
    commands: list[Command] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    undecided: bool = False
    """Whether none of several branches was taken, as nobody sets what they ask for."""
    used: set[str] = field(default_factory=set)
    """Names of `sets` that are variables of the script."""
    left: int = MAX_WORK
    end_s: float = field(default_factory=lambda: thread_time() + MAX_TIME_S)


@dataclass(slots=True)
class State:
    """One shell."""

    work: Work
    file: str
    """The script that runs, as its path is told to people."""
    path: Path
    variables: dict[str, Variable] = field(default_factory=dict)
    exported: dict[str, None] = field(default_factory=dict)
    functions: dict[str, tuple[Source, Any]] = field(default_factory=dict)
    positional: list[Text] = field(default_factory=list)
    outer: tuple[list[Text], ...] = ()
    out: list[Text] = field(default_factory=list)
    stdin: Text = EMPTY
    depth: int = 0
    silent: bool = False
    """Inside a substitution: what runs there is not the training."""
    ended: bool = False
    branches: int = 0
    """Enclosing ifs, cases and loops."""


def spend(state: State, work: int) -> None:
    """InputError when a script takes more work than a launch script can need."""
    state.work.left -= work
    if state.work.left < 0 or thread_time() > state.work.end_s:
        name = Path(state.file).name
        raise InputError(
            f"{name} must be a launch script that can be followed in {MAX_TIME_S:g} s, but its"
            " loops or values take longer"
        )


def note(state: State, text: str) -> None:
    if len(state.work.notes) < MAX_NOTES:
        state.work.notes[text] = None


def place(text: Text, texts: Mapping[str, str]) -> str:
    """'train.sh:12' of the first piece that stands in a file; '' where none does."""
    piece = first_placed(text)
    if piece is None:
        return ""
    line = bisect_right(newlines(texts.get(piece.file, "")), piece.start - 1) + 1
    return f"{Path(piece.file).name}:{line}"


@lru_cache(maxsize=8)
def newlines(text: str) -> tuple[int, ...]:
    """Offsets of the line ends of a text."""
    return tuple(match.start() for match in re.finditer("\n", text))


def subshell(state: State, **changes: Any) -> State:
    """A shell that sees everything and changes nothing."""
    own: dict[str, Any] = {
        "variables": dict(state.variables),
        "exported": dict(state.exported),
        "out": [],
        "ended": False,
    }
    return replace(state, **(own | changes))


def assign(state: State, name: str, value: Variable) -> None:
    """Sets a variable, unless --set did; what only a command tells is from now on called by the
    variable's name.
    """
    if name in state.work.sets:
        state.work.used.add(name)
        return
    pieces = concatenated(value) if isinstance(value, list) else value
    if sum(len(piece.text) for piece in pieces) > MAX_TEXT or len(pieces) > MAX_TEXT // 8:
        raise InputError(
            f"{state.file}: {name} must stay below {MAX_TEXT:,} characters, but grows beyond"
        )
    spend(state, len(pieces))
    if isinstance(value, list):
        state.variables[name] = [_through(text, name) for text in value]
    else:
        state.variables[name] = _through(value, name)


def _through(text: Text, name: str) -> Text:
    return tuple(_called(piece, name) for piece in text)


def _called(piece: Piece, name: str) -> Piece:
    if piece.unknown.startswith("$"):
        return replace(piece, unknown=name, needs_command=piece.unknown, via=piece.via or name)
    return piece if piece.via or piece.unknown else replace(piece, via=name)


def lookup(state: State, name: str) -> Variable | None:
    """The value of a variable or positional parameter; None when nobody sets it."""
    if name in state.work.sets:
        state.work.used.add(name)
        return (Piece(state.work.sets[name], via=name, origin="option"),)
    if name.isdigit():
        index = int(name[:6])
        parameters = [(Piece(str(state.path)),), *state.positional]
        return parameters[index] if index < len(parameters) else None
    return state.variables.get(name)


def unknown_text(name: str, unset: bool = True) -> Text:
    return (Piece(UNKNOWN, unknown=name, unset=unset),)


def blank(text: Text) -> bool:
    """Empty, or made of variables that nobody sets."""
    return all(piece.unset or not piece.text for piece in text)


def certain(text: Text) -> str | None:
    """The string, with variables that nobody sets as empty; None where a command would have to be
    run.
    """
    if any(piece.unknown and not piece.unset for piece in text):
        return None
    return "".join(piece.text for piece in text if not piece.unknown)


def environment(state: State) -> dict[str, Text]:
    """Exported variables that are known to be set."""
    out: dict[str, Text] = {}
    for name in state.exported:
        value = lookup(state, name)
        if value is not None and not isinstance(value, list):
            out[name] = value
    return out
