"""The answer of `calibrate` as JSON."""

from __future__ import annotations

from typing import Any

from planner.calibrate.calibrate import Calibration


def document(answer: Calibration) -> dict[str, Any]:
    """A calibration that failed has no profile, and `reason` says why."""
    return {
        "profile": answer.profile.name if answer.profile else None,
        "file": answer.file or None,
        "measurements": answer.measurements,
        "fit_error": answer.fit_error,
        "reason": answer.outcome.reason or None,
    }
