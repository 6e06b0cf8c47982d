"""Tests of the house itself: floors, sizes, start-up, references, versions."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import planner
from planner.cli import COMMANDS
from planner.references import REFERENCES
from planner.report.formulas import Formula, keys, module_formulas
from tests.bench.house import imported, parts

ROOT = Path(__file__).parent.parent
PLANNER = ROOT / "planner"
FILES = sorted(PLANNER.rglob("*.py"))

FLOOR = {
    "cli": 7,
    "__main__": 8,
    "api": 6,
    "report": 6,
    "answers": 5,
    "known": 5,
    "tune": 5,
    "calibrate": 5,
    "accuracy": 5,
    "advice": 5,
    "search": 4,
    "switch_gains": 4,
    "schedule_options": 4,
    "numerics": 4,
    "pipeline": 4,
    "interpret": 4,
    "launch": 4,
    "plan_files": 4,
    "estimate": 3,
    "enumerate": 3,
    "reasons": 3,
    "intake": 3,
    "cost": 2,
    "rules": 2,
    "emit": 2,
    "specs": 1,
    "layout": 1,
    "simulator": 1,
    "schedules": 1,
    "units": 0,
    "errors": 0,
    "references": 0,
    "numeric": 0,
    "action": 0,
    "files": 0,
    "views": 0,
    "__init__": -1,
}
SIDEWAYS = {
    ("schedules", "simulator"),
    ("layout", "schedules"),
    ("specs", "layout"),
    ("enumerate", "estimate"),
    ("action", "errors"),
    ("files", "errors"),
}
"""An automatic schedule may call the simulator; a layout's codes of schedules come from their
table; a document may hold a layout; layers are dealt to stages by an estimate's times; whoever
reads input raises errors.
"""
HEAVY = {"pandas", "torch", "optuna", "plotly", "scipy", "matplotlib"}
LEFT_TO_DO = r"\b(TODO|FIXME|XXX)\b"


def room(path: Path) -> str:
    return path.relative_to(PLANNER).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Rooms of planner that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (
                name.name.split(".")[1] for name in node.names if name.name.startswith("planner.")
            )
        elif isinstance(node, ast.ImportFrom) and node.module == "planner":
            yield from (
                "__init__" if name.name.startswith("__") else name.name for name in node.names
            )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("planner."):
            yield str(node.module).split(".")[1]


def test_every_room_has_a_floor() -> None:
    unknown = {room(path) for path in FILES} - FLOOR.keys()
    assert not unknown, f"give these rooms a floor, here and in the README: {sorted(unknown)}"


def test_every_import_goes_down() -> None:
    pairs = {(room(path), other) for path in FILES for other in imports(path)}
    climbs = [
        f"{a} (floor {FLOOR[a]}) imports {b} (floor {FLOOR[b]})"
        for a, b in sorted(pairs)
        if a != b and FLOOR[b] >= FLOOR[a] and (a, b) not in SIDEWAYS
    ]
    assert not climbs, "move the shared part down a floor, or pass it in:\n" + "\n".join(climbs)


@pytest.mark.parametrize("depth", [2, 9], ids=["folders", "files"])
def test_no_circle_inside_a_room(depth: int) -> None:
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for path in FILES:
        own = parts(PLANNER, path)[:depth]
        others = {other[:depth] for other in imported(PLANNER, ast.parse(path.read_text()))}
        graph[own] = graph.get(own, set()) | (others - {own})
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_programs_for_maintainers_are_apart_from_the_library() -> None:
    library = [path for path in FILES if "maintain" not in path.parts]
    users = [
        path
        for path in library
        if any("maintain" in other for other in imported(PLANNER, ast.parse(path.read_text())))
    ]
    doors = [PLANNER / "accuracy" / "bars.py", PLANNER / "accuracy" / "table.py"]
    assert [path for path in users if path not in doors] == []


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    low = [
        path for path in FILES if FLOOR[room(path)] < 5 and "scripts" not in path.parts
    ]  # which are written out, never imported
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in low
        for name in at_top(path)
        if name.split(".")[0] in HEAVY
    ]
    assert not found


def at_top(path: Path) -> Iterator[str]:
    """Modules that a file imports as soon as it is imported itself."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


DOORS = {PLANNER / "accuracy" / "bars.py", PLANNER / "accuracy" / "table.py"}
"""Names under which maintainers' programs are run; no other module needs them."""


def test_the_library_does_without_the_programs_of_maintainers() -> None:
    programs = re.compile(r"\.maintain\b|planner\.accuracy(\.| import )(bars|table)\b")
    needed = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in FILES
        if "maintain" not in path.parts and path not in DOORS
        for line in path.read_text().splitlines()
        if line.lstrip().startswith(("import ", "from ")) and programs.search(line)
    ]
    assert not needed


def test_nothing_is_left_to_do() -> None:
    left = [path for path in FILES if re.search(LEFT_TO_DO, path.read_text())]
    assert not left


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_starts_fast(command: str) -> None:
    arguments = [command, "--help"] if command else ["--help"]
    program = (
        f"import sys; from planner.cli import code; code({arguments}); print('\\nloaded',"
        " *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.rsplit("\nloaded ", 1)[1].split())
    assert "Usage" in done.stdout
    assert not loaded & {"numpy", "pandas", "optuna", "torch", "yaml", "scipy", "plotly"}


def formulas() -> list[Formula]:
    """What the functions of the cost model and of the schedules say of themselves."""
    every: list[Formula] = []
    for path in FILES:
        if room(path) in ("cost", "schedules") and path.name != "__init__.py":
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            every += module_formulas(import_module(name))
    return every


def test_formulas_say_source_and_assumptions() -> None:
    assert len(formulas()) > 40
    silent = [
        f"{formula.room}.{formula.name}"
        for formula in formulas()
        if not (formula.formula and formula.source and formula.assumes)
    ]
    assert not silent, f"a formula needs Formula, Source and Assumes: {silent}"


ORIGIN = re.compile(r"\b(fit|fitted|derived) \w+|\bplanner(\.\w+)+")
"""Of a formula that no reference states: a fit, a derivation, or the part of planner that says it.
"""


def test_sources_name_where_a_formula_is_from() -> None:
    vague = []
    for formula in formulas():
        origin = ORIGIN.search(formula.source)
        if keys(formula.source):
            continue
        if origin is None:
            vague.append(f"{formula.room}.{formula.name}: {formula.source}")
        elif origin[0].startswith("planner"):
            import_module(origin[0])
    assert not vague, (
        "a Source must hold a [key] of references.py, a module of planner, or 'fit to ...' or"
        f" 'derived ...': {vague}"
    )


def test_references_both_ways() -> None:
    folders = (PLANNER, ROOT / "hardware_profiles")
    files = [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in (".py", ".yaml", ".md")
    ]
    texts = [path.read_text() for path in files if path.name != "references.py"]
    sources = [
        line.split("Source:", 1)[1]
        for text in texts
        for line in text.splitlines()
        if line.strip().startswith("Source:")
    ]
    cited = {key for source in sources for key in keys(source)}
    assert cited <= REFERENCES.keys(), (
        f"cited, but not in references.py: {sorted(cited - REFERENCES.keys())}"
    )
    silent = [
        key
        for key in REFERENCES
        if not any(re.search(rf"\b{re.escape(key)}\b", text, re.IGNORECASE) for text in texts)
    ]
    assert not silent, f"in references.py, but nobody cites them: {silent}"


def test_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert planner.__version__ == project["version"]
    assert f"version: {planner.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_constraints_pin_what_the_tests_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {
        re.split(r"[><=]", one)[0].lower()
        for one in (*project["dependencies"], *project["optional-dependencies"]["test"])
    }
    pinned = {
        line.split("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    assert needed <= pinned
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text()
