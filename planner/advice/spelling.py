"""What a misspelt name was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

ALIKE = 0.9
"""Of 1: a letter or two in a flag of usual length."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that this one is nearly."""
    close = get_close_matches(name[:80], list(known), n=1, cutoff=ALIKE)
    return close[0] if close else None


def with_guesses(names: Iterable[str], known: Iterable[str]) -> str:
    """Names by comma, each with the one it was probably meant to be: `--sequence-paralel
    (--sequence-parallel?)`.
    """
    all_known = list(known)
    pairs = [(name, nearest(name, all_known)) for name in names]
    return ", ".join(f"{name} ({near}?)" if near else name for name, near in pairs)
