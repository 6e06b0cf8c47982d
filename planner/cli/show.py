"""An answer on the terminal: JSON for programs, or text for a person on 100 columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import typer

WIDTH = 100


def show(answer: Any, as_document: Callable[[Any], dict[str, Any]], view: str | Callable[[Any], Any], as_json: bool) -> None:
    """Prints one answer; `view` makes the text, or names the function of report.text that does. rich is imported for text alone."""
    if as_json:
        print_json(as_document(answer))
        return
    if callable(view):
        print_text(view(answer))
        return
    from planner.report import text

    print_text(getattr(text, view)(answer))


def print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, allow_nan=False))


def print_text(content: Any) -> None:
    """A rich renderable; 100 columns where stdout is no terminal. Written by us, so that a closed pipe is our matter, not rich's."""
    import sys

    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, soft_wrap=False)
    with console.capture() as captured:
        console.print(content)
    sys.stdout.write(captured.get())
