"""The answers of `models`, `clusters`, `schedules` and `stacks` as JSON."""

from __future__ import annotations

from typing import Any

from planner.answers import Known


def document(answer: Known) -> dict[str, Any]:
    """The document that was named, or all of a kind under that kind's name."""
    if answer.by_name:
        return dict(answer.documents[0])
    return {answer.kind: [dict(document) for document in answer.documents]}
