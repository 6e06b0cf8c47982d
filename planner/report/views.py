"""Which functions draw which answer."""

from __future__ import annotations

import io
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 100
"""Columns of text where no terminal says how many."""


VERBS = {
    "answers.Recommendation": "recommend",
    "answers.Explanation": "explain",
    "answers.Sweep": "sweep",
    "answers.Emitted": "emit",
    "answers.Known": "listing",
    "advice.comparison.Comparison": "compare",
    "advice.findings.Checked": "check",
    "accuracy.validate.Validation": "validate",
    "calibrate.calibrate.Calibration": "calibrate",
    "tune.tune.Tuned": "tune",
    "launch.capabilities.Diagnosis": "doctor",
    "pipeline.timelines.SimulatedSchedule": "simulate",
    "pipeline.timelines.ScheduleComparison": "simulate",
    "pipeline.fewest_microbatches.FewestMicrobatches": "simulate",
    "pipeline.answer.ServedAnswer": "simulate",
}
"""Of each kind of answer the verb that gives it: the module of its text, document and page."""
WITHOUT_PAGE = ("emit", "listing", "doctor")


def document(answer: object) -> dict[str, Any]:
    """The document that --json prints."""
    made: dict[str, Any] = _module("json", answer).document(answer)
    return made


def text(answer: object) -> str:
    """What the command prints, formulas left out."""
    from rich.console import Console

    verb = _verb(answer)
    if verb == "emit":
        parts = answer.files or answer.texts.values()  # type: ignore[attr-defined]
        return "\n".join(parts).rstrip("\n")
    words: dict[str, Any] = {}
    if verb == "explain":
        words["formulas"] = False
    if verb == "simulate":
        words["width"] = WIDTH
    console = Console(
        file=io.StringIO(), width=WIDTH, highlight=False, markup=False, emoji=False, no_color=True
    )
    with console.capture() as captured:
        console.print(_module("text", answer).text(answer, **words))
    return captured.get().rstrip("\n")


def fragment(answer: object) -> str | None:
    """The page of --report as a piece of HTML without charts; None without a page, or without
    jinja2.
    """
    if _verb(answer) in WITHOUT_PAGE or find_spec("jinja2") is None:
        return None
    from planner.report.html.page import fragment

    return fragment(_module("html", answer).page(answer))


def frame(answer: object) -> pd.DataFrame:
    """The answer as a table."""
    from planner.report import frames

    made: pd.DataFrame = getattr(frames, _verb(answer))(answer)
    return made


def _verb(answer: object) -> str:
    kind = type(answer)
    return VERBS[f"{kind.__module__.removeprefix('planner.')}.{kind.__qualname__}"]


def _module(kind: str, answer: object) -> Any:
    return import_module(f"planner.report.{kind}.{_verb(answer)}")
