"""Text of a script whose every stretch remembers where it was written: what words, variables and
commands are made of.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import NamedTuple

from planner.intake.reading import Edit, Origin

UNKNOWN = "\ue000"
"""Stands for what nobody knows: one character of a piece whose `unknown` says what."""
MAX_SITES = 60
"""Substitutions that a text is followed through; beyond, its place is lost."""


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A stretch of a file that stands for a text: `$NAME`, `${...}`, `$(...)`, a word in quotes."""

    file: str
    start: int
    """-1 where the place is lost."""
    end: int
    word: int = 0
    """Where it makes one whole word: how many characters that has."""
    inner: Site | None = None
    """The stretch inside its value that the text came through before."""
    depth: int = 1


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
    unknown: str = ""
    """For an UNKNOWN: the variable that nobody sets, or the command that would have to be run."""
    needs_command: str = ""
    """For an UNKNOWN that a variable holds: the command that would have to be run to know it."""
    unset: bool = False
    """For an UNKNOWN: a variable that nobody sets; bash would take it as empty."""
    site: Site | None = field(default=None, compare=False, repr=False)
    """The outermost substitution that brought it here; None where it stands here itself."""


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
    pieces: list[Piece] = []
    starts: list[int] = []
    size = 0
    for piece in text:
        if piece.text:
            pieces.append(piece)
            starts.append(size)
            size += len(piece.text)
    return Source(plain(text), tuple(pieces), starts)


def cut(src: Source, start: int, end: int) -> Text:
    """The text between two offsets."""
    out: list[Piece] = []
    index = max(bisect_right(src.starts, start) - 1, 0)
    while start < end and index < len(src.pieces):
        piece = src.pieces[index]
        low, high = start - src.starts[index], min(end - src.starts[index], len(piece.text))
        if high > low:
            out.append(_slice(piece, low, high))
            start = src.starts[index] + high
        index += 1
    return tuple(out)


def _slice(piece: Piece, low: int, high: int) -> Piece:
    if (low, high) == (0, len(piece.text)):
        return piece
    start = piece.start + low if piece.start >= 0 else -1
    return Piece(
        piece.text[low:high],
        piece.file,
        start,
        piece.via,
        piece.origin,
        piece.unknown,
        piece.needs_command,
        piece.unset,
        piece.site,
    )


def plain(text: Text) -> str:
    """As a string, unknowns included."""
    return "".join(piece.text for piece in text)


def shown(text: Text) -> str:
    """For people: what is not known as the variable or command that it stands for."""
    out = ""
    for piece in text:
        if not piece.unknown:
            out += piece.text
        elif piece.unknown.startswith("$"):
            out += piece.unknown
        else:
            out += f"${piece.unknown}"
    return out


def known(text: Text) -> bool:
    return first_unknown(text) is None


def first_unknown(text: Text) -> Piece | None:
    """The first unknown of a text."""
    return next((piece for piece in text if piece.unknown), None)


def first_placed(text: Text) -> Piece | None:
    """The first piece that stands in a file."""
    return next((piece for piece in text if piece.start >= 0), None)


def concatenated(texts: Iterable[Text]) -> Text:
    return tuple(chain.from_iterable(texts))


def computed(value: str, of: Text = ()) -> Text:
    """A result; it comes through the same variable as what it was computed of."""
    via = ""
    origin: Origin = "variable"
    for piece in of:
        via = via or piece.via
        if piece.origin == "option":
            origin = "option"
    return (Piece(value, via=via, origin=origin),)


def split(piece: Piece) -> Iterator[Piece]:
    """Words and blanks of a piece, each with its own place."""
    for match in re.finditer(r"[ \t\n]+|[^ \t\n]+", piece.text):
        yield _slice(piece, *match.span())


def parts(text: Text, split: bool = False) -> list[Part]:
    """Parts of a word, all of them split at blanks or none."""
    return [Part(piece, split) for piece in text]


def elements(items: Iterable[Text], apart: bool, quoted: bool) -> list[Part]:
    """Elements of an array: `apart` as words of their own, else parted by blanks."""
    out: list[Part] = []
    for index, item in enumerate(items):
        if index:
            out.append(BREAK if apart else Part(Piece(" "), not quoted))
        out += parts(item, not quoted)
        if quoted and not item:
            out.append(Part(Piece("")))
    return out


def fields(parts: Iterable[Part]) -> list[Text]:
    """Words of a command after word splitting."""
    out: list[list[Piece]] = []
    inside = False
    for piece in _runs(parts):
        if piece is None:
            inside = False
        elif inside:
            out[-1].append(piece)
        else:
            out.append([piece])
            inside = True
    return [tuple(word) for word in out]


def _runs(parts: Iterable[Part]) -> Iterator[Piece | None]:
    """Pieces after word splitting; None where a word ends."""
    for piece, splits in parts:
        if piece is None or not splits or piece.unknown:
            yield piece
            continue
        for run in split(piece):
            yield None if run.text.isspace() else run


def joined(parts: Iterable[Part]) -> Text:
    """One text, without word splitting; elements of an array are parted by blanks."""
    pieces = [part.piece or Piece(" ") for part in parts]
    return tuple(piece for piece in pieces if piece.text)


def spaced(words: Iterable[Text]) -> Text:
    """Words joined by blanks."""
    out: list[Piece] = []
    for word in words:
        if out:
            out.append(Piece(" "))
        out += word
    return tuple(out)


LOST = Site("", -1, -1)
_GAP = re.compile(r"(?:[ \t\n]|\\\n)*")
"""What may stand between the words of a command: blanks and line continuations."""


def substituted(text: Text, stood: Text, word: bool = False) -> Text:
    """A text that comes in for what stood there, each piece with that place above its own.

    word: what stood there is one word of a command, and the text is what it means.
    """
    if not stood or any(piece.start < 0 or piece.file != stood[0].file for piece in stood):
        return text
    first, last = stood[0], stood[-1]
    above = [*_sites(first), Site(first.file, first.start, last.start + len(last.text))]
    size = len(plain(text)) if word else 0
    out = []
    for piece in text:
        site = piece.site
        if (site.depth if site else 0) + len(above) > MAX_SITES:
            site = LOST
        else:
            for place in reversed(above):
                depth = site.depth + 1 if site else 1
                of_word = size if place is above[-1] else place.word
                site = Site(place.file, place.start, place.end, of_word, site, depth)
        out.append(replace(piece, site=site))
    return tuple(out)


def _sites(piece: Piece) -> Iterator[Site]:
    """The substitutions that a piece came through, outermost first."""
    site = piece.site
    while site is not None:
        yield site
        site = site.inner


def places(piece: Piece) -> list[Site]:
    """Where a piece stands: the substitutions that it came through, outermost first, then the place
    where it is written.
    """
    out = list(_sites(piece))
    if piece.start >= 0:
        out.append(Site(piece.file, piece.start, piece.start + len(piece.text)))
    return out


def stretch(words: Sequence[Text], texts: Mapping[str, str]) -> Edit | None:
    """The stretch of a file that states these words of a command and nothing else: in the command
    itself, or in the variable or array that it expands. None where there is none.

    texts: of the files that words stand in.
    """
    text = concatenated(words)
    paths = [places(piece) for piece in text if piece.text or piece.site]
    size = len(plain(text))
    for depth in range(min(map(len, paths), default=0)):
        level = [path[depth] for path in paths]
        one_place = all(_span(site) == _span(level[0]) for site in level)
        if not one_place or len(paths) == 1 == len(paths[0]) - depth:
            return _joined(level, texts)
        if len(words) == 1 and level[0].word == size > 0:
            return _joined(level[:1], texts)
    return None


def _span(site: Site) -> tuple[str, int, int]:
    return site.file, site.start, site.end


def _joined(sites: list[Site], texts: Mapping[str, str]) -> Edit | None:
    """From the first to the last, where nothing but blanks stands between them."""
    if any(site.start < 0 for site in sites):
        return None
    text = texts.get(sites[0].file, "")
    for before, after in pairwise(sites):
        if _span(before) == _span(after):
            continue
        if before.file != after.file or before.end > after.start:
            return None
        if not _GAP.fullmatch(text, before.end, after.start):
            return None
    return Edit(sites[0].file, sites[0].start, sites[-1].end)
