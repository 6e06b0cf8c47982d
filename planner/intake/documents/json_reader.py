"""JSON as frameworks take it: with comments, trailing commas and bare keys too, as DeepSpeed reads
it (hjson); said when they are there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from planner.errors import InputError
from planner.intake.documents.scalars import plain
from planner.intake.documents.tree import DEEPEST, Document, Path, Span

_SPACE = re.compile(r"[\s\ufeff]+")
_LINE = re.compile(r"(?://|#)[^\n]*")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_WORD = re.compile(r"[^\s{}\[\]:,\"]+")
_LOOSE = (
    "it has comments, trailing commas or bare words: DeepSpeed reads those (hjson), json.load of"
    " the Hugging Face Trainer refuses them"
)

MAX_TOKENS = 80_000
"""Spaces and comments counted too: more than any configuration has, and under 5 s to read."""
Token = tuple[str, Any, int, int]
"""Kind (one of { } [ ] : , or "value", "word"), value, span."""


def load(text: str, path: str) -> Document:
    """The value of a JSON text. InputError: what does not hold, and the line."""
    file = path.rsplit("/", 1)[-1]
    spans: dict[Path, Span] = {}
    duplicates: list[str] = []
    root = _build(list(_tokens(text, file)), text, file, spans, duplicates)
    if _strict(text):
        return Document(path, root, spans, tuple(duplicates))
    return Document(path, root, spans, tuple(duplicates), notes=(_LOOSE,), strict=False)


def _strict(text: str) -> bool:
    try:
        json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        return False
    return True


def _tokens(text: str, file: str) -> Iterator[Token]:
    at = count = 0
    while at < len(text):
        count += 1
        if count > MAX_TOKENS:
            raise InputError(f"{file} must have at most {MAX_TOKENS:,} words of JSON, but has more")
        skipped = _SPACE.match(text, at) or _LINE.match(text, at)
        if skipped:
            at = skipped.end()
        elif text.startswith("/*", at):
            at = text.find("*/", at) + 2
            if at == 1:
                raise InputError(f"{file} must close its comments, but one /* has no */")
        elif text[at] in "{}[]:,":
            yield text[at], None, at, at + 1
            at += 1
        else:
            kind, value, end = _value(text, at, file)
            yield kind, value, at, end
            at = end


def _value(text: str, at: int, file: str) -> tuple[str, Any, int]:
    quoted = _STRING.match(text, at)
    if quoted:
        try:
            return "value", json.loads(quoted.group(), strict=False), quoted.end()
        except ValueError:
            return "value", quoted.group()[1:-1], quoted.end()
    word = _WORD.match(text, at)
    if word is None:
        raise _fault(text, at, file, "a string that is not closed")
    return "word", word.group(), word.end()


def _build(
    tokens: list[Token], text: str, file: str, spans: dict[Path, Span], duplicates: list[str]
) -> Any:
    root: Any = None
    open_: list[tuple[Any, Path, int]] = []
    key: list[str | None] = []
    for number, (kind, value, start, end) in enumerate(tokens):
        colon = number + 1 < len(tokens) and tokens[number + 1][0] == ":"
        if kind in ",:":
            continue
        if kind in "}]":
            if not open_ or isinstance(open_[-1][0], dict) != (kind == "}") or key[-1] is not None:
                raise _fault(text, start, file, f"a {kind} that closes nothing")
            _, path, began = open_.pop()
            key.pop()
            spans[path] = (began, end)
            continue
        if open_ and isinstance(open_[-1][0], dict) and key[-1] is None:
            if kind not in ("value", "word") or not colon or not isinstance(value, str):
                raise _fault(text, start, file, "a value where a key with a colon must be")
            if value in open_[-1][0]:
                duplicates.append(value)
            key[-1] = value
            continue
        if root is not None and not open_:
            raise _fault(text, start, file, "text after its end")
        item = value
        if kind in "{[":
            item = {} if kind == "{" else []
        elif kind == "word":
            item = plain(value)
        path = _attach(item, open_, key)
        if not open_:
            root = item
        if kind in "{[":
            if len(open_) >= DEEPEST:
                raise InputError(f"{file} must be nested at most {DEEPEST} deep, but is deeper")
            open_.append((item, path, start))
            key.append(None)
        else:
            spans[path] = (start, end)
    if open_:
        raise _fault(text, len(text), file, "its end before all braces are closed")
    return root


def _attach(item: Any, open_: list[tuple[Any, Path, int]], key: list[str | None]) -> Path:
    if not open_:
        return ()
    holder, path, _ = open_[-1]
    if isinstance(holder, list):
        holder.append(item)
        return (*path, str(len(holder) - 1))
    name = key[-1] or ""
    holder[name] = item
    key[-1] = None
    return (*path, name)


def _fault(text: str, at: int, file: str, what: str) -> InputError:
    line = text.count("\n", 0, at) + 1
    message = f"{file} must be JSON, but line {line} has {what}"
    rest = text[at : at + 30].strip().partition("\n")[0]
    return InputError(f"{message}: {rest!r}" if rest else message)
