"""Bash's grammar by tree-sitter, within a time limit."""

from __future__ import annotations

import re
from time import thread_time
from typing import TYPE_CHECKING

from planner.errors import InputError

if TYPE_CHECKING:
    from tree_sitter import Node, Point

LIMIT_S = 1.5
MAX_HEREDOCS = 300
MAX_BARS = 2000
"""The parser's memory grows with the square of a pipeline's stages, its time with that of the
heredocs.
"""
_BLOCK = 1 << 16
_TEMPLATE = re.compile(r"(?<=[=\s])<\w[^<>\n|&;$\"'`()]{0,200}[\w.]>(?=[\s/]|$)")
"""`<path to the data>`: a place to fill in, not two redirections."""


def parse(text: str, name: str) -> Node:
    """The root of the tree; offsets are of characters, since all that is not ASCII is parsed as a
    letter.

    Raises InputError where the text is not a script that anyone would write.
    """
    import tree_sitter
    import tree_sitter_bash

    short = name.rpartition("/")[2]
    if text.count("<<") > MAX_HEREDOCS or text.count("|") > MAX_BARS:
        raise InputError(
            f"{short} must be a launch script, with at most {MAX_HEREDOCS} heredocs and"
            f" {MAX_BARS:,} bars, but has more"
        )
    ascii_text = re.sub(r"[^\x01-\x7f]", "_", text)
    plain = _TEMPLATE.sub(lambda match: "_" * len(match[0]), ascii_text).encode()
    end = thread_time() + LIMIT_S
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))

    def block(offset: int, _: Point) -> bytes:
        return plain[offset : offset + _BLOCK]

    def late(_: int, __: bool) -> bool:
        return thread_time() > end

    try:
        tree = parser.parse(block, progress_callback=late)
    except ValueError:
        tree = None
    if tree is None:
        raise InputError(
            f"{short} must be a launch script, but its text is too long or too nested to be read in"
            f" {LIMIT_S} s"
        )
    return tree.root_node
