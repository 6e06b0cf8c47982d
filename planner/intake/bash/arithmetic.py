"""Arithmetic of the shell, `$(( ... ))`: whole numbers, names as variables, an unknown making the
result unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from planner.intake.bash.state import State, assign, certain, lookup, unknown_text
from planner.intake.bash.traced_text import Text, computed, concatenated, first_unknown, plain

_TOKEN = re.compile(
    r"\s*(\d+#[0-9a-zA-Z@_]+|0[xX][0-9a-fA-F]+|\d[\d_]*|[A-Za-z_]\w*"
    r"|\*\*|<<=?|>>=?|&&|\|\||\+\+|--|[-+*/%&|^<>=!]=|[-+*/%<>!~&|^?:(),=])"
)
_BINARY: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (2, lambda a, b: int(bool(a or b))),
    "&&": (3, lambda a, b: int(bool(a and b))),
    "|": (4, lambda a, b: a | b),
    "^": (5, lambda a, b: a ^ b),
    "&": (6, lambda a, b: a & b),
    "==": (7, lambda a, b: int(a == b)),
    "!=": (7, lambda a, b: int(a != b)),
    "<": (8, lambda a, b: int(a < b)),
    ">": (8, lambda a, b: int(a > b)),
    "<=": (8, lambda a, b: int(a <= b)),
    ">=": (8, lambda a, b: int(a >= b)),
    "<<": (9, lambda a, b: a << _small(b)),
    ">>": (9, lambda a, b: a >> _small(b)),
    "+": (10, lambda a, b: a + b),
    "-": (10, lambda a, b: a - b),
    "*": (11, lambda a, b: a * b),
    "/": (11, lambda a, b: _divide(a, b)),
    "%": (11, lambda a, b: a - _divide(a, b) * b),
    "**": (12, lambda a, b: a ** _small(b)),
}
_SET = ("=", "+=", "-=", "*=", "/=", "%=")
_MAX_VALUE = 1 << 63
_MAX_DEPTH = 40


class _Unknown(Exception):
    """An operand that nobody knows, or no expression at all."""

    def __init__(self, operand: Text = ()) -> None:
        self.operand = operand


@dataclass(slots=True)
class _Reading:
    state: State
    tokens: list[str]
    at: int = 0
    """The next token."""
    used: list[Text] = field(default_factory=list)
    """Values of the variables that count."""
    depth: int = 0


def arithmetic(state: State, text: Text) -> Text:
    """The value as text; the unknown itself where an operand is not known."""
    first = first_unknown(text)
    if first:
        return (first,)
    try:
        value, used = _evaluate(state, plain(text))
    except _Unknown as fault:
        if fault.operand:
            return fault.operand
        return unknown_text(f"$(({plain(text)[:60]}))", unset=False)
    return computed(str(value), concatenated([text, *used]))


def number(state: State, text: Text) -> int | None:
    """The value as a number; None where it is not known."""
    value = certain(arithmetic(state, text))
    return int(value) if value and re.fullmatch(r"-?\d+", value) else None


def _evaluate(state: State, text: str) -> tuple[int, list[Text]]:
    if len(text) > 2000:
        raise _Unknown
    tokens = _TOKEN.findall(text)
    if re.sub(r"\s", "", "".join(tokens)) != re.sub(r"\s", "", text):
        raise _Unknown
    if not tokens:
        return 0, []
    reading = _Reading(state, tokens)
    value = _comma(reading)
    if _peek(reading):
        raise _Unknown
    return value, reading.used


def _peek(reading: _Reading) -> str:
    return reading.tokens[reading.at] if reading.at < len(reading.tokens) else ""


def _take(reading: _Reading) -> str:
    token = _peek(reading)
    reading.at += 1
    return token


def _comma(reading: _Reading) -> int:
    value = _choice(reading)
    while _peek(reading) == ",":
        _take(reading)
        value = _choice(reading)
    return value


def _choice(reading: _Reading) -> int:
    reading.depth += 1
    if reading.depth > _MAX_DEPTH:
        raise _Unknown
    value = _binary(reading, 0)
    if _peek(reading) == "?":
        _take(reading)
        yes = _choice(reading)
        if _take(reading) != ":":
            raise _Unknown
        no = _choice(reading)
        value = yes if value else no
    reading.depth -= 1
    return value


def _binary(reading: _Reading, least: int) -> int:
    value = _unary(reading)
    while _peek(reading) in _BINARY:
        token = _peek(reading)
        rank, apply = _BINARY[token]
        if rank <= least:
            break
        _take(reading)
        right = _binary(reading, rank - (token == "**"))
        value = _bounded(apply(value, right))
    return value


def _unary(reading: _Reading) -> int:
    token = _take(reading)
    if token in ("-", "+", "!", "~", "++", "--"):
        reading.depth += 1
        if reading.depth > _MAX_DEPTH:
            raise _Unknown
        if token in ("++", "--"):
            return _store(reading, _take(reading), f"{token[0]}=", 1)
        value = _unary(reading)
        reading.depth -= 1
        return {"-": -value, "+": value, "!": int(not value), "~": ~value}[token]
    if token == "(":
        value = _comma(reading)
        if _take(reading) != ")":
            raise _Unknown
        return value
    if re.match(r"[A-Za-z_]", token):
        return _name(reading, token)
    return _literal(token)


def _literal(token: str) -> int:
    try:
        if "#" in token:
            base, digits = token.split("#", 1)
            return int(digits, int(base))
        if re.fullmatch(r"0[0-7]+", token):
            return int(token, 8)
        return int(token, 16) if token[:2].lower() == "0x" else int(token)
    except ValueError:
        raise _Unknown from None


def _name(reading: _Reading, name: str) -> int:
    if _peek(reading) in _SET:
        return _store(reading, name, _take(reading), _choice(reading))
    value = _value(reading, name)
    if _peek(reading) in ("++", "--"):
        _store(reading, name, f"{_take(reading)[0]}=", 1)
    return value


def _value(reading: _Reading, name: str) -> int:
    text = lookup(reading.state, name)
    if isinstance(text, list) and text:
        text = text[0]
    if not isinstance(text, tuple):
        raise _Unknown(unknown_text(name))
    first = first_unknown(text)
    if first:
        raise _Unknown((first,))
    reading.used.append(text)
    digits = plain(text).strip()
    if not re.fullmatch(r"[-+]?\d[\d_]*", digits):
        raise _Unknown
    return int(digits)


def _store(reading: _Reading, name: str, how: str, value: int) -> int:
    if how != "=":
        before = _value(reading, name)
        value = _bounded(_BINARY[how[0]][1](before, value))
    assign(reading.state, name, computed(str(value)))
    return value


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise _Unknown
    return math.trunc(Fraction(a, b))


def _small(value: int) -> int:
    if not 0 <= value < 64:
        raise _Unknown
    return value


def _bounded(value: int) -> int:
    if abs(value) >= _MAX_VALUE:
        raise _Unknown
    return value
