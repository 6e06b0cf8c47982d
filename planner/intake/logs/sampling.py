"""A log of any size as the few stretches of it that say something: read once, in pieces, never held
whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from planner.errors import InputError

CHUNK = 4 * 2**20
LONGEST_BLOCK = 2**20
"""Bytes of a block of arguments, and of a line, that are kept together over the end of a piece."""
AROUND = 3000
"""Bytes kept on either side of what was found, in a line that is longer."""
MESSAGE = 6000
"""Bytes after the start of an out-of-memory message: it can run over several lines."""

LINES: tuple[bytes, ...] = (
    b"elapsed time per iteration",
    b"memory (MB)",
    b"memory (GB)",
    b"Max_MA",
    b"Step Time :",
    b"iter time (s):",
    b"SamplesPerSec=",
    b"train_step_timing",
    b"time_per_iteration_ms",
    b"'train_samples_per_second'",
    b"tps: ",
    b"wps: ",
)
OOMS = (
    b"ried to allocate ",
    b"OutOfMemory",
    b"ut of memory",
    b"oom_kill",
    b"oom-kill",
    b"ALLOC_FAILED",
    b"MemoryAllocation",
    b"code = -9",
    b"exitcode: -9",
)
SETTLED = 64 * 2**20
"""Bytes after which lines of a framework that has printed none yet are no longer looked for, where
another has.
"""
BLOCKS = {b"- arguments -": b"end of arguments", b"json = {": b"\n}"}
"""What opens a block of several lines, and what ends it."""

Kind = Literal["line", "oom", "arguments", "json"]


class Stretch(NamedTuple):
    """A part of the log that says something, as text."""

    kind: Kind
    text: str


def stretches(path: str | Path) -> Iterator[Stretch]:
    """What the log says, in its order within each piece of 4 MiB. InputError when it cannot be
    read.
    """
    carry, read_bytes = b"", 0
    wanted, met = LINES, set[bytes]()
    try:
        with Path(path).open("rb") as stream:
            while block := stream.read(CHUNK):
                piece = (carry + block).replace(b"\r", b"\n")
                cut = _cut(piece)
                met.update(token for token in wanted if token in piece)
                yield from _of_piece(piece[:cut], wanted)
                carry = piece[cut:]
                read_bytes += cut
                if met and read_bytes > SETTLED:
                    wanted = tuple(met)
    except (OSError, ValueError) as fault:
        why = getattr(fault, "strerror", None) or fault
        raise InputError(
            f"{str(path)[:200]} must be a log that can be read, but got: {why}"
        ) from None
    yield from _of_piece(carry, wanted)


def _cut(piece: bytes) -> int:
    """Where the piece may end: at a line's end, before a block that is still open."""
    cut = piece.rfind(b"\n") + 1
    for start, end in BLOCKS.items():
        opened = piece.rfind(start)
        if opened >= 0 and piece.find(end, opened) < 0:
            cut = min(cut, piece.rfind(b"\n", 0, opened) + 1)
    return cut if len(piece) - cut <= LONGEST_BLOCK else len(piece)


def _of_piece(piece: bytes, wanted: tuple[bytes, ...]) -> Iterator[Stretch]:
    by_start: dict[int, Stretch] = {}

    def text(start: int, end: int) -> str:
        return piece[start:end].decode("utf-8", "replace")

    for token in wanted:
        for start, end in _spans(piece, token):
            by_start.setdefault(start, Stretch("line", text(start, end)))
    for start, end in _blocks(piece, b"- arguments -"):
        by_start[start] = Stretch("arguments", text(start, end))
    for start, end in _blocks(piece, b"json = {"):
        by_start[start] = Stretch("json", text(start + len("json = "), end))
    for token in OOMS:
        for start, _ in _spans(piece, token):
            by_start.setdefault(start, Stretch("oom", text(start, start + MESSAGE)))
    for _, stretch in sorted(by_start.items()):
        yield stretch


def _spans(piece: bytes, token: bytes) -> Iterator[tuple[int, int]]:
    position = piece.find(token)
    while position >= 0:
        farthest = max(0, position - AROUND)
        start = max(piece.rfind(b"\n", farthest, position) + 1, farthest)
        end = piece.find(b"\n", position, position + AROUND)
        if end < 0:
            end = min(position + AROUND, len(piece))
        yield start, end
        position = piece.find(token, max(end, position + 1))


def _blocks(piece: bytes, start: bytes) -> Iterator[tuple[int, int]]:
    end = BLOCKS[start]
    opened = piece.find(start)
    while opened >= 0:
        closed = piece.find(end, opened, opened + LONGEST_BLOCK)
        stop = closed + len(end) if closed >= 0 else min(opened + LONGEST_BLOCK, len(piece))
        yield opened, stop
        opened = piece.find(start, stop)
