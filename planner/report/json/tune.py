"""The answer of `tune` as JSON."""

from __future__ import annotations

from typing import Any

from planner.tune.answer.refined_plan import named
from planner.tune.tune import Tuned


def document(answer: Tuned) -> dict[str, Any]:
    overlay = answer.overlay
    fitted = None
    if overlay is not None:
        fitted = {
            "name": overlay.name,
            "factors": overlay.factors,
            "trials": overlay.trials,
            "error_before": overlay.error_before,
            "error_after": overlay.error_after,
        }
    return {
        "plan": answer.plan,
        "trials": [named(row) for row in answer.rows],
        "best": None if answer.best is None else named(answer.best),
        "speedup_over_first": answer.speedup_over_first,
        "storage": answer.storage,
        "files": list(answer.files),
        "study": answer.study,
        "interrupted": answer.interrupted,
        "median_abs_error": answer.error,
        "runner": answer.bench.runner,
        "launcher": answer.bench.launcher,
        "device": answer.bench.device,
        "devices": answer.bench.devices,
        "candidates": answer.candidates,
        "certain_oom": answer.certain_oom,
        "overlay": fitted,
        "unsupported_switches": list(answer.unsupported),
        "overlay_reason": answer.overlay_reason or None,
    }
