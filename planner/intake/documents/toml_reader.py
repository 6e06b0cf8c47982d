"""TOML with the place of each value that stands on one line."""

from __future__ import annotations

import re

from planner.errors import InputError, reason
from planner.intake.documents.tree import Document, Path, Span

_TABLE = re.compile(r"\s*\[\s*([A-Za-z0-9_.\-\" ]+?)\s*\]\s*(?:#.*)?$")
_PAIR = re.compile(r"\s*([A-Za-z0-9_\-.]+)\s*=\s*")
_END = re.compile(r"(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^#\n]*?)\s*(?:#.*)?$")


MAX_PAIRS = 20_000


def load(text: str, path: str) -> Document:
    """The tables of a TOML text. InputError: what does not hold, and the line."""
    import tomllib

    if text.count("=") > MAX_PAIRS:
        raise InputError(
            f"{path.rsplit('/', 1)[-1]} must have at most {MAX_PAIRS:,} keys, but has more"
        )
    try:
        data = tomllib.loads(text.replace("\r\n", "\n").lstrip("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError, ValueError, OverflowError) as fault:
        raise InputError(
            f"{path.rsplit('/', 1)[-1]} must be TOML, but"
            f" {reason(fault)[:160] or type(fault).__name__}"
        ) from None
    return Document(path, data, _spans(text))


def _spans(text: str) -> dict[Path, Span]:
    spans: dict[Path, Span] = {}
    table: Path = ()
    at = 0
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        header, pair = _TABLE.match(bare), _PAIR.match(bare)
        if header:
            table = tuple(part.strip(' "') for part in header.group(1).split("."))
        elif pair and bare[pair.end() : pair.end() + 3] not in ('"""', "'''"):
            value = _END.match(bare, pair.end())
            if value and value.group(1) and value.group(1)[0] not in "[{":
                spans[(*table, *pair.group(1).split("."))] = (
                    at + value.start(1),
                    at + value.end(1),
                )
        at += len(line)
    return spans
