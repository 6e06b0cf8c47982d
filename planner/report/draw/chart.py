"""What a page draws with plotly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure of plotly as plain data: {"data": [...], "layout": {...}}."""

    figure: dict[str, Any]
    caption: str
    height: int = 360
