"""The measured run of a log that `check` read, as a row that `validate` reads."""

from __future__ import annotations

from planner.advice.findings import Checked
from planner.errors import InputError
from planner.intake.logs.csv_row import text


def table(answer: Checked) -> str:
    """The measured run under its header. Raises InputError where nothing was measured, or where
    the layout is not known.
    """
    if answer.measured is None:
        raise InputError(
            f"--csv must have a log, but {answer.file} is none and has none beside it under its"
            " name (.log, .out)"
        )
    if answer.guessed:
        raise InputError(
            f"--csv must have the layout, but {answer.file} prints no arguments; name the script"
            " with the log beside it"
        )
    return text([answer.measured["row"]])
