"""A report page: sections of text, tables and charts, as one HTML file that opens without a
network.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from planner import __version__
from planner.errors import InputError
from planner.report.draw.chart import Chart


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of texts; numbers stand to the right, below 600 pixels each row becomes a card."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    """Columns from the left that are words."""
    strong: tuple[int, ...] = ()
    """Rows in bold."""


@dataclass(frozen=True, slots=True)
class More:
    """What a click opens: formulas, sources, long tables; not drawn where there is nothing."""

    summary: str
    lines: tuple[tuple[str, str], ...] = ()
    """Term and words."""
    grid: Grid | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """One heading and what stands below it, in this order; not drawn where there is nothing."""

    title: str
    lines: tuple[str, ...] = ()
    grid: Grid | None = None
    charts: tuple[Chart, ...] = ()
    more: tuple[More, ...] = ()
    alert: bool = False
    """Lines that must not be overlooked."""


@dataclass(frozen=True, slots=True)
class Page:
    """The whole report; the lead is what a reader in a hurry takes away."""

    title: str
    lead: tuple[str, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()
    """Few large numbers: value with its unit, what it is."""
    sections: tuple[Section, ...] = field(default=())


def html(page: Page) -> str:
    """One self-contained document. Charts need plotly (its JavaScript is written into the file) and
    the template jinja2.
    """
    charts = any(section.charts for section in page.sections)
    return _rendered("page.html.j2", page, plotly_js() if charts else "")


def fragment(page: Page) -> str:
    """A piece of HTML for a notebook: the page without charts, and without the sections that hold
    nothing else or are all behind clicks.
    """
    sections = []
    for section in page.sections:
        if section.lines or section.grid or (section.charts and section.more):
            sections.append(replace(section, charts=()))
    return _rendered("fragment.html.j2", replace(page, sections=tuple(sections)), "")


def _rendered(name: str, page: Page, script: str) -> str:
    jinja2 = _needed("jinja2")
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    template = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).get_template(name)
    return str(template.render(page=page, version=__version__, script=script, data=_data))


def _data(chart: Chart) -> str:
    """The figure as JSON that may stand inside a script element."""
    text = json.dumps(chart.figure, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def plotly_js() -> str:
    """plotly.js as the installed plotly ships it; the package itself is not imported, which takes a
    second.
    """
    from importlib.util import find_spec

    plotly = find_spec("plotly")
    if plotly is None or not plotly.submodule_search_locations:
        raise _missing("plotly")
    script = Path(plotly.submodule_search_locations[0], "package_data", "plotly.min.js")
    return script.read_text(encoding="utf-8")


def _needed(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise _missing(name) from None


def _missing(name: str) -> InputError:
    return InputError(
        f"a report needs {name}, but it is not installed; pip install 'ppplan[report]', or ask"
        " without --report"
    )
