"""Single commands of a script: builtins that change the shell, commands that start others, and what
is left to be looked at.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from planner.intake.bash import coreutils, slurm_header
from planner.intake.bash.arithmetic import arithmetic
from planner.intake.bash.conditions import Truth, tested
from planner.intake.bash.files import beside
from planner.intake.bash.state import (
    Command,
    State,
    assign,
    certain,
    child,
    environment,
    lookup,
    note,
    spend,
    unknown_text,
)
from planner.intake.bash.traced_text import (
    Piece,
    Text,
    computed,
    cut,
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
        state.work.commands.append(
            Command(words, {**environment(state), **given}, where, state.outer)
        )
    return True if known(printed) else None


def _printed(state: State, name: str, arguments: list[Text]) -> Text:
    """The output of a pure command; an UNKNOWN for any other."""
    if name in ("cat", "head") and arguments and (file := beside(state, arguments[-1])):
        content = (*file[1],)
        return content if name == "cat" else _pure(state, name, arguments[:-1], content)
    if name == "cat" and not arguments:
        return state.stdin
    if name == "echo" and arguments and not plain(arguments[0]).startswith("-"):
        return (*spaced(arguments), Piece("\n"))
    return _pure(state, name, arguments, state.stdin)


def _pure(state: State, name: str, arguments: list[Text], stdin: Text) -> Text:
    if name in coreutils.PURE or name in ("pwd", "realpath", "readlink"):
        texts = [*arguments, stdin]
        first = next((piece for text in texts for piece in text if piece.unknown), None)
        if first:
            return (first,)
        here = lookup(state, "PWD")
        folder = state.path.parent if not isinstance(here, tuple) else type(state.path)(plain(here))
        made = coreutils.output(
            name, [plain(argument) for argument in arguments], plain(stdin), folder
        )
        if made is not None:
            return computed(made, tuple(piece for text in texts for piece in text))
    return unknown_text("$", unset=False)


def _call(state: State, name: str, arguments: list[Text]) -> Truth:
    spend(state, 1000)
    src, body = state.functions[name]
    before = state.positional
    state.positional, state.depth = arguments, state.depth + 1
    status = state.work.follow(state, src, [body], 0)
    state.positional, state.depth = before, state.depth - 1
    if state.branches == 0 and state.ended:
        state.ended = False
    return status


def _started(state: State, words: list[Text], given: dict[str, Text], where: str) -> bool:
    """Follows a script, a string or a heredoc that the command hands to another shell."""
    names = [plain(word) for word in words]
    inner = child(
        state, outer=(*state.outer, words), depth=state.depth + 1, branches=0, out=state.out
    )
    for name, value in given.items():
        assign(inner, name, value)
        inner.exported[name] = None
    for index, name in enumerate(names):
        if posixpath.basename(name) in SHELLS and (at := _string(names, index + 1)):
            inner.positional = words[at + 2 :]
            inner.outer = (*state.outer, words[:index]) if index else state.outer
            return _text(inner, words[at])
    if names[0] == "sbatch" and (wrapped := _wrapped(words, names)):
        return _text(inner, wrapped)
    if posixpath.basename(names[0]) in REMOTE and len(names) > 2 and " " in names[-1].strip():
        return _text(inner, words[-1])
    at = next((index for index, name in enumerate(names) if SCRIPT.match(name)), -1)
    if (
        at >= 0
        and (at == 0 or posixpath.basename(names[0]) in STARTERS)
        and not any(name.endswith(".py") for name in names[:at])
    ):
        return _script(inner, state, words, at, where)
    if state.stdin and posixpath.basename(names[0]) in ("sbatch", *SHELLS, "ssh"):
        slurm_header.header(inner, source(state.stdin))
        return _text(inner, state.stdin)
    return False


def _string(names: list[str], at: int) -> int:
    """The index of the string after `-c`; 0 without one."""
    while at < len(names) and names[at].startswith("-"):
        if re.fullmatch(r"-[a-z]*c", names[at]):
            return at + 1 if at + 1 < len(names) else 0
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
    file = beside(state, words[at])
    if file is None:
        return False
    path = state.path.parent / file[0]
    if any(plain(word) == "" for word in words[:at]) or state.depth > 8:
        note(state, f"{where}: {file[0]} is not followed further")
        return False
    inner.file, inner.positional = path.name, words[at + 1 :]
    inner.outer = (*state.outer, words[:at]) if at else state.outer
    inner.variables = {
        name: value
        for name, value in inner.variables.items()
        if name in inner.exported or name == "PWD"
    }
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
    file = beside(state, words[0])
    if file is None:
        if not state.silent:
            note(
                state, f"{where}: {shown(words[0])[:100]} is not beside the script and is not read"
            )
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
    count = (
        int(plain(words[0]))
        if words and plain(words[0]).isdigit() and len(plain(words[0])) < 6
        else 1
    )
    state.positional = state.positional[count:]
    return True


def _read(state: State, words: list[Text], where: str) -> Truth:
    names = [plain(word) for word in words]
    skipped = {at + 1 for at, name in enumerate(names) if re.fullmatch(r"-[a-z]*[dnNptui]", name)}
    targets = [
        name
        for at, name in enumerate(names)
        if at not in skipped and re.fullmatch(r"[A-Za-z_]\w*", name)
    ]
    if targets and state.stdin:
        assign(state, targets[-1], state.stdin)
    return True


def _let(state: State, words: list[Text], where: str) -> Truth:
    for word in words:
        arithmetic(state, word)
    return True


def _cd(state: State, words: list[Text], where: str) -> Truth:
    stated = certain(words[-1]) if words else None
    here = lookup(state, "PWD")
    if stated and known(words[-1]) and isinstance(here, tuple) and stated != "-":
        state.variables["PWD"] = computed(posixpath.normpath(posixpath.join(plain(here), stated)))
    elif words:
        state.variables["PWD"] = words[-1]
    return True


def _exit(state: State, words: list[Text], where: str) -> Truth:
    if state.branches == 0:
        state.ended = True
    elif not state.silent:
        note(state, f"{where}: the script would end here; read on as if it did not")
    return True


def _test(state: State, words: list[Text], where: str) -> Truth:
    return tested(state, words, where)


def _pushed(state: State, words: list[Text], where: str) -> Truth:
    return True


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
    "test": _test,
    "true": lambda *_: True,
    ":": lambda *_: True,
    "false": lambda *_: False,
    "pushd": _pushed,
    "popd": _pushed,
    "trap": _pushed,
    "shopt": _pushed,
    "ulimit": _pushed,
    "wait": _pushed,
    "module": _pushed,
    "clear": _pushed,
}
