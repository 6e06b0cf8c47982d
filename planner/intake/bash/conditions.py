"""Conditions of the shell: `[ ... ]`, `[[ ... ]]` and `test`, true, false or not known."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from planner.intake.bash.arithmetic import number
from planner.intake.bash.parameters import glob
from planner.intake.bash.state import State, blank, certain, note, spend
from planner.intake.bash.traced_text import Source, Text, plain
from planner.intake.bash.words import ranges, text

Truth = bool | None
"""None where it is not known."""
MAX_TOKENS = 300
"""Of one condition."""

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
}
_FILES = ("-e", "-f", "-d", "-s", "-r", "-w", "-x", "-L", "-h", "-nt")
_COMPARISONS = ("=", "==", "!=", "=~", "<", ">", *_NUMBERS)


class _Token(NamedTuple):
    raw: str
    value: Text


@dataclass(slots=True)
class _Reading:
    state: State
    tokens: list[_Token]
    patterns: bool
    """[[ ]]: the right side of == is a pattern."""
    at: int = 0
    """The next token."""


def test(state: State, src: Source, start: int, end: int, double: bool) -> Truth:
    """The truth of what stands between the brackets."""
    spend(state, end - start)
    tokens = []
    for low, high in ranges(src.text, start, end):
        raw = src.text[low:high]
        front = back = 0
        if raw != "(":
            front = len(raw) - len(raw.lstrip("("))
        if raw.strip("()") and raw.count(")") > raw.count("(") - front:
            back = len(raw) - len(raw.rstrip(")"))
        low, high = low + front, high - back
        tokens += [_Token("(", ())] * front
        tokens.append(_Token(src.text[low:high], text(state, src, low, high)))
        tokens += [_Token(")", ())] * back
    return _truth(state, tokens, double)


def tested(state: State, words: list[Text]) -> Truth:
    """`test a = b`."""
    return _truth(state, [_Token(plain(word), word) for word in words], False)


def _truth(state: State, tokens: list[_Token], double: bool) -> Truth:
    if not tokens:
        return False
    if len(tokens) > MAX_TOKENS:
        return None
    reading = _Reading(state, tokens, double)
    holds = _any(reading)
    return holds if reading.at >= len(tokens) else None


def _peek(reading: _Reading, ahead: int = 0) -> str:
    at = reading.at + ahead
    return reading.tokens[at].raw if at < len(reading.tokens) else ""


def _any(reading: _Reading) -> Truth:
    return _chain(reading, ("||", "-o"), _every, True)


def _every(reading: _Reading) -> Truth:
    return _chain(reading, ("&&", "-a"), _negation, False)


def _chain(
    reading: _Reading,
    operators: tuple[str, str],
    operand: Callable[[_Reading], Truth],
    decisive: bool,
) -> Truth:
    """Operands joined by operators of one kind: one that is `decisive` settles the result, else
    one that is not known leaves it unknown.
    """
    values = [operand(reading)]
    while _peek(reading) in operators:
        reading.at += 1
        values.append(operand(reading))
    if decisive in values:
        return decisive
    return None if None in values else not decisive


def _negation(reading: _Reading) -> Truth:
    negated = False
    while _peek(reading) == "!" and _peek(reading, 1):
        reading.at += 1
        negated = not negated
    holds = _primary(reading)
    return holds if holds is None else holds != negated


def _primary(reading: _Reading) -> Truth:
    """A parenthesis, a comparison, a check of one word, or a word that must not be empty."""
    tokens, at = reading.tokens, reading.at
    raw = _peek(reading)
    if raw == "(":
        reading.at += 1
        holds = _any(reading)
        reading.at += 1
        return holds
    operator = _peek(reading, 1)
    if operator in _COMPARISONS and at + 2 < len(tokens):
        reading.at += 3
        return _comparison(reading, tokens[at], operator, tokens[at + 2])
    if re.fullmatch(r"-[a-zA-Z]+", raw) and operator not in ("", "&&", "||", "-a", "-o", ")"):
        reading.at += 2
        return _check(reading, raw, tokens[at + 1])
    reading.at += 1
    value = certain(tokens[at].value) if at < len(tokens) else ""
    return None if value is None else bool(value)


def _check(reading: _Reading, operator: str, token: _Token) -> Truth:
    if operator in ("-z", "-n"):
        value = certain(token.value)
        return None if value is None else (not value) == (operator == "-z")
    if operator == "-v":
        return plain(token.value) in reading.state.variables
    if operator in _FILES:
        note(reading.state, "files that the script asks for are taken to exist")
        return True
    return None


def _comparison(reading: _Reading, left: _Token, operator: str, right: _Token) -> Truth:
    if operator in _NUMBERS:
        if blank(left.value) or blank(right.value):
            return False
        a, b = number(reading.state, left.value), number(reading.state, right.value)
        return None if a is None or b is None else _NUMBERS[operator](a, b)
    value, other = certain(left.value), certain(right.value)
    if value is None or other is None:
        return None
    if operator == "=~":
        return _searched(other, value)
    if operator == "<":
        return value < other
    if operator == ">":
        return value > other
    same = value == other
    if reading.patterns and not right.raw.startswith(("'", '"')):
        same = glob(other).match(value[:4000]) is not None
    return same == (operator != "!=")


def _searched(pattern: str, value: str) -> Truth:
    """Whether a regular expression matches; None for one that may take long, or is none."""
    if re.search(r"[*+{].*[*+{]", pattern) or len(value) > 1000:
        return None
    try:
        return bool(re.search(pattern, value))
    except re.error:
        return None
