"""Branches, cases, loops and lists of a script: which of them would be taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from planner.intake.bash.arithmetic import number
from planner.intake.bash.conditions import Truth
from planner.intake.bash.parameters import glob
from planner.intake.bash.state import State, assign, certain, lookup, note, place
from planner.intake.bash.traced_text import (
    EMPTY,
    UNKNOWN,
    Piece,
    Source,
    Text,
    computed,
    cut,
    plain,
    source,
)
from planner.intake.bash.words import text, words

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_TURNS = 256
"""Of one loop."""
_COUNTED = re.compile(r"for\s*\(\((?P<start>.*?);(?P<condition>.*?);(?P<step>.*?)\)\)", re.DOTALL)


def follow(state: State, src: Source, nodes: list[Node], nested: int) -> Truth:
    return state.work.follow(state, src, nodes, nested)


def node_place(state: State, src: Source, node: Node) -> str:
    """'train.sh:12' of a node's begin; the script's name where it stands in no file."""
    begin = cut(src, node.start_byte, node.start_byte + 1)
    return place(begin, state.work.texts) or Path(state.file).name


def arithmetic_truth(state: State, src: Source, start: int, end: int) -> Truth:
    """Whether the expression between the offsets is other than 0."""
    value = number(state, text(state, src, start, end, quoted=True))
    return None if value is None else value != 0


def if_(state: State, src: Source, node: Node, nested: int) -> Truth:
    """The branch whose condition holds; where that cannot be told, the else branch, and a note."""
    state.branches += 1
    try:
        for part, condition, body in _branches(node):
            if not condition:
                return follow(state, src, body, nested)
            holds = follow(state, src, condition, nested)
            if holds:
                return follow(state, src, body, nested)
            if holds is None:
                stretch = src.text[condition[0].start_byte : condition[-1].end_byte]
                note(
                    state,
                    f"{node_place(state, src, part)}: whether `{' '.join(stretch.split())[:80]}`"
                    " holds is not known; taken as not",
                )
        _none(state, src, node)
        return True
    finally:
        state.branches -= 1


def _none(state: State, src: Source, node: Node) -> None:
    """A note where no branch of several is taken because nobody sets what they ask for."""
    if not any(child.type == "elif_clause" for child in node.children) or state.silent:
        return
    condition = src.text[node.start_byte : node.end_byte].partition("then")[0]
    unset = [name for name in re.findall(r"\$\{?(\w+)", condition) if _unset(state, name)]
    if unset:
        listed = ", ".join(f"${name}" for name in dict.fromkeys(unset[:4]))
        where = node_place(state, src, node)
        note(state, f"{where}: none of the branches is taken, as nobody sets {listed}")
        state.work.undecided = True


def _unset(state: State, name: str) -> bool:
    value = lookup(state, name)
    return value is None or (isinstance(value, tuple) and any(piece.unset for piece in value))


def _branches(node: Node) -> Iterator[tuple[Node, list[Node], list[Node]]]:
    """(where, condition, body) of if, elif and else; else has no condition."""
    clauses = [child for child in node.children if child.type in ("elif_clause", "else_clause")]
    for part in (node, *clauses):
        if part.type == "else_clause":
            yield part, [], part.children
            continue
        condition: list[Node] = []
        body: list[Node] = []
        current = condition
        for child in part.children:
            if child.type == "then":
                current = body
            elif child.is_named and child.type not in ("elif_clause", "else_clause", "comment"):
                current.append(child)
        if condition:
            yield part, condition, body


def case_(state: State, src: Source, node: Node, nested: int) -> Truth:
    subject = EMPTY
    subject_node = node.child_by_field_name("value")
    if subject_node:
        subject = text(state, src, subject_node.start_byte, subject_node.end_byte)
    value = certain(subject)
    if value is None:
        known = plain(subject).replace(UNKNOWN, "?")[:40]
        note(
            state,
            f"{node_place(state, src, node)}: which case `{known}` is, is not known; the default is"
            " taken",
        )
    state.branches += 1
    try:
        for item in node.children:
            if item.type != "case_item":
                continue
            bars = [child.start_byte for child in item.children if child.type == ")"]
            end = bars[0] if bars else item.start_byte
            patterns = src.text[item.start_byte : end].lstrip("( \t\n").split("|")
            if any(_matches(state, pattern.strip(), value) for pattern in patterns):
                body = [child for child in item.children if child.start_byte > end]
                return follow(state, src, body, nested)
        return True
    finally:
        state.branches -= 1


def _matches(state: State, pattern: str, value: str | None) -> bool:
    if value is None:
        return pattern == "*"
    wanted = plain(text(state, source((Piece(pattern),)), 0, len(pattern)))
    return bool(glob(wanted).match(value[:4000]))


def for_(state: State, src: Source, node: Node, nested: int) -> Truth:
    name = node.child_by_field_name("variable")
    body = node.child_by_field_name("body")
    if name is None or body is None:
        return None
    listed: list[Text] = []
    for value in node.children_by_field_name("value"):
        listed += _items(state, src, value)
    if not any(child.type == "in" for child in node.children):
        listed = list(state.positional)
    if len(listed) > MAX_TURNS:
        where = node_place(state, src, node)
        note(state, f"{where}: only the first {MAX_TURNS} turns of the loop are followed")
    state.branches += 1
    for item in listed[:MAX_TURNS]:
        assign(state, src.text[name.start_byte : name.end_byte], item)
        follow(state, src, [body], nested)
    state.branches -= 1
    return True


def _items(state: State, src: Source, node: Node) -> list[Text]:
    """`{1..8}`, `{a,b}` or any other word of a for."""
    raw = src.text[node.start_byte : node.end_byte]
    numbers = re.fullmatch(r"\{(-?\d{1,6})\.\.(-?\d{1,6})\}", raw)
    if numbers:
        first, last = int(numbers[1]), int(numbers[2])
        step = 1 if last >= first else -1
        turns = range(first, last + step, step)[: MAX_TURNS + 1]
        return [computed(str(turn)) for turn in turns]
    listed = re.fullmatch(r"\{([^{}\s$]*,[^{}\s$]*)\}", raw)
    if listed:
        return [computed(item) for item in listed[1].split(",")]
    return words(state, src, node.start_byte, node.end_byte)


def loop_(state: State, src: Source, node: Node, nested: int) -> Truth:
    """while, until: as long as the condition is known to hold."""
    body = node.child_by_field_name("body")
    condition = [part for part in node.children_by_field_name("condition") if part.is_named]
    wanted = not (node.children and node.children[0].type == "until")
    state.branches += 1
    for _ in range(MAX_TURNS):
        if not condition or body is None or follow(state, src, condition, nested) is not wanted:
            break
        follow(state, src, [body], nested)
        if state.ended:
            break
    state.branches -= 1
    return True


def counted_(state: State, src: Source, node: Node, nested: int) -> Truth:
    """for ((i = 0; i < n; i++))"""
    match = _COUNTED.match(src.text, node.start_byte, node.end_byte)
    body = node.child_by_field_name("body")
    if not match or body is None:
        return None
    arithmetic_truth(state, src, *match.span("start"))
    state.branches += 1
    for _ in range(MAX_TURNS):
        if not arithmetic_truth(state, src, *match.span("condition")):
            break
        follow(state, src, [body], nested)
        arithmetic_truth(state, src, *match.span("step"))
    state.branches -= 1
    return True


def list_(state: State, src: Source, node: Node, nested: int) -> Truth:
    """a && b || c: what cannot be told to fail is taken to succeed, but a condition that cannot be
    told to hold not to.
    """
    chain: list[Node] = []
    while node.type == "list":
        chain += reversed(node.children[1:])
        node = node.children[0]
    status = _lenient(node, follow(state, src, [node], nested))
    operator = ""
    inside = int(node.type != "command")
    for part in reversed(chain):
        if not part.is_named:
            operator = part.type
        elif status is not None and (operator == "&&") == status:
            state.branches += inside
            status = _lenient(part, follow(state, src, [part], nested))
            state.branches -= inside
    return status


def _lenient(node: Node, status: Truth) -> Truth:
    conditions = ("test_command", "negated_command", "list")
    return True if status is None and node.type not in conditions else status


def negated_(state: State, src: Source, node: Node, nested: int) -> Truth:
    status = follow(state, src, node.children, nested)
    return None if status is None else not status
