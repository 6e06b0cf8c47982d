"""An answer on the terminal: JSON for programs, or text for a person on 100 columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import typer

WIDTH = 100


def show(
    answer: Any,
    as_document: Callable[[Any], dict[str, Any]],
    view: str | Callable[[Any], Any],
    as_json: bool,
) -> None:
    """Prints one answer; `view` makes the text, or names the function of report.text that does.
    rich is imported for text alone.
    """
    if as_json:
        print_json(as_document(answer))
        return
    if callable(view):
        print_text(view(answer))
        return
    from planner.report.text import recommend

    print_text(getattr(recommend, view)(answer))


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


def write_report(path: str | None, module: str, function: str, answer: Any) -> None:
    """Writes the page that a function of planner.report.html makes of the answer; nothing without a
    path.
    """
    from importlib import import_module
    from pathlib import Path

    from planner.files import write_all
    from planner.report.html.page import html

    if path is None:
        return
    made = html(getattr(import_module(f"planner.report.html.{module}"), function)(answer))
    write_all(Path(path).parent, {Path(path).name: made})
    typer.echo(f"report: {path}", err=True)
