"""An answer on the terminal: JSON for programs, or text for a person on 100 columns."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import typer

WIDTH = 100


def show(verb: str, answer: Any, as_json: bool, **words: Any) -> None:
    """Prints the answer of a verb: the document that planner.report.json makes of it, or the text
    of planner.report.text. words: what the text depends on beside the answer.
    """
    if as_json:
        print_json(import_module(f"planner.report.json.{verb}").document(answer))
    else:
        print_text(import_module(f"planner.report.text.{verb}").text(answer, **words))


def print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, allow_nan=False))


def print_text(content: Any) -> None:
    """A rich renderable; 100 columns where stdout is no terminal. Written by us, so that a closed
    pipe is our matter, not rich's.
    """
    import sys

    from rich.console import Console

    # Our texts hold brackets and colons of their own: pip install '.[tune]' is no markup.
    console = Console(
        width=None if sys.stdout.isatty() else WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )
    with console.capture() as captured:
        console.print(content)
    sys.stdout.write(captured.get())


def check_report(path: str | None) -> None:
    """Before the work: a report is an HTML file in a folder that can be written. Raises
    InputError.
    """
    from pathlib import Path

    from planner.errors import InputError
    from planner.files import check_folder

    if path is None:
        return
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--report must be a file that ends in .html, but got {path[:80]}")
    check_folder(Path(path).parent)


def write_report(verb: str, answer: Any, path: str | None) -> None:
    """Writes the page that planner.report.html makes of the answer of a verb; nothing without a
    path.
    """
    from pathlib import Path

    from planner.files import write_folder
    from planner.report.html.page import html

    if path is None:
        return
    page = html(import_module(f"planner.report.html.{verb}").page(answer))
    write_folder(Path(path).parent, {Path(path).name: page})
    typer.echo(f"report: {path}", err=True)
