"""Which layers an argument names: every so many, or a list of 0 and 1, which may be a text such as
`([1]*3+[0])*12`; read, never evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from planner.errors import InputError
from planner.specs.model import MOST_LAYERS

_LONGEST = 4 * MOST_LAYERS


def named_layers(
    arguments: dict[str, Any], name: str, layers: int, every: Callable[[int, int], bool]
) -> list[bool]:
    """For each layer whether the argument names it. every: of an index and a number.

    Raises InputError for what is neither a number nor a list of as many entries as layers.
    """
    value = arguments.get(name)
    text = str(value).strip()
    few_enough(layers)
    if text.isdecimal() and 0 < len(text) < 10 and int(text) > 0:
        return [every(index, int(text)) for index in range(layers)]
    listed = list(value) if isinstance(value, (list, tuple)) else _listed(text)
    if len(listed) != layers or any(flag not in (0, 1) for flag in listed):
        raise InputError(
            f"{name} must be a number, or a list of 0 and 1 for each of {layers:,} layers, but got"
            f" {text[:60]!r}"
        )
    return [bool(flag) for flag in listed]


def few_enough(layers: int) -> None:
    """Raises InputError for more layers than are told apart."""
    if layers > MOST_LAYERS:
        raise InputError(
            f"a model whose layers differ must have at most {MOST_LAYERS:,}, but got {layers:,}"
        )


def _listed(text: str) -> list[int]:
    """The entries; none of a text that is no list."""
    if len(text) > _LONGEST:
        return []
    try:
        return _entries(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _entries(node: ast.expr) -> list[int]:
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_number(entry) for entry in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _short(_entries(node.left) + _entries(node.right))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        entries, times = _entries(node.left), _number(node.right)
        if len(entries) * times > MOST_LAYERS:
            raise ValueError("too long")
        return entries * times
    raise ValueError("no list")


def _short(entries: list[int]) -> list[int]:
    if len(entries) > MOST_LAYERS:
        raise ValueError("too long")
    return entries


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise ValueError("no number")
