"""The shape of the code: `python -m tests.bench.house [FOLDER]` prints it, of this checkout or of
the one in FOLDER (nothing is asserted).

Rooms are the folders and files right below planner/, arrows the imports between them. Statements
are all of Python's grammar, docstrings too. Dense expressions are comprehensions, generator
expressions, conditional expressions and walrus operators. Vague names are words that say nothing
of the thing they name, counted where they are bound: variables, arguments, functions.

A schedule, a word of the question and a term of the step's time are then added to a copy of the
checkout, each by an edit of one file, and the copy is asked whether its commands know them. The
trial word is only parsed and shown: nothing acts on it, as on a real one (CONTRIBUTING, To add).
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COLUMNS = 100
DENSE = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.NamedExpr)
VAGUE = ("one", "found", "said", "told", "asked", "stated", "beside", "u", "whole", "MOST")


@dataclass(frozen=True)
class Addition:
    """Something that is added by editing one file, and the commands that then show it."""

    kind: str
    path: str
    template: str
    """The file that the new one is made from, or the file itself where it is edited."""
    edits: dict[str, str]
    shown: dict[tuple[str, ...], str]
    """Arguments of ppplan, and what stands in their output."""


QUESTION = ("--model", "llama2-7b", "--gpus", "8")
ADDITIONS = (
    Addition(
        "schedule",
        "planner/schedules/trial_order.py",
        "planner/schedules/gpipe.py",
        {'NAME = "gpipe"': 'NAME = "trial-order"', "year=2019": "year=2027"},
        {
            ("schedules",): "trial-order",
            ("simulate", "--schedule", "trial-order", "--pp", "4", "--m", "8"): "trial-order",
            ("explain", *QUESTION, "--pp", "4", "--schedule", "trial-order"): "trial-order",
        },
    ),
    Addition(
        "question word",
        "planner/specs/words.py",
        "planner/specs/words.py",
        {
            "    global_batch_tokens: Annotated[int": "    trial_word: Annotated[int | None,"
            ' _count("A trial.")] = None\n    global_batch_tokens: Annotated[int',
            "    global_batch_tokens: int | None\n": "    global_batch_tokens: int | None\n"
            "    trial_word: int | None\n",
        },
        {
            ("recommend", "--help"): "--trial-word",
            ("recommend", *QUESTION, "--trial-word", "0"): "trial_word",
        },
    ),
    Addition(
        "cost term",
        "planner/cost/terms.py",
        "planner/cost/terms.py",
        {
            "    offload_s: Numeric = field(": "    trial_s: Numeric = field(\n        metadata="
            '_term("update", "the trial"), default=1.0\n    )\n'
            '    """A term on trial."""\n    offload_s: Numeric = field(',
        },
        {
            ("explain", *QUESTION): "A term on trial.",
            ("explain", *QUESTION, "--json"): "trial_s",
        },
    ),
)


def print_addition(root: Path, addition: Addition) -> None:
    """Edits one file of a copy, and asks the commands of the copy."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("planner", "ppplan", "hardware_profiles", "recipes"):
            shutil.copytree(root / name, Path(folder, name), ignore=shutil.ignore_patterns("__p*"))
        text = (root / addition.template).read_text(encoding="utf-8")
        for old, new in addition.edits.items():
            if old not in text:
                raise SystemExit(f"{addition.template} has no {old!r} any more")
            text = text.replace(old, new)
        Path(folder, addition.path).write_text(text, encoding="utf-8")
        print(f"a new {addition.kind} touches 1 file, {addition.path}")
        for arguments, expected in addition.shown.items():
            ran = subprocess.run(
                [sys.executable, "-m", "planner", *arguments],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": folder},
                capture_output=True,
                text=True,
            )
            known = expected in ran.stdout + ran.stderr
            print(f"  {'known to' if known else 'NOT known to'} ppplan {' '.join(arguments)}")


def main(root: Path) -> None:
    planner = root / "planner"
    paths = sorted(planner.rglob("*.py"))
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    statements = sum(isinstance(node, ast.stmt) for node in nodes)
    dense = sum(isinstance(node, DENSE) for node in nodes)
    vague = Counter(name for node in nodes for name in bound(node) if name in VAGUE)
    wide = {path: count for path in python_files(root) if (count := too_wide(path))}

    print_rooms(planner, trees)
    print(f"lines over {COLUMNS} columns: {sum(wide.values())}")
    for path, count in wide.items():
        print(f"  {path.relative_to(root)}: {count}")
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
    print(f"planner/: {len(paths)} files, {lines:,} lines, {statements:,} statements")
    print(f"dense expressions a statement: {dense / statements:.3f} ({dense:,})")
    names = ", ".join(f"{name} {count}" for name, count in vague.most_common())
    print(f"vague names bound: {sum(vague.values()):,} ({names})")
    for addition in ADDITIONS:
        print_addition(root, addition)


def print_rooms(planner: Path, trees: dict[Path, ast.Module]) -> None:
    """Each room: its files, the arrows among its own folders and files, the rooms it imports."""
    arrows: dict[str, set[str]] = {}
    inside: dict[str, set[tuple[str, str]]] = {}
    files: Counter[str] = Counter()
    for path, tree in trees.items():
        own = parts(planner, path)
        files[own[0]] += 1
        for other in imported(planner, tree):
            if other[0] != own[0]:
                arrows.setdefault(own[0], set()).add(other[0])
            elif len(own) > 1 and len(other) > 1 and own[1] != other[1]:
                inside.setdefault(own[0], set()).add((own[1], other[1]))
    print(f"rooms: {len(files)}, arrows between them: {sum(map(len, arrows.values()))}")
    for room, count in sorted(files.items(), key=lambda item: -item[1]):
        if count > 1:
            places = {part for pair in inside.get(room, ()) for part in pair}
            arrows_inside = len(inside.get(room, ()))
            print(f"  {room}: {count} files, {len(places)} inner rooms, {arrows_inside} arrows")


def parts(planner: Path, path: Path) -> tuple[str, ...]:
    """`planner/cost/layer/moe.py` as (cost, layer, moe)."""
    return path.relative_to(planner).with_suffix("").parts


def imported(planner: Path, tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """Modules of planner that a file imports, anywhere in it, as `parts`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "planner":
            package = str(node.module).split(".")[1:]
            for alias in node.names:
                module = (*package, alias.name)
                is_module = planner.joinpath(*module).with_suffix(".py").exists()
                is_package = planner.joinpath(*module).is_dir()
                if is_module or is_package:
                    yield module
                elif package:
                    yield tuple(package)


def bound(node: ast.AST) -> Iterator[str]:
    """Names that a node binds."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef):
        yield node.name


def python_files(root: Path) -> list[Path]:
    """Files that people write by hand; test data and emitted files are left out."""
    folders = [root / name for name in ("planner", "ppplan", "tests", "docs")]
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    return sorted([*paths, *(root / "recipes").glob("*.py")])


def too_wide(path: Path) -> int:
    return sum(len(line) > COLUMNS for line in path.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2])
