"""`${...}` of the shell: defaults, lengths, cut-off ends, replacements, array elements."""

from __future__ import annotations

import re
from collections.abc import Callable

from planner.intake.bash.arithmetic import number
from planner.intake.bash.state import State, Variable, assign, blank, lookup, unknown_text
from planner.intake.bash.traced_text import (
    EMPTY,
    Part,
    Piece,
    Source,
    Text,
    computed,
    cut,
    elements,
    first_unknown,
    joined,
    parts,
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
        form = src.text[start:end]
        if form == "#":
            return [Part(Piece(str(len(state.positional))))]
        return parts(unknown_text(f"${{{form[:40]}}}", unset=False))
    name, index, rest = match["name"], match["index"], match.end()
    value = _indirect(state, name) if match["bang"] else lookup(state, name)
    if index in ("@", "*") or name in ("@", "*"):
        return _all(state, match, value, src, (rest, end), quoted)
    element = _element(state, value, index)
    if match["count"]:
        return _count(element)
    operator = _DEFAULT.match(src.text, rest, end)
    if operator:
        return _defaulted(
            state, (name, element, operator[0]), src, (operator.end(), end), quoted, expand
        )
    if element is None:
        return parts(unknown_text(name), not quoted)
    return parts(_changed(state, element, src, (rest, end), expand), not quoted)


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
    positional = match["name"] in ("@", "*")
    items: list[Text] = []
    if positional:
        items = state.positional
    elif isinstance(value, list):
        items = value
    elif value is not None:
        items = [value]
    if match["count"]:
        return [Part(Piece(str(len(items))))]
    bounds = re.fullmatch(r":\s*(\d+)(?::\s*(\d+))?", src.text[span[0] : span[1]])
    if bounds:
        items = items[max(int(bounds[1]) - positional, 0) :]
        items = items[: int(bounds[2] or len(items))]
    return elements(items, quoted and "*" not in (match["name"], match["index"]), quoted)


def _element(state: State, value: Variable | None, index: str | None) -> Text | None:
    if not isinstance(value, list):
        return value
    at = number(state, (Piece(index or "0"),))
    if at is None or not -len(value) <= at < len(value):
        return None
    return value[at]


def _count(value: Text | None) -> list[Part]:
    """`${#x}`: the length."""
    text = value or EMPTY
    first = first_unknown(text)
    return [Part(first)] if first else parts(computed(str(len(plain(text)))))


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
    there = value is not None and not blank(value)
    if operator[0] != ":":
        there = there or value == EMPTY
    sign = operator[-1]
    if sign == "+":
        return _word(state, src, span, quoted, expand) if there else []
    if there and value is not None:
        return parts(value, not quoted)
    if sign == "?":
        return parts(unknown_text(name), not quoted)
    word = _word(state, src, span, quoted, expand)
    if sign == "=":
        assign(state, name, joined(word))
    return word


def _word(
    state: State, src: Source, span: tuple[int, int], quoted: bool, expand: Expand
) -> list[Part]:
    """The word after the operator; where it holds no quotes, it is split as the whole is."""
    word: list[Part] = expand(state, src, *span)
    if not quoted and re.search(r"[\"']", src.text[span[0] : span[1]]):
        return word
    return [part._replace(split=not quoted) for part in word]


def _changed(state: State, value: Text, src: Source, span: tuple[int, int], expand: Expand) -> Text:
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
        return cut(source(value), *_stripped(text, pattern, operator[0], longest))
    if operator[0] == "/":
        return computed(_replaced(state, text, src, span, expand), value)
    if operator[0] in "^,":
        changed = text.upper() if operator[0] == "^" else text.lower()
        if operator[:2] not in ("^^", ",,"):
            changed = changed[:1] + text[1:]
        return computed(changed, value)
    if operator[0] == ":":
        return _sliced(state, value, text, operator)
    return value


def _sliced(state: State, value: Text, text: str, operator: str) -> Text:
    offset, _, length = operator[1:].partition(":")
    low = number(state, (Piece(offset.strip() or "0"),))
    size = number(state, (Piece(length.strip() or str(len(text))),))
    if low is None or size is None:
        return unknown_text("${..." + operator[:30] + "}", unset=False)
    if low < 0:
        low = max(low + len(text), 0)
    end = low + size if size >= 0 else len(text) + size
    return cut(source(value), low, min(end, len(text)))


def glob(pattern: str) -> re.Pattern[str]:
    """A pattern of the shell as a regular expression; wild cards do not nest, so matching stays
    quick.
    """
    import fnmatch

    short = re.sub(r"\*{2,}", "*", pattern[:200])
    if short.count("*") > 4:
        short = short.replace("*", "")
    return re.compile(fnmatch.translate(short))


def _stripped(text: str, pattern: str, side: str, longest: bool) -> tuple[int, int]:
    """What remains after the shortest or longest match is taken off the front (#) or the end
    (%).
    """
    size = len(text)
    if not re.search(r"[*?\[]", pattern):
        if side == "#":
            return size - len(text.removeprefix(pattern)), size
        return 0, len(text.removesuffix(pattern))
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
    middle = min(unescaped(raw, "/", every, len(raw)), len(raw))
    begin = span[0] + 1
    pattern = plain(joined(expand(state, src, begin + every, begin + middle)))
    new = plain(joined(expand(state, src, min(begin + middle + 1, span[1]), span[1])))
    where = pattern[:1] if pattern[:1] in ("#", "%") and not every else ""
    wanted = glob(pattern[len(where) :]).pattern.removesuffix(r"\z").removesuffix(r"\Z")
    if not pattern or len(text) > 4000:
        return text
    if where == "#":
        wanted = "^" + wanted
    elif where == "%":
        wanted += r"\Z"
    return re.sub(wanted, lambda _: new, text, count=0 if every else 1)


def unescaped(script: str, char: str, at: int, end: int) -> int:
    """The offset of the first such character from `at` on that no backslash precedes; `end` or one
    more where there is none.
    """
    while at < end and script[at] != char:
        at += 2 if script[at] == "\\" else 1
    return at
