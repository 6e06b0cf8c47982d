"""Single commands of a script: builtins that change the shell, commands that start others, and what
is left to be looked at.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from planner.intake.bash import coreutils, slurm_header
from planner.intake.bash.arithmetic import arithmetic
from planner.intake.bash.conditions import Truth, tested
from planner.intake.bash.files import read_beside
from planner.intake.bash.state import (
    Command,
    State,
    assign,
    environment,
    lookup,
    note,
    spend,
    subshell,
    unknown_text,
)
from planner.intake.bash.traced_text import (
    Piece,
    Text,
    computed,
    concatenated,
    cut,
    first_unknown,
    known,
    plain,
    shown,
    source,
    spaced,
)

MAX_COMMANDS = 5_000
SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
REMOTE = ("ssh", "pdsh", "clush", "pssh")
STARTERS = (
    *SHELLS,
    "sbatch",
    "srun",
    "qsub",
    "bsub",
    "mpirun",
    "mpiexec",
    "sudo",
    "env",
    "timeout",
    "setsid",
    "nice",
    "stdbuf",
    "numactl",
    "docker",
    "singularity",
    "apptainer",
    "podman",
    "enroot",
    "nsys",
    "ncu",
    "ray",
    "xargs",
    "deepspeed",
    "torchrun",
    "accelerate",
    "flock",
    "screen",
    "tmux",
    "ssh",
    "pdsh",
)
"""Commands that run the script that they are given."""
SCRIPT = re.compile(r".+\.(sh|bash|slurm|sbatch|job|slrm)$")


def command(
    state: State,
    words: list[Text],
    given: dict[str, Text],
    where: str,
) -> Truth:
    """What a command does to the shell; its status where that is known."""
    if not words:
        for name, value in given.items():
            assign(state, name, value)
        return True
    name = plain(words[0])
    if name in state.functions and state.depth < 20:
        return _call(state, name, words[1:])
    if name in BUILTINS:
        return BUILTINS[name](state, words[1:], where)
    if name in ("exec", "command", "builtin", "time", "nohup", "then", "do") and len(words) > 1:
        return command(state, words[1:], given, where)
    if _started(state, words, given, where):
        return True
    printed = _printed(state, posixpath.basename(name), words[1:])
    state.out.append(printed)
    if not state.silent and name not in coreutils.PURE and len(state.work.commands) < MAX_COMMANDS:
        variables = environment(state) | given
        state.work.commands.append(Command(words, variables, where, state.outer))
    return True if known(printed) else None


def _printed(state: State, name: str, arguments: list[Text]) -> Text:
    """The output of a pure command; an UNKNOWN for any other."""
    if name in ("cat", "head") and arguments:
        file = read_beside(state, arguments[-1])
        if file:
            return file[1] if name == "cat" else _pure(state, name, arguments[:-1], file[1])
    if name == "cat" and not arguments:
        return state.stdin
    if name == "echo" and arguments and not plain(arguments[0]).startswith("-"):
        return (*spaced(arguments), Piece("\n"))
    return _pure(state, name, arguments, state.stdin)


def _pure(state: State, name: str, arguments: list[Text], stdin: Text) -> Text:
    if name not in (*coreutils.PURE, "pwd", "realpath", "readlink"):
        return unknown_text("$", unset=False)
    inputs = concatenated([*arguments, stdin])
    first = first_unknown(inputs)
    if first:
        return (first,)
    folder = state.path.parent
    here = lookup(state, "PWD")
    if isinstance(here, tuple):
        folder = Path(plain(here))
    names = [plain(argument) for argument in arguments]
    printed = coreutils.output(name, names, plain(stdin), folder)
    if printed is None:
        return unknown_text("$", unset=False)
    return computed(printed, inputs)


def _call(state: State, name: str, arguments: list[Text]) -> Truth:
    spend(state, 1000)
    src, body = state.functions[name]
    before = state.positional
    state.positional, state.depth = arguments, state.depth + 1
    status = state.work.follow(state, src, [body], 0)
    state.positional, state.depth = before, state.depth - 1
    if state.branches == 0:
        state.ended = False
    return status


def _started(state: State, words: list[Text], given: dict[str, Text], where: str) -> bool:
    """Follows a script, a string or a heredoc that the command hands to another shell."""
    names = [plain(word) for word in words]
    inner = subshell(
        state, outer=(*state.outer, words), depth=state.depth + 1, branches=0, out=state.out
    )
    for name, value in given.items():
        assign(inner, name, value)
        inner.exported[name] = None
    base = posixpath.basename(names[0])
    for index, name in enumerate(names):
        at = _string(names, index + 1) if posixpath.basename(name) in SHELLS else 0
        if at:
            inner.positional = words[at + 2 :]
            inner.outer = _behind(state, words[:index])
            return _text(inner, words[at])
    wrapped = _wrapped(words, names)
    if wrapped and names[0] == "sbatch":
        return _text(inner, wrapped)
    if base in REMOTE and len(names) > 2 and " " in names[-1].strip():
        return _text(inner, words[-1])
    script = _first_script(names)
    if script == 0 or (script is not None and base in STARTERS):
        return _script(inner, state, words, script, where)
    if state.stdin and base in ("sbatch", *SHELLS, "ssh"):
        slurm_header.header(inner, source(state.stdin))
        return _text(inner, state.stdin)
    return False


def _first_script(names: list[str]) -> int | None:
    """The index of the first shell script, unless a Python program stands before it."""
    for index, name in enumerate(names):
        if SCRIPT.match(name):
            return index
        if name.endswith(".py"):
            break
    return None


def _behind(state: State, words: list[Text]) -> tuple[list[Text], ...]:
    """The commands outside, with the words before a script or string as the innermost."""
    return (*state.outer, words) if words else state.outer


def _string(names: list[str], at: int) -> int:
    """The index of the string after `-c`; 0 without one."""
    while at < len(names) and names[at].startswith("-"):
        if re.fullmatch(r"-[a-z]*c", names[at]):
            return (at + 1) % len(names)
        at += 2 if names[at] in ("-o", "+o") else 1
    return 0


def _wrapped(words: list[Text], names: list[str]) -> Text | None:
    for index, name in enumerate(names):
        if name == "--wrap" and index + 1 < len(words):
            return words[index + 1]
        if name.startswith("--wrap="):
            return cut(source(words[index]), 7, len(name))
    return None


def _text(inner: State, text: Text) -> bool:
    inner.work.run(inner, source(text))
    return True


def _script(inner: State, state: State, words: list[Text], at: int, where: str) -> bool:
    file = read_beside(state, words[at])
    if file is None:
        return False
    path = state.path.parent / file[0]
    if any(plain(word) == "" for word in words[:at]) or state.depth > 8:
        note(state, f"{where}: {file[0]} is not followed further")
        return False
    inner.file, inner.positional = path.name, words[at + 1 :]
    inner.outer = _behind(state, words[:at])
    for name in list(inner.variables):
        if name not in inner.exported and name != "PWD":
            del inner.variables[name]
    src = source(file[1])
    slurm_header.header(inner, src)
    inner.work.run(inner, src)
    return True


def exported(state: State, word: Text, exports: bool) -> None:
    """`export NAME=value` and `export NAME` whose word had to be expanded first."""
    name, equals, _ = plain(word).partition("=")
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        return
    if equals:
        assign(state, name, cut(source(word), len(name) + 1, len(plain(word))))
    if exports:
        state.exported[name] = None


def _eval(state: State, words: list[Text], where: str) -> Truth:
    state.depth += 1
    status = state.work.run(state, source(spaced(words)))
    state.depth -= 1
    return status


def _source(state: State, words: list[Text], where: str) -> Truth:
    if not words:
        return None
    file = read_beside(state, words[0])
    if file is None:
        if not state.silent:
            name = shown(words[0])[:100]
            note(state, f"{where}: {name} is not beside the script and is not read")
        return None
    before = state.file, state.positional
    state.file, state.depth = file[0], state.depth + 1
    if len(words) > 1:
        state.positional = words[1:]
    if state.depth > 8:
        note(state, f"{where}: {file[0]} is sourced too deeply and is not followed further")
    else:
        state.work.run(state, source(file[1]))
    (state.file, state.positional), state.depth = before, state.depth - 1
    return True


def _set(state: State, words: list[Text], where: str) -> Truth:
    names = [plain(word) for word in words]
    if "--" in names:
        state.positional = words[names.index("--") + 1 :]
    elif names and not names[0].startswith(("-", "+")):
        state.positional = words
    return True


def _shift(state: State, words: list[Text], where: str) -> Truth:
    digits = plain(words[0]) if words else "1"
    if not digits.isdigit() or len(digits) > 5:
        digits = "1"
    state.positional = state.positional[int(digits) :]
    return True


def _read(state: State, words: list[Text], where: str) -> Truth:
    target = ""
    before = ""
    for word in words:
        name = plain(word)
        if re.fullmatch(r"[A-Za-z_]\w*", name) and not re.fullmatch(r"-[a-z]*[dnNptui]", before):
            target = name
        before = name
    if target and state.stdin:
        assign(state, target, state.stdin)
    return True


def _let(state: State, words: list[Text], where: str) -> Truth:
    for word in words:
        arithmetic(state, word)
    return True


def _cd(state: State, words: list[Text], where: str) -> Truth:
    if not words:
        return True
    folder = words[-1]
    here = lookup(state, "PWD")
    if known(folder) and isinstance(here, tuple) and plain(folder) not in ("", "-"):
        folder = computed(posixpath.normpath(posixpath.join(plain(here), plain(folder))))
    state.variables["PWD"] = folder
    return True


def _exit(state: State, words: list[Text], where: str) -> Truth:
    if state.branches == 0:
        state.ended = True
    elif not state.silent:
        note(state, f"{where}: the script would end here; read on as if it did not")
    return True


WITHOUT_EFFECT = (
    "true",
    ":",
    "pushd",
    "popd",
    "trap",
    "shopt",
    "ulimit",
    "wait",
    "module",
    "clear",
)
"""Succeed, and change nothing that a launch depends on."""
BUILTINS: dict[str, Callable[[State, list[Text], str], Truth]] = {
    "eval": _eval,
    "source": _source,
    ".": _source,
    "set": _set,
    "shift": _shift,
    "read": _read,
    "let": _let,
    "cd": _cd,
    "exit": _exit,
    "return": _exit,
    "test": lambda state, words, where: tested(state, words),
    "false": lambda *_: False,
    **dict.fromkeys(WITHOUT_EFFECT, lambda *_: True),
}
