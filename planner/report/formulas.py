"""What the code says of itself: formulas, sources and assumptions out of docstrings, meanings of
terms out of their dataclass.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

LABELS = ("Formula", "Source", "Assumes")
_LABEL = re.compile(r"(Formula|Source|Assumes):\s*(.*)")
_KEY = re.compile(r"\[([a-z0-9-]+)[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Formula:
    """One function of the cost model or of a schedule."""

    room: str
    name: str
    says: str
    formula: str
    source: str
    assumes: str


def cost_formulas() -> list[Formula]:
    """Every function of planner.cost that states a formula, by module."""
    import planner.cost

    names = sorted(
        module.name for module in pkgutil.walk_packages(planner.cost.__path__, "planner.cost.")
    )
    return [found for name in names for found in module_formulas(import_module(name))]


def module_formulas(module: ModuleType) -> Iterator[Formula]:
    """Functions of a module with a `Formula:` line, in the order of the file."""
    functions = [
        x
        for x in vars(module).values()
        if inspect.isfunction(x) and x.__module__ == module.__name__
    ]
    for function in sorted(functions, key=lambda x: x.__code__.co_firstlineno):
        text = inspect.getdoc(function) or ""
        said = labelled(text)
        if "Formula" in said:
            room = module.__name__.removeprefix("planner.")
            yield Formula(
                room,
                function.__name__,
                summary(text),
                *(said.get(one, "") for one in LABELS),
            )


def summary(text: str) -> str:
    """The first paragraph of a docstring in one line."""
    return " ".join(text.partition("\n\n")[0].split())


def labelled(text: str) -> dict[str, str]:
    """The labelled lines of a docstring; lines that follow one, up to a blank line or the next
    label, belong to it.
    """
    out: dict[str, str] = {}
    label = ""
    for line in text.splitlines():
        found = _LABEL.match(line.strip())
        if found:
            label = found[1]
            out[label] = found[2]
        elif not line.strip():
            label = ""
        elif label:
            out[label] += " " + line.strip()
    return out


def keys(text: str) -> list[str]:
    """Keys of references.py that a text cites: `[narayanan2021 sec. 2.2]` gives narayanan2021."""
    return _KEY.findall(text)


def meanings(kind: type) -> dict[str, str]:
    """The sentence below each field of a dataclass, by field; '' where there is none."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    out: dict[str, str] = {}
    for at, node in enumerate(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            after = body[at + 1] if at + 1 < len(body) else None
            said = after.value if isinstance(after, ast.Expr) else None
            out[node.target.id] = summary(str(said.value)) if isinstance(said, ast.Constant) else ""
    return out
