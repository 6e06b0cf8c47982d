"""Which expressions `--where` may hold: comparisons of columns, and a few methods that only look at
them.
"""

from __future__ import annotations

import ast
import re

METHODS = (
    "isna",
    "notna",
    "isnull",
    "notnull",
    "isin",
    "between",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "abs",
    "round",
    "fillna",
)
"""Of a column."""
TEXT_METHODS = (
    "contains",
    "startswith",
    "endswith",
    "lower",
    "upper",
    "strip",
    "len",
    "fullmatch",
    "match",
    "isdigit",
)
"""Of the texts in a column, after `.str`."""
MAX_CHARACTERS = 2000
_QUOTED_NAME = re.compile(r"`[^`]*`")
_NODES = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.Invert,
    ast.USub,
    ast.UAdd,
    ast.Compare,
    ast.cmpop,
    ast.Load,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.BitAnd,
    ast.BitOr,
    ast.Name,
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.Call,
    ast.keyword,
    ast.Attribute,
)


def fault(where: str) -> str:
    """What an expression holds that is more than a question about columns, in words; empty when
    nothing does.

    NOTE: a pandas query can call any method and reach any attribute, hence write files (`to_csv`)
    and run programs (through `__globals__`); what is allowed is named here, for nothing else is
    known to be harmless.
    """
    if len(where) > MAX_CHARACTERS:
        return f"it must have at most {MAX_CHARACTERS:,} characters, but has {len(where):,}"
    try:
        tree = ast.parse(_QUOTED_NAME.sub("quoted", where).strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"it cannot be read: {str(error).splitlines()[0][:80]}"
    return next((says for node in ast.walk(tree) if (says := _node_fault(node))), "")


def _node_fault(node: ast.AST) -> str:
    if not isinstance(node, _NODES):
        return f"it holds {type(node).__name__.lower()}, which is not understood there"
    if isinstance(node, ast.Name) and node.id.startswith("_"):
        return f"it names {node.id[:40]}, which is no column"
    if isinstance(node, ast.BinOp) and any(
        isinstance(side, (ast.List, ast.Tuple)) or _is_text(side)
        for side in (node.left, node.right)
    ):
        return "it reckons with texts or lists; compare with them"
    if isinstance(node, ast.Attribute):
        return _attribute_fault(node)
    if isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute):
        return (
            "it calls a function; methods of columns are understood, such as"
            " source.str.contains('20')"
        )
    return ""


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))


def _attribute_fault(node: ast.Attribute) -> str:
    after_text = isinstance(node.value, ast.Attribute) and node.value.attr == "str"
    known = TEXT_METHODS if after_text else (*METHODS, "str")
    return (
        ""
        if node.attr in known
        else f"it asks for {node.attr[:40]!r}; understood are {', '.join(known)}"
    )
