"""What the code says of itself: formulas, sources and assumptions out of docstrings, meanings of
terms out of their dataclass.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from types import FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

import planner.cost
import planner.schedules
from planner.simulator import simulate

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
    names = sorted(
        module.name for module in pkgutil.walk_packages(planner.cost.__path__, "planner.cost.")
    )
    formulas: list[Formula] = []
    for name in names:
        formulas += module_formulas(import_module(name))
    return formulas


def module_formulas(module: ModuleType) -> Iterator[Formula]:
    """Functions of a module with a `Formula:` line, in the order of the file."""
    yield from formulas_in(_functions(module))


def _functions(module: ModuleType) -> list[FunctionType]:
    """Functions that a module defines, in the order of the file."""
    functions = []
    for member in vars(module).values():
        if inspect.isfunction(member) and member.__module__ == module.__name__:
            functions.append(member)
    return sorted(functions, key=lambda function: function.__code__.co_firstlineno)


def formulas_in(functions: Iterable[Callable[..., Any]]) -> Iterator[Formula]:
    """The formulas of functions, of those that have a `Formula:` line."""
    for function in functions:
        text = inspect.getdoc(function) or ""
        lines = labelled(text)
        if "Formula" in lines:
            yield Formula(
                function.__module__.removeprefix("planner."),
                function.__name__,
                summary(text),
                *(lines.get(label, "") for label in LABELS),
            )


def summary(text: str) -> str:
    """The first paragraph of a docstring in one line."""
    return " ".join(text.partition("\n\n")[0].split())


def formulas_of(compute: Callable[[], Any]) -> tuple[list[Formula], bool]:
    """The formulas that made a result, and whether the simulator did too.

    Runs `compute` and keeps the functions of planner.cost and planner.schedules that it called and
    that gave anything but 0: adapters or experts that a model does not have add nothing.
    """
    effective: set[int] = set()
    """Ids of code objects: these are slow to hash."""

    def watch(frame: FrameType, event: str, value: Any) -> None:
        if event == "return" and id(frame.f_code) not in effective and _effective(value):
            effective.add(id(frame.f_code))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        compute()
    finally:
        sys.setprofile(before)
    formulas: list[Formula] = []
    for room in (planner.cost, planner.schedules):
        for info in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
            functions = _functions(import_module(info.name))
            formulas += formulas_in(f for f in functions if id(f.__code__) in effective)
    return formulas, id(simulate.__code__) in effective


def _effective(value: Any) -> bool:
    """Whether a result, or any field or item of it, is other than 0."""
    if value is None:
        return False
    if is_dataclass(value):
        return any(_effective(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, tuple | list):
        return any(_effective(item) for item in value)
    if isinstance(value, dict):
        return any(_effective(item) for item in value.values())
    return bool(np.any(value)) if isinstance(value, np.ndarray) else bool(value)


def labelled(text: str) -> dict[str, str]:
    """The labelled lines of a docstring; lines that follow one, up to a blank line or the next
    label, belong to it.
    """
    out: dict[str, str] = {}
    label = ""
    for line in text.splitlines():
        match = _LABEL.match(line.strip())
        if match:
            label = match[1]
            out[label] = match[2]
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
            out[node.target.id] = ""
            match body[at + 1 : at + 2]:
                case [ast.Expr(ast.Constant(value=sentence))]:
                    out[node.target.id] = summary(str(sentence))
    return out
