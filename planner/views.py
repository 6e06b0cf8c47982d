"""What every answer shows of itself from Python: the JSON's names, the command's text, a table, a
piece of HTML. Each is made by planner.report when it is asked for, and not before.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class Views:
    """An answer of a verb."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The document that --json prints: its names and units, plain values."""
        made: dict[str, Any] = _report().document(self)
        return made

    def __str__(self) -> str:
        """What the command prints, on 100 columns."""
        return str(_report().text(self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: print it, or .to_dict()>"

    def _repr_html_(self) -> str | None:
        """The report's page without charts, for a notebook; None where there is no jinja2."""
        made: str | None = _report().fragment(self)
        return made


class TableViews(Views):
    """An answer that is a table too."""

    __slots__ = ()

    def to_frame(self) -> pd.DataFrame:
        """A pandas DataFrame with the JSON's names and units as columns (terms as `time.gemm_s`),
        schedules and the like by name.
        """
        made: pd.DataFrame = _report().frame(self)
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: print it, or .to_frame(), .to_dict()>"


def _report() -> Any:
    """By name: reports stand above the answers that they draw."""
    return import_module("planner.report.views")
