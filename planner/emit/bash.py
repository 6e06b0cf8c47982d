"""Blocks of a launch file in bash: comments, variables, flags in arrays, the call."""

from __future__ import annotations

from importlib import resources
from textwrap import wrap

from planner.emit.program import Flag, Program, quoted

_WIDTH = 118


def head(program: Program, directives: tuple[str, ...], use: tuple[str, ...]) -> list[str]:
    """From the first line to where errors stop the script: what runs, how to use it, what may be
    set.
    """
    lines = [
        *program.comments,
        "",
        *use,
        *(f"  {name:<14} {meaning}" for name, _, meaning in program.variables),
    ]
    return [
        "#!/usr/bin/env bash",
        *directives,
        *(f"# {line}".rstrip() for line in lines),
        "set -euo pipefail",
    ]


def variables(program: Program, more: tuple[tuple[str, str], ...], files: str = "") -> list[str]:
    """Assignments that keep what the caller set; files is bash text: the folder of the files beside
    the script, if there are any.
    """
    own = (("FILES", files),) if program.files else ()
    plain = [(name, default) for name, default, _ in program.variables]
    return [f"{name}=${{{name}:-{default}}}" for name, default in (*more, *own, *plain)]


def array(name: str, flags: tuple[Flag, ...]) -> list[str]:
    """A bash array of flags, several a line: `NAME_FLAGS=(`, lines, `)`."""
    lines, line = [f"{name}_FLAGS=("], " "
    for word in map(quoted, flags):
        if len(line) + 1 + len(word) > _WIDTH and line.strip():
            lines.append(line)
            line = " "
        line += f" {word}"
    return [*lines, line, ")"]


def flags(program: Program) -> list[str]:
    """Every group as an array, then what fills the array of the data."""
    arrays = [line for name, group in program.groups for line in array(name, group)]
    return [*arrays, *program.data_switch.splitlines()]


def command(program: Program, start: list[str]) -> list[str]:
    """The call, one line a group of flags; what the user adds comes last and wins."""
    expansions = [
        f'"${{{name}_FLAGS[@]}}"' for name in (*(name for name, _ in program.groups), "DATA")
    ]
    module = program.entry.startswith("--module ")
    entry = program.entry if module else f'"{program.entry}"'
    parts = [*start, entry, *expansions, '"$@"']
    return [" \\\n  ".join(parts)]


def text(*blocks: list[str]) -> str:
    """Blocks with an empty line between; empty ones are left out."""
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def exports(program: Program) -> list[str]:
    return [f"export {name}={value}" for name, value in program.environment]


VERSIONS = "installed_versions.py"


def versions(program: Program) -> list[str]:
    """A warning on stderr for each package that is here in another version; it stops nothing."""
    if not program.versions:
        return []
    words = wrap(" ".join(f"{name}={version}" for name, version in program.versions), _WIDTH - 4)
    script = resources.files("planner.emit.scripts").joinpath(VERSIONS).read_text(encoding="utf-8")
    return [
        "# Versions that the plan was computed for: what is installed in another one is said.",
        'python3 - "${MEGATRON_PATH:-}" \\',
        *(f"  {line} \\" for line in words),
        "  >&2 <<'PYTHON' || true",
        *script.splitlines(),
        "PYTHON",
    ]
