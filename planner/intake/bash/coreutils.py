"""Commands whose output follows from their arguments alone: computed here, never run."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

MAX_OUTPUT = 100_000
"""Characters of an output."""


def output(name: str, arguments: list[str], stdin: str, folder: Path) -> str | None:
    """What the command prints; None for one that is not pure, or in a form that is not known
    here.
    """
    if name == "pwd":
        return f"{folder}\n"
    command = PURE.get(name)
    if command is None:
        return _path(name, arguments, folder)
    try:
        printed = command(arguments, stdin)
    except (ValueError, IndexError, ZeroDivisionError, OverflowError, re.error):
        return None
    if printed is None or len(printed) > MAX_OUTPUT:
        return None
    return printed


def _path(name: str, arguments: list[str], folder: Path) -> str | None:
    paths = [argument for argument in arguments if not argument.startswith("-")]
    if (
        name in ("realpath", "readlink")
        and len(paths) == 1
        and (name == "realpath" or len(arguments) > 1)
    ):
        return posixpath.normpath(posixpath.join(str(folder), paths[0])) + "\n"
    return None


def _echo(arguments: list[str], stdin: str) -> str:
    flags = 0
    while flags < len(arguments) and re.fullmatch(r"-[neE]+", arguments[flags]):
        flags += 1
    text = " ".join(arguments[flags:])
    return text if "n" in "".join(arguments[:flags]) else text + "\n"


def _printf(arguments: list[str], stdin: str) -> str | None:
    form, rest = arguments[0], list(arguments[1:])
    out = ""
    for _ in range(max(len(rest), 1)):
        used = len(rest)
        out += re.sub(r"%(0?\d*)([sdi%])", lambda match: _formatted(match, rest), form)
        if not rest or used == len(rest):
            break
    if "%" in out.replace("%%", ""):
        return None
    return out.replace("\\n", "\n").replace("\\t", "\t")


def _formatted(match: re.Match[str], rest: list[str]) -> str:
    if match[2] == "%":
        return "%"
    value = rest.pop(0) if rest else ""
    width = int(match[1] or 0)
    if width > 1000:
        raise ValueError
    return value.zfill(width) if match[1].startswith("0") else value.rjust(width)


def _basename(arguments: list[str], stdin: str) -> str:
    names = [argument for argument in arguments if argument != "--"]
    suffix = "".join(names[1:2])
    return posixpath.basename(names[0].rstrip("/")).removesuffix(suffix) + "\n"


def _dirname(arguments: list[str], stdin: str) -> str:
    names = [argument for argument in arguments if argument != "--"]
    return (posixpath.dirname(names[0].rstrip("/")) or ".") + "\n"


def _seq(arguments: list[str], stdin: str) -> str | None:
    separator = "\n"
    if arguments[0] == "-s":
        separator, arguments = arguments[1], arguments[2:]
    bounds = [int(argument) for argument in arguments]
    if len(bounds) == 1:
        bounds.insert(0, 1)
    if len(bounds) == 2:
        bounds.insert(1, 1)
    first, step, last = bounds
    numbers = range(first, last + (1 if step > 0 else -1), step)
    if len(numbers) >= MAX_OUTPUT // 10:
        return None
    return separator.join(map(str, numbers)) + "\n"


def _expr(arguments: list[str], stdin: str) -> str | None:
    if len(arguments) != 3 or arguments[1] not in ("+", "-", "*", "/", "%"):
        return None
    a, b = int(arguments[0]), int(arguments[2])
    quotient = math.trunc(Fraction(a, b)) if arguments[1] in ("/", "%") else 0
    results = {"+": a + b, "-": a - b, "*": a * b, "/": quotient, "%": a - quotient * b}
    return f"{results[arguments[1]]}\n"


def _wc(arguments: list[str], stdin: str) -> str | None:
    counts = {"-l": stdin.count("\n"), "-w": len(stdin.split()), "-c": len(stdin)}
    count = counts.get(" ".join(arguments))
    return None if count is None else f"{count}\n"


def _tr(arguments: list[str], stdin: str) -> str | None:
    named = {
        "\\n": "\n",
        "\\t": "\t",
        "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "[:lower:]": "abcdefghijklmnopqrstuvwxyz",
        "A-Z": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "a-z": "abcdefghijklmnopqrstuvwxyz",
    }
    before, after = [named.get(argument, argument) for argument in arguments]
    if before == "-d":
        return stdin.translate(dict.fromkeys(map(ord, after)))
    if not after or "[" in before + after or "-" in before[1:-1] + after[1:-1]:
        return None
    target = after.ljust(len(before), after[-1])
    return stdin.translate(str.maketrans(before, target[: len(before)]))


def _cut(arguments: list[str], stdin: str) -> str | None:
    text = " ".join(arguments)
    match = re.fullmatch(r"-d ?(?P<by>.) -f ?(?P<field>\d+)", text)
    if not match:
        return None
    end = int(match["field"])
    lines = stdin.splitlines()
    return "\n".join("".join(line.split(match["by"])[end - 1 : end]) for line in lines) + "\n"


def _head(arguments: list[str], stdin: str) -> str | None:
    match = re.fullmatch(r"-n ?(\d+)|-(\d+)", " ".join(arguments) or "-10")
    if not match:
        return None
    return "".join(stdin.splitlines(keepends=True)[: int(match[1] or match[2])])


def _xargs(arguments: list[str], stdin: str) -> str | None:
    return " ".join(stdin.split()) + "\n" if not arguments else None


def _cat(arguments: list[str], stdin: str) -> str | None:
    return stdin if not arguments or arguments == ["-"] else None


PURE: dict[str, Callable[[list[str], str], str | None]] = {
    "echo": _echo,
    "printf": _printf,
    "basename": _basename,
    "dirname": _dirname,
    "seq": _seq,
    "expr": _expr,
    "wc": _wc,
    "tr": _tr,
    "cut": _cut,
    "head": _head,
    "xargs": _xargs,
    "cat": _cat,
}
