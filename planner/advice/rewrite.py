"""Changes of a text by its offsets that keep everything else as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class Change(NamedTuple):
    """New words for a stretch of a text: none takes it out, a stretch of no length inserts."""

    start: int
    end: int
    new: str = ""


_GAP = re.compile(r"(?:[ \t]|\\\n)*")
_REST_OF_LINE = re.compile(r"[ \t]*(\\?)(?:\n|$)")
_CONTINUED = re.compile(r"[ \t]*\\\n$")


def rewritten(text: str, changes: Iterable[Change]) -> str:
    """The text with all changes made, which do not overlap."""
    for change in sorted(_together(text, changes), reverse=True):
        start, end, new = change if change.new else _with_blanks(text, change)
        text = text[:start] + new + text[end:]
    return text


def _together(text: str, changes: Iterable[Change]) -> list[Change]:
    """What goes side by side goes as one, and what is inserted there comes in its place."""
    out: list[Change] = []
    for change in sorted(set(changes)):
        last = out[-1] if out else None
        removes = last is not None and not last.new and last.end > last.start
        if last is None or not removes:
            out.append(change)
        elif change.start == change.end == last.end:
            out[-1] = Change(last.start, last.end, change.new.strip())
        elif not change.new and _GAP.fullmatch(text, last.end, change.start):
            out[-1] = Change(last.start, max(last.end, change.end))
        else:
            out.append(change)
    return out


def _with_blanks(text: str, change: Change) -> Change:
    """A stretch to take out, with the blanks before it, or with its line where it has that
    alone.
    """
    start, end, _ = change
    left = start
    while text[left - 1 : left] in (" ", "\t"):
        left -= 1
    first_of_line = left == 0 or text[left - 1] == "\n"
    rest = _REST_OF_LINE.match(text, end)
    if first_of_line and rest:
        above = text[text.rfind("\n", 0, max(left - 1, 0)) + 1 : left]
        continued = _CONTINUED.search(above)
        if rest[1] or not continued or above.lstrip().startswith("#"):
            return Change(left, rest.end())
        return Change(left - len(continued[0]), end)  # the last line of a command
    if first_of_line or left == start:
        while text[end : end + 1] in (" ", "\t"):
            end += 1
        return Change(start, end)
    return Change(left, end)


def exported(text: str, name: str, value: object) -> str:
    """A variable exported before the first command, below the comments that Slurm reads."""
    lines = text.splitlines(keepends=True)
    at = 0
    while at < len(lines) and (lines[at].startswith("#") or not lines[at].strip()):
        at += 1
    while at > 0 and not lines[at - 1].strip():
        at -= 1
    return "".join([*lines[:at], f"export {name}={value}\n", *lines[at:]])
