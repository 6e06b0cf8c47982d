"""Text of a script whose every stretch remembers where it was written: what words, variables and
commands are made of.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from planner.intake.reading import Origin

HOLE = "\ue000"
"""Stands for what nobody knows: one character of a piece whose `missing` says what."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text from one place."""

    text: str
    file: str = ""
    start: int = -1
    """Offset in the file of its first character; -1 for what was computed."""
    via: str = ""
    """The variable that was set to it first."""
    origin: Origin = "flag"
    missing: str = ""
    """For a HOLE: the variable that nobody sets, or the command that would have to be run."""
    asks: str = ""
    """For a HOLE that a variable holds: the command that would have to be run to know it."""
    unset: bool = False
    """For a HOLE: a variable that nobody sets; bash would take it as empty."""


Text = tuple[Piece, ...]
EMPTY: Text = ()


class Source(NamedTuple):
    """A text in which stretches are found by offset: a file, or a string that is run as
    commands.
    """

    text: str
    pieces: Text
    starts: list[int]


class Part(NamedTuple):
    """A piece of a word; `split` where bash splits it at blanks. `piece` None parts two elements of
    an array.
    """

    piece: Piece | None
    split: bool = False


BREAK = Part(None)


def source(text: Text) -> Source:
    """Ready to be cut."""
    kept = tuple(piece for piece in text if piece.text)
    starts = [0, *accumulate(len(piece.text) for piece in kept)][: len(kept)]
    return Source("".join(piece.text for piece in kept), kept, starts)


def cut(whole: Source, start: int, end: int) -> Text:
    """The text between two offsets."""
    out: list[Piece] = []
    index = max(bisect_right(whole.starts, start) - 1, 0)
    while start < end and index < len(whole.pieces):
        piece = whole.pieces[index]
        low, high = start - whole.starts[index], min(end - whole.starts[index], len(piece.text))
        if high > low:
            out.append(piece if (low, high) == (0, len(piece.text)) else _slice(piece, low, high))
            start = whole.starts[index] + high
        index += 1
    return tuple(out)


def _slice(piece: Piece, low: int, high: int) -> Piece:
    start = piece.start + low if piece.start >= 0 else -1
    return Piece(
        piece.text[low:high],
        piece.file,
        start,
        piece.via,
        piece.origin,
        piece.missing,
        piece.asks,
        piece.unset,
    )


def plain(text: Text) -> str:
    """As a string, HOLEs included."""
    return "".join(piece.text for piece in text)


def shown(text: Text) -> str:
    """For people: what is not known as the variable or command that it stands for."""
    return "".join(_dollar(piece.missing) if piece.missing else piece.text for piece in text)


def _dollar(missing: str) -> str:
    return missing if missing.startswith("$") else f"${missing}"


def known(text: Text) -> bool:
    return not any(piece.missing for piece in text)


def hole(text: Text) -> Piece | None:
    """The first unknown of a text."""
    return next((piece for piece in text if piece.missing), None)


def computed(value: str, of: Text = ()) -> Text:
    """A result; it comes through the same variable as what it was computed of."""
    via = next((piece.via for piece in of if piece.via), "")
    option = any(piece.origin == "option" for piece in of)
    return (Piece(value, via=via, origin="option" if option else "variable"),)


def split(piece: Piece) -> Iterator[Piece]:
    """Words and blanks of a piece, each with its own place."""
    for found in re.finditer(r"[ \t\n]+|[^ \t\n]+", piece.text):
        yield piece if found.span() == (0, len(piece.text)) else _slice(piece, *found.span())


def fields(parts: Iterable[Part]) -> list[Text]:
    """Words of a command after word splitting."""
    out: list[Text] = []
    current: list[Piece] | None = None
    for piece, splits in parts:
        if piece is None:
            out += [tuple(current)] if current is not None else []
            current = None
        elif not splits or piece.missing:
            current = current if current is not None else []
            current.append(piece)
        else:
            for one in split(piece):
                if one.text.isspace():
                    out += [tuple(current)] if current is not None else []
                    current = None
                else:
                    current = current if current is not None else []
                    current.append(one)
    return [*out, tuple(current)] if current is not None else out


def joined(parts: Iterable[Part]) -> Text:
    """One text, without word splitting; elements of an array are parted by blanks."""
    return tuple(
        part.piece if part.piece is not None else Piece(" ")
        for part in parts
        if part.piece is None or part.piece.text
    )


def spaced(words: Iterable[Text]) -> Text:
    """Words joined by blanks."""
    out: list[Piece] = []
    for word in words:
        out += [Piece(" "), *word] if out else word
    return tuple(out)
