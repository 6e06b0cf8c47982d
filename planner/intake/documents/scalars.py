"""The text of a config, and what its words mean: sizes bounded, nothing constructed."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, TypeGuard

from planner.errors import InputError
from planner.intake.plain_file import first_bytes

MAX_BYTES = 1_000_000
"""A config that people write has a few kB."""
_MAX_DIGITS = 40

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_INT = re.compile(r"[-+]?[0-9][0-9_]*$")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?$")
_SPECIAL = {
    ".inf": math.inf,
    "+.inf": math.inf,
    "-.inf": -math.inf,
    ".nan": math.nan,
    "nan": math.nan,
    "inf": math.inf,
    "infinity": math.inf,
    "-infinity": -math.inf,
    "-inf": -math.inf,
}


def text_of(path: str | Path) -> str:
    """The file's text, line ends as they are. InputError: no file, too large, or not text."""
    raw = first_bytes(path, MAX_BYTES + 1)
    name = Path(path).name[:80]
    if len(raw) > MAX_BYTES:
        raise InputError(f"{name} must be a config of at most {MAX_BYTES:,} bytes, but is larger")
    if b"\0" in raw:
        raise InputError(f"{name} must be text, but holds NUL bytes")
    return raw.decode("utf-8", errors="replace")


def is_int(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_positive_int(value: Any) -> TypeGuard[int]:
    """Whether a value can be a count of something: a whole number above 0."""
    return is_int(value) and value > 0


def plain(word: str) -> Any:
    """What an unquoted word means: null, bool, int, float or text.

    Wider than YAML 1.1 where frameworks are: `1e9` and `1e-5` are numbers (argparse, OmegaConf and
    Primus read them so), `True` is a bool. Numbers of base 60 and octal ones are not read: in a
    training config `1:30` and `0123` are text and a decimal number.
    """
    if word in _NULLS:
        return None
    lower = word.lower()
    if lower in _BOOLS:
        return _BOOLS[lower]
    if lower in _SPECIAL:
        return _SPECIAL[lower]
    if len(word) <= _MAX_DIGITS and word[0] in "+-.0123456789":
        if _INT.match(word):
            return int(word.replace("_", ""))
        if _FLOAT.match(word):
            return float(word.replace("_", ""))
    return word
