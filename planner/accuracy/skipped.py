"""Why a measured run cannot be predicted."""

from __future__ import annotations


class Skipped(Exception):
    """The reason, in words that rows of one kind share: they are counted."""
