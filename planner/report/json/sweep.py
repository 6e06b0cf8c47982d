"""The table of `explain --sweep` as JSON."""

from __future__ import annotations

from typing import Any

from planner.answers import Sweep, SweepRow
from planner.cost.named import named
from planner.report.json.parts import breaches, question


def document(answer: Sweep) -> dict[str, Any]:
    return {"question": question(answer.recipe), "sweep": [_row(row) for row in answer.rows]}


def _row(row: SweepRow) -> dict[str, Any]:
    return {
        "words": dict(row.words),
        "layout": row.layout.named() if row.layout else None,
        "estimate": named(row.estimate) if row.estimate else None,
        "breaches": breaches(row.breaches),
    }
