"""The answer of `emit` as JSON."""

from __future__ import annotations

from typing import Any

from planner.answers import Emitted


def document(answer: Emitted) -> dict[str, Any]:
    """Paths when the files were written, else their texts; script_needed is None: the files run as
    they are.
    """
    return {
        "files": list(answer.files),
        "texts": {} if answer.files else dict(answer.texts),
        "script_needed": None,
    }
