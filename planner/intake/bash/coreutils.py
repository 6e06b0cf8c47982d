"""Commands whose output follows from their arguments alone: computed here, never run."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

MAX_OUTPUT = 100_000
"""Characters of an output."""


def output(name: str, arguments: list[str], stdin: str, folder: Path) -> str | None:
    """What the command prints; None for one that is not pure, or in a form that is not known
    here.
    """
    made = PURE.get(name)
    if made is None:
        return str(folder) + "\n" if name == "pwd" else _path(name, arguments, folder)
    try:
        found = made(arguments, stdin)
    except (ValueError, IndexError, ZeroDivisionError, OverflowError, re.error):
        return None
    return found if found is None or len(found) <= MAX_OUTPUT else None


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
    ends = "" if any("n" in argument for argument in arguments[:flags]) else "\n"
    return " ".join(arguments[flags:]) + ends


def _printf(arguments: list[str], stdin: str) -> str | None:
    form, rest = arguments[0], list(arguments[1:])
    out = ""
    for _ in range(max(len(rest), 1)):
        used = len(rest)
        out += re.sub(r"%(0?\d*)([sdi%])", lambda found: _formatted(found, rest), form)
        if not rest or used == len(rest):
            break
    return (
        out.replace("\\n", "\n").replace("\\t", "\t") if "%" not in re.sub(r"%%", "", out) else None
    )


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
    base = posixpath.basename(names[0].rstrip("/"))
    return (base.removesuffix(names[1]) if len(names) > 1 else base) + "\n"


def _dirname(arguments: list[str], stdin: str) -> str:
    names = [argument for argument in arguments if argument != "--"]
    return (posixpath.dirname(names[0].rstrip("/")) or ".") + "\n"


def _seq(arguments: list[str], stdin: str) -> str | None:
    separator = "\n"
    if arguments[0] == "-s":
        separator, arguments = arguments[1], arguments[2:]
    ends = [int(argument) for argument in arguments]
    first, step, last = (
        (1, 1, ends[0])
        if len(ends) == 1
        else (ends[0], 1, ends[1])
        if len(ends) == 2
        else (ends[0], ends[1], ends[2])
    )
    numbers = range(first, last + (1 if step > 0 else -1), step)
    return separator.join(map(str, numbers)) + "\n" if len(numbers) < MAX_OUTPUT // 10 else None


def _expr(arguments: list[str], stdin: str) -> str | None:
    if len(arguments) != 3 or arguments[1] not in ("+", "-", "*", "/", "%"):
        return None
    a, b = int(arguments[0]), int(arguments[2])
    quotient = (
        abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if arguments[1] in ("/", "%") else 0
    )
    results = {"+": a + b, "-": a - b, "*": a * b, "/": quotient, "%": a - quotient * b}
    return f"{results[arguments[1]]}\n"


def _wc(arguments: list[str], stdin: str) -> str | None:
    counts = {"-l": stdin.count("\n"), "-w": len(stdin.split()), "-c": len(stdin)}
    return f"{counts[arguments[0]]}\n" if len(arguments) == 1 and arguments[0] in counts else None


def _tr(arguments: list[str], stdin: str) -> str | None:
    named = {
        "\\n": "\n",
        "\\t": "\t",
        "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "[:lower:]": "abcdefghijklmnopqrstuvwxyz",
        "A-Z": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "a-z": "abcdefghijklmnopqrstuvwxyz",
    }
    sets = [named.get(argument, argument) for argument in arguments]
    if len(sets) == 2 and sets[0] == "-d":
        return "".join(char for char in stdin if char not in sets[1])
    if len(sets) != 2 or not sets[1] or any("-" in one[1:-1] or "[" in one for one in sets):
        return None
    target = sets[1].ljust(len(sets[0]), sets[1][-1])
    return stdin.translate(str.maketrans(sets[0], target[: len(sets[0])]))


def _cut(arguments: list[str], stdin: str) -> str | None:
    text = " ".join(arguments)
    match = re.fullmatch(r"-d ?(?P<by>.) -f ?(?P<field>\d+)", text)
    if not match:
        return None
    field = int(match["field"])
    split = [one.split(match["by"]) for one in stdin.splitlines()]
    return "\n".join(one[field - 1] if len(one) >= field else "" for one in split) + "\n"


def _head(arguments: list[str], stdin: str) -> str | None:
    match = re.fullmatch(r"-n ?(\d+)|-(\d+)", " ".join(arguments))
    count = int(match[1] or match[2]) if match else 10 if not arguments else None
    return None if count is None else "".join(stdin.splitlines(keepends=True)[:count])


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
