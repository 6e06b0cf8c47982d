"""The answer of `validate` as JSON."""

from __future__ import annotations

import math
from typing import Any

from planner.accuracy.validate import Validation


def document(answer: Validation) -> dict[str, Any]:
    """Figures that no row has are null."""
    return {
        "rows": len(answer.rows),
        "predicted": answer.predicted,
        "skipped": answer.skipped,
        "seconds": answer.seconds,
        "overall": _plain(answer.overall),
        "groups": _plain(answer.groups),
    }


def _plain(value: Any) -> Any:
    """JSON has no infinities and no NaN."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
