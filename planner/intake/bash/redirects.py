"""Heredocs and redirections: the text that a command is given, and the files that it would
write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from planner.intake.bash.conditions import Truth
from planner.intake.bash.state import State
from planner.intake.bash.traced_text import EMPTY, Piece, Source, Text, concatenated, cut, plain
from planner.intake.bash.words import text

if TYPE_CHECKING:
    from tree_sitter import Node

_INTO_FILE = re.compile(r"(>>|>(?!&))[ \t]*")
REDIRECTS = ("file_redirect", "heredoc_redirect", "herestring_redirect")


def redirected(state: State, src: Source, node: Node, follow: Callable[[Node], Truth]) -> Truth:
    """A statement with its input and the file that takes its output."""
    stdin, out = state.stdin, state.out
    redirects = [child for child in node.children if child.type in REDIRECTS]
    state.stdin, state.out = _input(state, src, redirects), []
    status: Truth = True
    for child in node.children:
        if child.is_named and child.type not in REDIRECTS:
            status = follow(child)
    for later in _piped(redirects):
        state.stdin, state.out = concatenated(state.out), []
        status = follow(later)
    printed, state.stdin, state.out = state.out, stdin, out
    target = _target(state, src, redirects)
    if target:
        _write(state, target, concatenated(printed))
    else:
        out += printed
    return status


def _input(state: State, src: Source, redirects: list[Node]) -> Text:
    for redirect in redirects:
        if redirect.type == "heredoc_redirect":
            return _heredoc(state, src, redirect)
        if redirect.type == "herestring_redirect":
            return (*text(state, src, redirect.start_byte + 3, redirect.end_byte), Piece("\n"))
    return state.stdin


def _heredoc(state: State, src: Source, node: Node) -> Text:
    children = {child.type: child for child in node.children}
    start, body = children.get("heredoc_start"), children.get("heredoc_body")
    if start is None or body is None:
        return EMPTY
    low = max(src.text.rfind("\n", 0, body.start_byte) + 1, start.end_byte)
    if re.search(r"['\"\\]", src.text[start.start_byte : start.end_byte]):
        return cut(src, low, body.end_byte)
    return text(state, src, low, body.end_byte, quoted=True)


def _piped(redirects: list[Node]) -> Iterator[Node]:
    """`cat <<EOF | sbatch`: the commands that take what the first one prints."""
    heredocs = [redirect for redirect in redirects if redirect.type == "heredoc_redirect"]
    for heredoc in heredocs:
        for part in heredoc.children:
            if part.type == "pipeline":
                yield from part.named_children
            elif part.type in ("command", "redirected_statement"):
                yield part


def _target(state: State, src: Source, redirects: list[Node]) -> tuple[str, bool] | None:
    """The file that a redirection writes, and whether to its end."""
    nodes: list[Node] = []
    for redirect in redirects:
        nodes.append(redirect)
        if redirect.type == "heredoc_redirect":
            nodes += redirect.children
    for node in nodes:
        match = _INTO_FILE.match(src.text, node.start_byte)
        if node.type == "file_redirect" and match:
            return plain(text(state, src, match.end(), node.end_byte)), match[1] == ">>"
    return None


def _write(state: State, target: tuple[str, bool], made: Text) -> None:
    name, appended = target
    if name == "/dev/null" or all(piece.unknown for piece in made):
        return
    if appended:
        made = (*state.work.written.get(name, EMPTY), *made)
    state.work.written[name] = made
