"""Branches, cases, loops and lists of a script: which of them would be taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from planner.intake.bash.arithmetic import arithmetic
from planner.intake.bash.conditions import Truth
from planner.intake.bash.parameters import glob
from planner.intake.bash.state import State, assign, certain, line, lookup, note
from planner.intake.bash.traced_text import (
    EMPTY,
    UNKNOWN,
    Piece,
    Source,
    Text,
    computed,
    cut,
    plain,
)
from planner.intake.bash.words import text, words

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_TURNS = 256
"""Of one loop."""


def follow(state: State, src: Source, nodes: list[Node], nested: int) -> Truth:
    return state.work.follow(state, src, nodes, nested)


def follow_one(state: State, src: Source, node: Node, nested: int) -> Truth:
    return state.work.follow(state, src, [node], nested)


def place(state: State, src: Source, node: Node) -> str:
    return line(state, cut(src, node.start_byte, node.start_byte + 1))


def truth_of(state: State, src: Source, start: int, end: int) -> Truth:
    value = certain(arithmetic(state, text(state, src, start, end, quoted=True)))
    return int(value) != 0 if value and re.fullmatch(r"-?\d+", value) else None


def if_(state: State, src: Source, node: Node, nested: int) -> Truth:
    """The branch whose condition holds; where that cannot be told, the else branch, and a note."""
    state.branches += 1
    try:
        for part, condition, body in _branches(node):
            holds = True if condition is None else follow(state, src, condition, nested)
            if holds is None and condition is not None:
                asked = " ".join(
                    src.text[condition[0].start_byte : condition[-1].end_byte].split()
                )[:80]
                note(
                    state,
                    f"{place(state, src, part)}: whether `{asked}` holds is not known; taken"
                    " as not",
                )
            if holds:
                return follow(state, src, body, nested)
        _none(state, src, node)
        return True
    finally:
        state.branches -= 1


def _none(state: State, src: Source, node: Node) -> None:
    """A note where no branch of several is taken because nobody sets what they ask for."""
    if not any(child.type == "elif_clause" for child in node.children) or state.silent:
        return
    asked = src.text[node.start_byte : node.end_byte].partition("then")[0]
    unset = [name for name in re.findall(r"\$\{?(\w+)", asked) if _unset(state, name)]
    if unset:
        listed = ", ".join(f"${name}" for name in dict.fromkeys(unset[:4]))
        note(
            state,
            f"{place(state, src, node)}: none of the branches is taken, as nobody sets {listed}",
        )
        state.work.undecided = True


def _unset(state: State, name: str) -> bool:
    value = lookup(state, name)
    return value is None or (isinstance(value, tuple) and any(piece.unset for piece in value))


def _branches(node: Node) -> Iterator[tuple[Node, list[Node] | None, list[Node]]]:
    """(where, condition, body) of if, elif and else; the condition of else is None."""
    for part in (
        node,
        *(child for child in node.children if child.type in ("elif_clause", "else_clause")),
    ):
        if part.type == "else_clause":
            yield part, None, part.children
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
    subject_node = node.child_by_field_name("value")
    subject = (
        text(state, src, subject_node.start_byte, subject_node.end_byte) if subject_node else EMPTY
    )
    value = certain(subject)
    if value is None:
        asked = plain(subject).replace(UNKNOWN, "?")[:40]
        note(
            state,
            f"{place(state, src, node)}: which case `{asked}` is, is not known; the default is"
            " taken",
        )
    state.branches += 1
    try:
        for item in (child for child in node.children if child.type == "case_item"):
            closing = next(
                (child.start_byte for child in item.children if child.type == ")"), item.start_byte
            )
            patterns = src.text[item.start_byte : closing].lstrip("( \t\n").split("|")
            bodies = [child for child in item.children if child.start_byte > closing]
            if any(_matches(state, pattern.strip(), value) for pattern in patterns):
                return follow(state, src, bodies, nested)
        return True
    finally:
        state.branches -= 1


def _matches(state: State, pattern: str, value: str | None) -> bool:
    if value is None:
        return pattern == "*"
    piece = Source(pattern, (Piece(pattern),), [0]) if pattern else Source("", (), [])
    wanted = plain(text(state, piece, 0, len(pattern)))
    return bool(glob(wanted).match(value[:4000]))


def for_(state: State, src: Source, node: Node, nested: int) -> Truth:
    name = node.child_by_field_name("variable")
    body = node.child_by_field_name("body")
    if name is None or body is None:
        return None
    listed = [
        word for one in node.children_by_field_name("value") for word in _items(state, src, one)
    ]
    if not any(child.type == "in" for child in node.children):
        listed = list(state.positional)
    if len(listed) > MAX_TURNS:
        note(
            state,
            f"{place(state, src, node)}: only the first {MAX_TURNS} turns of the loop are followed",
        )
    state.branches += 1
    for item in listed[:MAX_TURNS]:
        assign(state, src.text[name.start_byte : name.end_byte], item)
        follow_one(state, src, body, nested)
    state.branches -= 1
    return True


def _items(state: State, src: Source, node: Node) -> list[Text]:
    braces = re.fullmatch(
        r"\{(-?\d{1,6})\.\.(-?\d{1,6})\}", src.text[node.start_byte : node.end_byte]
    )
    if braces:
        first, last = int(braces[1]), int(braces[2])
        step = 1 if last >= first else -1
        return [computed(str(one)) for one in range(first, last + step, step)[: MAX_TURNS + 1]]
    listed = re.fullmatch(r"\{([^{}\s$]*,[^{}\s$]*)\}", src.text[node.start_byte : node.end_byte])
    return (
        [computed(one) for one in listed[1].split(",")]
        if listed
        else words(state, src, node.start_byte, node.end_byte)
    )


def loop_(state: State, src: Source, node: Node, nested: int) -> Truth:
    """while, until: as long as the condition is known to hold."""
    body = node.child_by_field_name("body")
    condition = [one for one in node.children_by_field_name("condition") if one.is_named]
    wanted = not (node.children and node.children[0].type == "until")
    state.branches += 1
    for _ in range(MAX_TURNS):
        if not condition or body is None or follow(state, src, condition, nested) is not wanted:
            break
        follow_one(state, src, body, nested)
        if state.ended:
            break
    state.branches -= 1
    return True


def counted_(state: State, src: Source, node: Node, nested: int) -> Truth:
    """for ((i = 0; i < n; i++))"""
    match = re.match(
        r"for\s*\(\((.*?);(.*?);(.*?)\)\)", src.text[node.start_byte : node.end_byte], re.DOTALL
    )
    body = node.child_by_field_name("body")
    if not match or body is None:
        return None
    spans = [
        (node.start_byte + match.start(one), node.start_byte + match.end(one)) for one in (1, 2, 3)
    ]
    truth_of(state, src, *spans[0])
    state.branches += 1
    for _ in range(MAX_TURNS):
        if not truth_of(state, src, *spans[1]):
            break
        follow_one(state, src, body, nested)
        truth_of(state, src, *spans[2])
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
    status = _lenient(node, follow_one(state, src, node, nested))
    operator = ""
    for one in reversed(chain):
        if not one.is_named:
            operator = one.type
            continue
        if status is None or (operator == "&&") != status:
            continue
        inside = 0 if node.type == "command" else 1
        state.branches += inside
        status = _lenient(one, follow_one(state, src, one, nested))
        state.branches -= inside
    return status


def _lenient(node: Node, status: Truth) -> Truth:
    conditions = ("test_command", "negated_command", "list")
    return True if status is None and node.type not in conditions else status


def negated_(state: State, src: Source, node: Node, nested: int) -> Truth:
    status = follow(state, src, node.children, nested)
    return None if status is None else not status
