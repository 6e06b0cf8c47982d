"""Every layout worth asking about, as one batch of columns."""

from __future__ import annotations

from planner.enumerate.product import layouts

__all__ = ["layouts"]
