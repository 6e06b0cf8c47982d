"""The documentation site builds without a warning, holds what the code declares, and loads nothing
from elsewhere.
"""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from importlib import import_module
from pathlib import Path

import pytest

from planner.cli import COMMANDS
from planner.references import REFERENCES
from planner.rules.table import BY_FRAMEWORK
from planner.schedules.table import SCHEDULES

ROOT = Path(__file__).parent.parent
LOADS = re.compile(
    r"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=[\"']?(?:https?:)?//"
    r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*\bhref=[\"']?(?:https?:)?//"
    r"|@import|url\([\"']?(?:https?:)?//"
)
"""A resource that a page or a style sheet takes from another host."""

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a dead link or anchor is a warning, which --strict makes an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def words(page: Path) -> str:
    """What a reader sees: text without tags, spaces made one."""
    return " ".join(unescape(re.sub(r"<[^>]+>", "", page.read_text())).split())


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".svg")]
    assert len(files) > 40
    assert not [str(path.relative_to(site)) for path in files if LOADS.search(path.read_text())]


def test_every_formula_of_the_cost_model_is_shown(site: Path) -> None:
    shown = "".join(words(page) for page in (site / "reference" / "formulas").rglob("*.html"))
    missing = []
    for path in (ROOT / "planner" / "cost").rglob("*.py"):
        for formula in re.findall(r"^ +Formula: (.+)$", path.read_text(), re.MULTILINE):
            if " ".join(formula.split()) not in shown:
                missing.append(f"{path.name}: {formula}")
    assert not missing


def test_every_reference_is_shown(site: Path) -> None:
    shown = words(site / "reference" / "sources" / "index.html")
    assert not [key for key, text in REFERENCES.items() if text not in shown]


@pytest.mark.parametrize("framework", BY_FRAMEWORK)
def test_every_rule_is_shown(site: Path, framework: str) -> None:
    shown = words(site / "reference" / "rules" / framework / "index.html")
    assert not [rule.name for rule in BY_FRAMEWORK[framework] if rule.name not in shown]


def test_every_schedule_is_drawn(site: Path) -> None:
    assert {
        "gpipe",
        "1f1b",
        "interleaved",
        "zb-h1",
        "zbv",
        "v-half",
        "dualpipe",
    } <= SCHEDULES.keys()
    for name in SCHEDULES:
        page = (site / "reference" / "schedules" / name / "index.html").read_text()
        assert f"{name}.svg" in page
        assert (site / "reference" / "schedules" / f"{name}.svg").read_text().count("<rect") > 4


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_described(site: Path, command: str) -> None:
    """The first sentence of its docstring and the help it has of its own."""
    says = getattr(import_module(f"planner.cli.{command}"), command).__doc__
    shown = words(site / "reference" / "commands" / command / "index.html")
    assert " ".join(says.partition("Example:")[0].split()).replace("`", "") in shown


def test_links_of_texts_lead_somewhere() -> None:
    """Files and headings that the repository's own texts link to."""
    dead = []
    for text in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "hardware_profiles/README.md"):
        path = ROOT / text
        if not path.exists():
            continue
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
            file, _, anchor = target.partition("#")
            other = (path.parent / file) if file else path
            if "://" in target:
                continue
            if not other.exists() or (anchor and anchor not in anchors(other)):
                dead.append(f"{text}: {target}")
    assert not dead


def anchors(page: Path) -> set[str]:
    """Anchors of a Markdown file's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }
