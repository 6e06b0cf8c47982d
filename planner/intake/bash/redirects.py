"""Heredocs and redirections: the text that a command is given, and the files that it would
write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from planner.intake.bash.state import State
from planner.intake.bash.traced_text import EMPTY, Piece, Source, Text, cut, plain
from planner.intake.bash.words import text

if TYPE_CHECKING:
    from tree_sitter import Node

Truth = bool | None
REDIRECTS = ("file_redirect", "heredoc_redirect", "herestring_redirect")


def redirected(state: State, src: Source, node: Node, follow: Callable[[Node], Truth]) -> Truth:
    """A statement with its input and the file that takes its output."""
    stdin, out = state.stdin, state.out
    redirects = [child for child in node.children if child.type in REDIRECTS]
    given = _input(state, src, redirects)
    state.stdin, state.out = (stdin if given is None else given), []
    status: Truth = True
    for body in (
        child for child in node.children if child.is_named and child.type not in REDIRECTS
    ):
        status = follow(body)
    for later in _piped(redirects):
        state.stdin, state.out = tuple(piece for made in state.out for piece in made), []
        status = follow(later)
    made, state.stdin, state.out = state.out, stdin, out
    target = _target(state, src, redirects)
    if target:
        _write(state, target, tuple(piece for one in made for piece in one))
    else:
        out += made
    return status


def _input(state: State, src: Source, redirects: list[Node]) -> Text | None:
    for redirect in redirects:
        if redirect.type == "heredoc_redirect":
            return _heredoc(state, src, redirect)
        if redirect.type == "herestring_redirect":
            return (*text(state, src, redirect.start_byte + 3, redirect.end_byte), Piece("\n"))
    return None


def _heredoc(state: State, src: Source, node: Node) -> Text:
    start = next((child for child in node.children if child.type == "heredoc_start"), None)
    body = next((child for child in node.children if child.type == "heredoc_body"), None)
    if start is None or body is None:
        return EMPTY
    literal = any(char in src.text[start.start_byte : start.end_byte] for char in "'\"\\")
    low = (
        src.text.rfind("\n", 0, body.start_byte) + 1
        if not src.text[: body.start_byte].endswith("\n")
        else body.start_byte
    )
    low = max(low, start.end_byte)
    return (
        cut(src, low, body.end_byte)
        if literal
        else text(state, src, low, body.end_byte, quoted=True)
    )


def _piped(redirects: list[Node]) -> Iterator[Node]:
    """`cat <<EOF | sbatch`: the commands that take what the first one prints."""
    for redirect in redirects:
        for part in redirect.children if redirect.type == "heredoc_redirect" else ():
            if part.type == "pipeline":
                yield from (stage for stage in part.children if stage.is_named)
            elif part.type in ("command", "redirected_statement"):
                yield part


def _target(state: State, src: Source, redirects: list[Node]) -> tuple[str, bool] | None:
    inner = [
        part
        for redirect in redirects
        for part in (
            (redirect, *redirect.children) if redirect.type == "heredoc_redirect" else (redirect,)
        )
    ]
    for node in inner:
        sign = src.text[node.start_byte : node.start_byte + 2]
        if node.type == "file_redirect" and sign[0] == ">" and sign != ">&":
            begin = node.start_byte + (2 if sign == ">>" else 1)
            while src.text[begin : begin + 1] in (" ", "\t"):
                begin += 1
            return plain(text(state, src, begin, node.end_byte)), sign == ">>"
    return None


def _write(state: State, target: tuple[str, bool], made: Text) -> None:
    name, appended = target
    if any(not piece.unknown for piece in made) and name != "/dev/null":
        before = state.work.written.get(name, EMPTY) if appended else EMPTY
        state.work.written[name] = (*before, *made)
