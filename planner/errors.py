"""Errors: one clear message (what must hold, what we got, the nearest way out), never a
traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

MAX_NAMES = 20
"""Names that a message lists."""


class InputError(Exception):
    """The input is wrong; the command line prints the message and ends with exit code 2."""


def unknown(kind: str, name: object, known: Iterable[str], like: str = "") -> InputError:
    """Unknown names answer with the nearest ones; like: the name as those are written."""
    import difflib

    names = sorted(known)
    typed = like or str(name).lower()
    begun = [known for known in names if known.startswith(typed)][:MAX_NAMES] if typed else []
    near = begun or difflib.get_close_matches(typed, names, n=3, cutoff=0.5)
    listed = ", ".join(names[:MAX_NAMES]) + (
        f", and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    )
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {listed}"
    return InputError(f"{kind} must be a known name, but got {str(name)[:80]!r}; {hint}")


def reason(fault: Exception) -> str:
    """Why a text cannot be parsed. Of a number of thousands of digits Python says only how
    programmers would have it read.
    """
    if "integer string conversion" in str(fault):
        return f"it states a whole number of more than {sys.get_int_max_str_digits():,} digits"
    return str(fault)


def check_installed(verb: str, *modules: str, extra: str = "tune") -> None:
    """InputError when a verb needs modules that this Python has not; asked before anything imports
    them.
    """
    from importlib.util import find_spec

    absent = [module for module in modules if find_spec(module) is None]
    if absent:
        raise InputError(
            f"{verb} must find {' and '.join(absent)}, but this Python has none; pip install"
            f" 'ppplan[{extra}]' (in a checkout: pip install '.[{extra}]')"
        )
