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


class Found(NamedTuple):
    """A stretch of the log, as text, with its place in bytes from the start of the file."""

    kind: Kind
    text: str
    at: int


def stretches(path: str | Path) -> Iterator[Found]:
    """What the log says, in its order within each piece of 4 MiB. InputError when it cannot be
    read.
    """
    carry, at = b"", 0
    wanted, met = LINES, set[bytes]()
    try:
        with Path(path).open("rb") as stream:
            while block := stream.read(CHUNK):
                piece = (carry + block).replace(b"\r", b"\n")
                cut = _cut(piece)
                met |= {token for token in wanted if token not in met and token in piece}
                yield from _in(piece[:cut], at, wanted)
                carry, at = piece[cut:], at + cut
                wanted = tuple(met) if met and at > SETTLED else LINES
    except (OSError, ValueError) as fault:
        why = getattr(fault, "strerror", None) or fault
        raise InputError(
            f"{str(path)[:200]} must be a log that can be read, but got: {why}"
        ) from None
    yield from _in(carry, at, wanted)


def _cut(piece: bytes) -> int:
    """Where the piece may end: at a line's end, before a block that is still open."""
    cut = piece.rfind(b"\n") + 1
    for start, end in BLOCKS.items():
        opened = piece.rfind(start)
        if opened >= 0 and piece.find(end, opened) < 0:
            cut = min(cut, piece.rfind(b"\n", 0, opened) + 1)
    return cut if len(piece) - cut <= LONGEST_BLOCK else len(piece)


def _in(piece: bytes, at: int, wanted: tuple[bytes, ...]) -> Iterator[Found]:
    found: dict[int, Found] = {}
    for token in wanted:
        for start, end in _spans(piece, token):
            found.setdefault(
                start, Found("line", piece[start:end].decode("utf-8", "replace"), at + start)
            )
    for start, end in _blocks(piece, b"- arguments -"):
        found[start] = Found("arguments", piece[start:end].decode("utf-8", "replace"), at + start)
    for start, end in _blocks(piece, b"json = {"):
        found[start] = Found("json", piece[start + 7 : end].decode("utf-8", "replace"), at + start)
    for token in OOMS:
        for start, _ in _spans(piece, token):
            text = piece[start : start + MESSAGE].decode("utf-8", "replace")
            found.setdefault(start, Found("oom", text, at + start))
    yield from (found[start] for start in sorted(found))


def _spans(piece: bytes, token: bytes) -> Iterator[tuple[int, int]]:
    position = piece.find(token)
    while position >= 0:
        start = max(
            piece.rfind(b"\n", max(0, position - AROUND), position) + 1, position - AROUND, 0
        )
        end = piece.find(b"\n", position, position + AROUND)
        end = end if end >= 0 else min(position + AROUND, len(piece))
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
