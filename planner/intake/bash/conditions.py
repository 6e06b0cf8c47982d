"""Conditions of the shell: `[ ... ]`, `[[ ... ]]` and `test`, true, false or not known."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from planner.intake.bash.arithmetic import number
from planner.intake.bash.parameters import glob
from planner.intake.bash.state import State, blank, certain, note, spend
from planner.intake.bash.traced_text import Source, Text, plain
from planner.intake.bash.words import ranges, text

Truth = bool | None

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
}
_FILES = ("-e", "-f", "-d", "-s", "-r", "-w", "-x", "-L", "-h", "-nt")
_OPERATORS = ("&&", "||", "-a", "-o", "!", "(", ")", "=", "==", "!=", "=~", "<", ">", *_NUMBERS)


class _Token(NamedTuple):
    raw: str
    value: Text


class _Reading(NamedTuple):
    state: State
    tokens: list[_Token]
    at: list[int]
    patterns: bool
    """[[ ]]: the right side of == is a pattern."""
    where: str


def test(state: State, src: Source, start: int, end: int, double: bool, where: str) -> Truth:
    """The truth of what stands between the brackets."""
    spend(state, end - start)
    tokens = []
    for low, high in ranges(src.text, start, end):
        raw = src.text[low:high]
        front = len(raw) - len(raw.lstrip("(")) if raw != "(" and not raw.startswith("$(") else 0
        back = len(raw) - len(raw.rstrip(")")) if raw.count(")") > raw.count("(") - front else 0
        back = back if raw.strip("()") else 0
        tokens += [_Token("(", ())] * front
        tokens.append(
            _Token(src.text[low + front : high - back], text(state, src, low + front, high - back))
        )
        tokens += [_Token(")", ())] * back
    return truth(state, tokens, double, where)


def tested(state: State, words: list[Text], where: str) -> Truth:
    """`test a = b`."""
    return truth(state, [_Token(plain(word), word) for word in words], False, where)


def truth(state: State, tokens: list[_Token], double: bool, where: str) -> Truth:
    if not tokens or len(tokens) > 300:
        return False if not tokens else None
    reading = _Reading(state, tokens, [0], double, where)
    found = _any(reading)
    return found if reading.at[0] >= len(tokens) else None


def _peek(reading: _Reading, ahead: int = 0) -> str:
    at = reading.at[0] + ahead
    return reading.tokens[at].raw if at < len(reading.tokens) else ""


def _any(reading: _Reading) -> Truth:
    found = _every(reading)
    while _peek(reading) in ("||", "-o"):
        reading.at[0] += 1
        other = _every(reading)
        found = (
            True
            if found is True or other is True
            else None
            if found is None or other is None
            else False
        )
    return found


def _every(reading: _Reading) -> Truth:
    found = _not(reading)
    while _peek(reading) in ("&&", "-a"):
        reading.at[0] += 1
        other = _not(reading)
        found = (
            False
            if found is False or other is False
            else None
            if found is None or other is None
            else True
        )
    return found


def _not(reading: _Reading) -> Truth:
    turns = 0
    while _peek(reading) == "!" and _peek(reading, 1):
        reading.at[0] += 1
        turns += 1
    found = _one(reading)
    return found if turns % 2 == 0 or found is None else not found


def _one(reading: _Reading) -> Truth:
    tokens, at = reading.tokens, reading.at[0]
    raw = _peek(reading)
    if raw == "(":
        reading.at[0] += 1
        found = _any(reading)
        reading.at[0] += 1
        return found
    operator = _peek(reading, 1)
    if operator in _OPERATORS[7:] and at + 2 < len(tokens) and operator not in ("(", ")"):
        reading.at[0] += 3
        return _pair(reading, tokens[at], operator, tokens[at + 2])
    if re.fullmatch(r"-[a-zA-Z]+", raw) and operator not in ("", "&&", "||", "-a", "-o", ")"):
        reading.at[0] += 2
        return _single(reading, raw, tokens[at + 1])
    reading.at[0] += 1
    value = certain(tokens[at].value) if at < len(tokens) else ""
    return None if value is None else bool(value)


def _single(reading: _Reading, operator: str, token: _Token) -> Truth:
    if operator in ("-z", "-n"):
        value = certain(token.value)
        return None if value is None else (not value) == (operator == "-z")
    if operator == "-v":
        return plain(token.value) in reading.state.variables
    if operator in _FILES:
        note(reading.state, "files that the script asks for are taken to exist")
        return True
    return None


def _pair(reading: _Reading, left: _Token, operator: str, right: _Token) -> Truth:
    if operator in _NUMBERS:
        if blank(left.value) or blank(right.value):
            return False
        a, b = number(reading.state, left.value), number(reading.state, right.value)
        return None if a is None or b is None else _NUMBERS[operator](a, b)
    one, other = certain(left.value), certain(right.value)
    if one is None or other is None:
        return None
    if operator == "=~":
        return (
            None if re.search(r"[*+{].*[*+{]", other) or len(one) > 1000 else _searched(other, one)
        )
    if operator in ("<", ">"):
        return one < other if operator == "<" else one > other
    quoted = right.raw[:1] in ("'", '"')
    same = bool(glob(other).match(one[:4000])) if reading.patterns and not quoted else one == other
    return same == (operator != "!=")


def _searched(pattern: str, value: str) -> Truth:
    try:
        return bool(re.search(pattern, value))
    except re.error:
        return None
