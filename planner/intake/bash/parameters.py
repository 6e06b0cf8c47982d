"""`${...}` of the shell: defaults, lengths, cut-off ends, replacements, array elements."""

from __future__ import annotations

import re
from collections.abc import Callable

from planner.intake.bash.arithmetic import number
from planner.intake.bash.state import State, Variable, assign, blank, lookup, unknown_text
from planner.intake.bash.traced_text import (
    BREAK,
    EMPTY,
    Part,
    Piece,
    Source,
    Text,
    computed,
    first_unknown,
    joined,
    plain,
    source,
)

Expand = Callable[..., list[Part]]

_FORM = re.compile(
    r"(?P<bang>!?)(?P<count>#?)(?P<name>[A-Za-z_]\w*|\d+|[@*?$!-]|#(?=\}|$))"
    r"(?:\[(?P<index>[^\]]*)\])?"
)
_DEFAULT = re.compile(r":?[-=+?]")


def parameter(
    state: State, src: Source, start: int, end: int, quoted: bool, expand: Expand
) -> list[Part]:
    """Parts of `${...}`, whose inside stands between the offsets."""
    match = _FORM.match(src.text, start, end)
    if not match:
        return (
            [Part(Piece(str(len(state.positional))))]
            if src.text[start:end] == "#"
            else _unknown(src, start, end)
        )
    name, index, rest = match["name"], match["index"], match.end()
    value = _indirect(state, name) if match["bang"] else lookup(state, name)
    if index in ("@", "*") or name in ("@", "*"):
        return _all(state, match, value, src, (rest, end), quoted)
    one = _element(state, value, index)
    if match["count"]:
        return _count(one, name)
    operator = _DEFAULT.match(src.text, rest, end)
    if operator:
        return _defaulted(
            state, (name, one, operator[0]), src, (operator.end(), end), quoted, expand
        )
    if one is None:
        return [Part(piece, not quoted) for piece in unknown_text(name)]
    return [Part(piece, not quoted) for piece in _cut(state, one, src, (rest, end), expand)]


def _unknown(src: Source, start: int, end: int) -> list[Part]:
    return [
        Part(piece) for piece in unknown_text("${" + src.text[start:end][:40] + "}", unset=False)
    ]


def _indirect(state: State, name: str) -> Variable | None:
    value = lookup(state, name)
    named = plain(value) if isinstance(value, tuple) else ""
    return lookup(state, named) if re.fullmatch(r"\w+", named) else None


def _all(
    state: State,
    match: re.Match[str],
    value: Variable | None,
    src: Source,
    span: tuple[int, int],
    quoted: bool,
) -> list[Part]:
    """`${a[@]}`, `${#a[@]}`, `${a[@]:1:2}`."""
    items = (
        state.positional
        if match["name"] in ("@", "*")
        else value
        if isinstance(value, list)
        else []
        if value is None
        else [value]
    )
    if match["count"]:
        return [Part(Piece(str(len(items))))]
    rest = src.text[span[0] : span[1]]
    bounds = re.fullmatch(r":\s*(\d+)(?::\s*(\d+))?", rest)
    if bounds:
        first = max(int(bounds[1]) - (match["name"] in ("@", "*")), 0)
        items = items[first : first + int(bounds[2]) if bounds[2] else None]
    apart = quoted and "*" not in (match["name"], match["index"])
    out: list[Part] = []
    for position, item in enumerate(items):
        if position:
            out.append(BREAK if apart else Part(Piece(" "), not quoted))
        out += [Part(piece, not quoted) for piece in item] or ([Part(Piece(""))] if quoted else [])
    return out


def _element(state: State, value: Variable | None, index: str | None) -> Text | None:
    if isinstance(value, list):
        at = number(state, (Piece(index or "0"),)) if index != "" else 0
        return value[at] if at is not None and -len(value) <= at < len(value) else None
    return value


def _count(value: Text | None, name: str) -> list[Part]:
    if value is not None and (first := first_unknown(value)):
        return [Part(first)]
    return [Part(piece) for piece in computed(str(len(plain(value or EMPTY))))]


def _defaulted(
    state: State,
    what: tuple[str, Text | None, str],
    src: Source,
    span: tuple[int, int],
    quoted: bool,
    expand: Expand,
) -> list[Part]:
    """`${x:-word}` and its kin; a variable that nobody sets counts as empty."""
    name, value, operator = what
    there = (
        value is not None and not blank(value)
        if operator[0] == ":"
        else value is not None and not (value and blank(value))
    )
    sign = operator[-1]
    if sign == "+":
        return _word(state, src, span, quoted, expand) if there else []
    if there and value is not None:
        return [Part(piece, not quoted) for piece in value]
    if sign == "?":
        return [Part(piece, not quoted) for piece in unknown_text(name)]
    word = _word(state, src, span, quoted, expand)
    if sign == "=":
        assign(state, name, joined(word))
    return word


def _word(
    state: State, src: Source, span: tuple[int, int], quoted: bool, expand: Expand
) -> list[Part]:
    parts: list[Part] = expand(state, src, *span)
    if quoted:
        return [replace_split(part, False) for part in parts]
    raw = src.text[span[0] : span[1]]
    return [replace_split(part, True) for part in parts] if not re.search(r"[\"']", raw) else parts


def replace_split(part: Part, split: bool) -> Part:
    return part if part.piece is None else Part(part.piece, split)


def _cut(state: State, value: Text, src: Source, span: tuple[int, int], expand: Expand) -> Text:
    """Operators that change the value: an unknown value stays unknown."""
    operator = src.text[span[0] : span[1]]
    if not operator or operator[0] == "@":
        return value
    first = first_unknown(value)
    if first:
        return (first,)
    text = plain(value)
    if operator[0] in "#%":
        longest = operator[:2] in ("##", "%%")
        pattern = plain(joined(expand(state, src, span[0] + 1 + longest, span[1])))
        return _kept(value, *_stripped(text, pattern, operator[0], longest))
    if operator[0] == "/":
        return computed(_replaced(state, text, src, span, expand), value)
    if operator[0] in "^,":
        changed = text.upper() if operator[0] == "^" else text.lower()
        return computed(changed if operator[:2] in ("^^", ",,") else changed[:1] + text[1:], value)
    if operator[0] == ":":
        return _sliced(state, value, text, operator)
    return value


def _kept(value: Text, low: int, high: int) -> Text:
    from planner.intake.bash.traced_text import cut

    return cut(source(value), low, high)


def _sliced(state: State, value: Text, text: str, operator: str) -> Text:
    offset, _, length = operator[1:].partition(":")
    low = number(state, (Piece(offset.strip() or "0"),))
    size = number(state, (Piece(length.strip()),)) if length.strip() else len(text)
    if low is None or size is None:
        return unknown_text("${..." + operator[:30] + "}", unset=False)
    low = max(low + len(text), 0) if low < 0 else low
    return _kept(value, low, min(low + size if size >= 0 else len(text) + size, len(text)))


def glob(pattern: str) -> re.Pattern[str]:
    """A pattern of the shell as a regular expression; wild cards do not nest, so matching stays
    quick.
    """
    import fnmatch

    short = re.sub(r"\*{2,}", "*", pattern[:200])
    translated = fnmatch.translate(short if short.count("*") <= 4 else re.sub(r"\*", "", short))
    return re.compile(translated)


def _stripped(text: str, pattern: str, side: str, longest: bool) -> tuple[int, int]:
    """What remains after the shortest or longest match is taken off the front (#) or the end
    (%).
    """
    size = len(text)
    if not re.search(r"[*?\[]", pattern):
        if side == "#" and text.startswith(pattern):
            return len(pattern), size
        return (
            (0, size - len(pattern))
            if side == "%" and pattern and text.endswith(pattern)
            else (0, size)
        )
    wanted = glob(pattern)
    if size > 4000:
        return 0, size
    lengths = range(size, -1, -1) if longest else range(size + 1)
    for length in lengths:
        piece = text[:length] if side == "#" else text[size - length :]
        if wanted.match(piece):
            return (length, size) if side == "#" else (0, size - length)
    return 0, size


def _replaced(state: State, text: str, src: Source, span: tuple[int, int], expand: Expand) -> str:
    raw = src.text[span[0] + 1 : span[1]]
    every = raw.startswith("/")
    middle = _slash(raw[every:]) + every
    begin = span[0] + 1
    pattern = plain(joined(expand(state, src, begin + every, begin + middle)))
    new = plain(joined(expand(state, src, min(begin + middle + 1, span[1]), span[1])))
    where = pattern[:1] if pattern[:1] in ("#", "%") and not every else ""
    wanted = glob(pattern[len(where) :]).pattern.removesuffix(r"\z").removesuffix(r"\Z")
    if not pattern or len(text) > 4000:
        return text
    anchored = "^" + wanted if where == "#" else wanted + r"\Z" if where == "%" else wanted
    return re.sub(anchored, lambda _: new, text, count=0 if every else 1)


def _slash(raw: str) -> int:
    """Where the pattern ends: the first slash that is not escaped."""
    at = 0
    while at < len(raw) and raw[at] != "/":
        at += 2 if raw[at] == "\\" else 1
    return min(at, len(raw))
