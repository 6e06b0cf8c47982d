"""A key of a configuration set, added or taken out, with everything else in its text as it was."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import Any

from planner.errors import InputError
from planner.intake.documents.tree import Document, Path
from planner.intake.frameworks.detect import parse
from planner.intake.frameworks.key_paths import place


def changed(file: str, text: str, kind: str, name: str, value: Any) -> str | None:
    """The text with the Reading's `name` stated as `value`, or no longer stated where that is None.

    kind: of the Reading. None where the text cannot take it: the name has no place in such a file,
    or its style is not followed.
    """
    try:
        document = parse(text, file)
    except InputError:
        return None
    path = place(kind, name, document)
    return with_key(document, text, path, value) if path else None


def with_key(document: Document, text: str, path: Path, value: Any) -> str | None:
    """The text with one key of it changed, proved by reading it again; None where that fails. A
    strict JSON whose style is not followed is written anew.
    """
    wanted = _wanted(document.data, path, value)
    if wanted is None:
        return None
    toml = document.file.endswith(".toml")
    if value is None:
        new = _without(document, text, path)
    elif path in document.spans:
        start, end = document.spans[path]
        new = text[:start] + _word(value, toml) + text[end:]
    else:
        new = _in_table(text, path, value) if toml else _added(document, text, path, value)
    if new is not None and _states(new, document.file, wanted):
        return new
    if document.strict and document.file.endswith(".json"):
        return json.dumps(wanted, indent=2) + "\n"
    return None


def _states(text: str, file: str, wanted: Any) -> bool:
    try:
        return bool(parse(text, file).data == wanted)
    except InputError:
        return False


def _wanted(data: Any, path: Path, value: Any) -> Any:
    """The values as they are to be."""
    out = deepcopy(data)
    at = out
    for part in path[:-1]:
        if not isinstance(at, dict):
            return None
        at = at.setdefault(part, {})
    if not isinstance(at, dict):
        return None
    if value is None:
        at.pop(path[-1], None)
    else:
        at[path[-1]] = value
    return out


def _added(document: Document, text: str, path: Path, value: Any) -> str | None:
    """JSON and YAML: behind the last key of the deepest mapping that is there."""
    depth, holder = 0, document.data
    while (
        depth < len(path) - 1
        and isinstance(holder, dict)
        and isinstance(holder.get(path[depth]), dict)
    ):
        holder = holder[path[depth]]
        depth += 1
    for part in reversed(path[depth + 1 :]):
        value = {part: value}
    start = document.spans.get(path[:depth], (0, 0))[0]
    if text[start : start + 1] == "{":
        return _in_braces(document, text, path[:depth], path[depth], value)
    return _in_block(document, text, path[:depth], path[depth], value, list(holder))


def _in_braces(document: Document, text: str, holder: Path, key: str, value: Any) -> str | None:
    start, end = document.spans[holder]
    inside = [
        span
        for path, span in document.spans.items()
        if path[: len(holder)] == holder and len(path) == len(holder) + 1
    ]
    words = f"{json.dumps(key)}: {_word(value, False)}"
    if not inside:
        if text[start + 1 : end - 1].strip():
            return None
        return f"{text[: start + 1]}{words}{text[end - 1 :]}"
    last, stop = max(inside, key=lambda span: span[1])
    comma = re.compile(r"\s*,").match(text, stop)
    at = comma.end() if comma else stop
    line = text[text.rfind("\n", 0, last) + 1 : last]
    own = "\n" in text[start:last] and re.match(r"[ \t]*[\"'\w-]+[ \t]*:", line)
    gap = "\n" + line[: len(line) - len(line.lstrip())] if own else " "
    return f"{text[:at]}{'' if comma else ','}{gap}{words}{',' if comma else ''}{text[at:]}"


def _in_block(
    document: Document, text: str, holder: Path, key: str, value: Any, keys: list[str]
) -> str | None:
    ends = [
        span[1]
        for path, span in document.spans.items()
        if len(path) > len(holder)
        and path[: len(holder)] == holder
        and not _is_block(document, text, path)
    ]
    indents = [_indent(document, text, (*holder, neighbour)) for neighbour in keys]
    known = [indent for indent in indents if indent is not None]
    if not ends or not known:
        return None
    line = f"{known[0]}{key}: {_word(value, False)}"
    at = max(ends)
    if text[at - 1] != "\n":
        at = text.find("\n", at)
    if at < 0:
        at = len(text)
    if text[at - 1 : at] == "\n":
        return f"{text[:at]}{line}\n{text[at:]}"
    return f"{text[:at]}\n{line}{text[at:]}"


def _is_block(document: Document, text: str, path: Path) -> bool:
    """Whether a value is a mapping or list without brackets: its end is where the next thing
    starts.
    """
    at: Any = document.data
    for part in path:
        at = at[int(part)] if isinstance(at, list) else at[part]
    return isinstance(at, dict | list) and text[document.spans[path][0]] not in "{["


def _key_start(document: Document, text: str, path: Path) -> int | None:
    """Where the key of a value begins."""
    if path not in document.spans:
        return None
    before = text[: document.spans[path][0]]
    match = re.compile(rf"[\"']?{re.escape(path[-1])}[\"']?[ \t]*:[\s]*(?:#[^\n]*\s*)*$").search(
        before[-2000:]
    )
    return len(before) - len(before[-2000:]) + match.start() if match else None


def _indent(document: Document, text: str, path: Path) -> str | None:
    start = _key_start(document, text, path)
    if start is None:
        return None
    line = text[text.rfind("\n", 0, start) + 1 : start]
    return line if not line.strip() else None


def _without(document: Document, text: str, path: Path) -> str | None:
    if path not in document.spans:
        return None
    _, end = document.spans[path]
    if document.file.endswith(".toml"):
        start = text.rfind("\n", 0, end) + 1
        stop = text.find("\n", end)
        return text[:start] + ("" if stop < 0 else text[stop + 1 :])
    key = _key_start(document, text, path)
    if key is None or _is_block(document, text, path):
        return None
    begin = text.rfind("\n", 0, key) + 1
    after = re.compile(r"[ \t]*,?[ \t]*(?:#[^\n]*)?(\n|$)").match(text, end)
    if after and not text[begin:key].strip():
        return _tidy(text[:begin], text[after.end() :])
    comma = re.compile(r"\s*,[ \t]*").match(text, end)
    return text[:key] + text[comma.end() :] if comma else _tidy(text[:key], text[end:])


def _tidy(before: str, after: str) -> str:
    """No comma is left before a closing brace."""
    if after.lstrip()[:1] == "}" and before.rstrip()[-1:] == ",":
        cut = before.rstrip()[:-1]
        return cut + before[len(before.rstrip()) :] + after
    return before + after


def _in_table(text: str, path: Path, value: Any) -> str | None:
    """TOML: behind the header of the table, or with the table at the end."""
    line = f"{path[-1]} = {_word(value, True)}\n"
    name = ".".join(path[:-1])
    if not name:
        return line + text
    header = re.search(rf"^[ \t]*\[[ \t]*{re.escape(name)}[ \t]*\][^\n]*(\n|$)", text, re.MULTILINE)
    if header is None:
        return f"{text.rstrip()}\n\n[{name}]\n{line}"
    return text[: header.end()] + ("" if header[1] else "\n") + line + text[header.end() :]


def _word(value: Any, toml: bool) -> str:
    """A value as each of these formats reads it."""
    if toml and isinstance(value, dict):
        pairs = [f"{key} = {_word(item, True)}" for key, item in value.items()]
        return "{ " + ", ".join(pairs) + " }"
    return json.dumps(value)
