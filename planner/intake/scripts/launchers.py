"""The program that a command starts, through torchrun, deepspeed, accelerate, srun, mpirun, ray and
the like, and what these are told.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.intake.bash import slurm_header
from planner.intake.bash.state import Command
from planner.intake.bash.traced_text import EMPTY, Text, cut, plain, source

TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "torchrun.py")
SUBCOMMANDS = (
    "megatron",
    "swift",
    "llamafactory-cli",
    "axolotl",
    "xtuner",
    "trl",
    "tune",
    "colossalai",
    "nemo",
)
"""Programs that are told by their first word what to do."""
MPI = ("mpirun", "mpiexec", "orterun")
PYTHON = re.compile(r"(?:.*/)?(?:i?python[\d.]*|\$\{?PYTHON\w*\}?)$")
PROGRAM = re.compile(r"(?:.*/)?[\w.{}$-]+\.py$")
SWITCHES = {
    "torchrun": (
        "--standalone",
        "-m",
        "--module",
        "--no-python",
        "--run-path",
        "--virtual-local-rank",
        "--use-env",
    ),
    "deepspeed": (
        "--module",
        "--no-python",
        "--no-local-rank",
        "--no-ssh",
        "--no-ssh-check",
        "--force-multi",
        "--save-pid",
        "--bind-cores-to-rank",
        "-q",
        "--quiet",
        "--elastic-training",
    ),
    "accelerate": (
        "-q",
        "--quiet",
        "--cpu",
        "--multi-gpu",
        "--tpu",
        "--ipex",
        "--enable-cpu-affinity",
        "--dynamo-use-fullgraph",
        "--dynamo-use-dynamic",
        "--use-deepspeed",
        "--use-fsdp",
        "--use-megatron-lm",
        "--use-xpu",
        "--same-network",
        "-m",
        "--module",
        "--no-python",
        "--debug",
        "--use-parallelism-config",
        "--downcast-bf16",
        "--use-mps-device",
        "--use-tpu",
    ),
}
"""Options without a value. Source: the parsers of [pytorch] torch/distributed/run.py, [deepspeed]
launcher/runner.py, [accelerate] commands/launch.py."""
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class TrainingCommand:
    """A training program, its own arguments, and what started it."""

    command: Command
    program: str
    """Path of a script, name of a module, or `megatron sft`."""
    arguments: list[Text]
    word: Text
    """Of the program."""
    options: dict[str, dict[str, Text]] = field(default_factory=dict)
    """By launcher (torchrun, deepspeed, accelerate, slurm, mpirun, ray): its options, dashes
    within.
    """
    words: dict[str, Text] = field(default_factory=dict)
    """By launcher: its own word."""
    environment: dict[str, Text] = field(default_factory=dict)


@dataclass(slots=True)
class _Walk:
    command: Command
    names: list[str]
    options: dict[str, dict[str, Text]]
    words: dict[str, Text]
    environment: dict[str, Text]


def training_command(command: Command) -> TrainingCommand | None:
    """The training program of a command; None where it starts none."""
    names = [plain(word) for word in command.words]
    walk = _Walk(command, names, {}, {}, dict(command.environment))
    slurm = slurm_header.facts(command.outer)
    if slurm:
        walk.options["slurm"], walk.words["slurm"] = slurm, command.outer[-1][0]
    for outer in command.outer:
        if outer and posixpath.basename(plain(outer[0])) in MPI:
            walk.options["mpirun"], walk.words["mpirun"] = _loose(outer[1:]), outer[0]
    start = _program(walk, 0, 0)
    if start is None:
        return None
    at, program, arguments = start
    for launcher, given in walk.options.items():
        walk.options[launcher] = {key.replace("_", "-"): value for key, value in given.items()}
    return TrainingCommand(
        command, program, arguments, command.words[at], walk.options, walk.words, walk.environment
    )


def _program(walk: _Walk, at: int, depth: int) -> tuple[int, str, list[Text]] | None:
    """(index of its word, name, arguments) of the program, looked for from `at` on."""
    names, words = walk.names, walk.command.words
    while at < len(names) and _assign(walk, at):
        at += 1
    if at >= len(names) or depth > 12:
        return None
    base = posixpath.basename(names[at])
    if PYTHON.match(names[at]):
        return _python(walk, at, depth)
    if base in TORCHRUN:
        return _through(walk, "torchrun", at, depth)
    if base in ("deepspeed", "deepspeed.py", "ds"):
        return _through(walk, "deepspeed", at, depth)
    if base == "accelerate" and "launch" in names[at + 1 : at + 2]:
        return _through(walk, "accelerate", at + 1, depth)
    if base == "accelerate-launch":
        return _through(walk, "accelerate", at, depth)
    if base in SUBCOMMANDS:
        action = [name for name in names[at + 1 : at + 2] if not name.startswith("-")]
        last = at + len(action)
        return last, " ".join([base, *action]), words[last + 1 :]
    if PROGRAM.match(names[at]):
        return at, names[at], words[at + 1 :]
    return _wrapped(walk, base, at, depth)


def _wrapped(walk: _Walk, base: str, at: int, depth: int) -> tuple[int, str, list[Text]] | None:
    """Through a command that starts another, whose options are told apart only where they
    matter.
    """
    names, words = walk.names, walk.command.words
    if base == "ray" and "--" in names[at:]:
        bar = names.index("--", at)
        walk.options["ray"], walk.words["ray"] = _loose(words[at + 1 : bar]), words[at]
        return _program(walk, bar + 1, depth + 1)
    following = at + 1
    while following < len(names) and not _starts(names, following):
        following += 1
    if following >= len(names):
        return None
    if base in ("srun", "salloc", "sbatch"):
        slurm = walk.options.setdefault("slurm", {})
        slurm |= slurm_header.options(words[at + 1 : following])
        walk.words.setdefault("slurm", words[at])
    elif base in (*MPI, "horovodrun"):
        walk.options["mpirun"], walk.words["mpirun"] = _loose(words[at + 1 : following]), words[at]
        for index in range(at + 1, following - 1):
            if names[index] == "-x":
                _assign(walk, index + 1)
    return _program(walk, following, depth + 1)


def _starts(names: list[str], at: int) -> bool:
    base = posixpath.basename(names[at])
    if (
        base in ("deepspeed", *SUBCOMMANDS)
        and names[at - 1].startswith("-")
        and "=" not in names[at - 1]
    ):
        return False
    known = (
        *TORCHRUN,
        "deepspeed",
        "accelerate",
        "accelerate-launch",
        "srun",
        "mpirun",
        "mpiexec",
        "ray",
        *SUBCOMMANDS,
    )
    return bool(base in known or PYTHON.match(names[at]) or PROGRAM.match(names[at]))


def _assign(walk: _Walk, at: int) -> bool:
    """Takes `NAME=value` into the environment; False where the word is something else."""
    name = walk.names[at].partition("=")[0]
    if not _ASSIGNED.match(walk.names[at]):
        return False
    walk.environment[name] = _behind_equals(walk.command.words[at])
    return True


def _behind_equals(word: Text) -> Text:
    text = plain(word)
    return cut(source(word), text.index("=") + 1, len(text))


def _loose(words: Sequence[Text]) -> dict[str, Text]:
    """Options of a command whose grammar is not followed: each with the word after it."""
    out: dict[str, Text] = {}
    for word, following in zip(words, (*words[1:], EMPTY), strict=True):
        name, equals, _ = plain(word).partition("=")
        if name.startswith("-"):
            out[name] = _behind_equals(word) if equals else following
    return out


def _python(walk: _Walk, at: int, depth: int) -> tuple[int, str, list[Text]] | None:
    names = walk.names
    at += 1
    while at < len(names) and names[at].startswith("-"):
        if names[at] == "-c" or names[at] == "-":
            return None
        if names[at] == "-m" and at + 1 < len(names):
            return _module(walk, at + 1, depth)
        at += 2 if names[at] in ("-X", "-W") else 1
    if at >= len(names):
        return None
    if posixpath.basename(names[at]) in ("torchrun", "deepspeed", "accelerate"):
        return _program(walk, at, depth + 1)
    return at, names[at], walk.command.words[at + 1 :]


def _module(walk: _Walk, at: int, depth: int) -> tuple[int, str, list[Text]] | None:
    name = walk.names[at]
    if name in TORCHRUN:
        return _through(walk, "torchrun", at, depth)
    if name == "accelerate.commands.launch":
        return _through(walk, "accelerate", at, depth)
    if name in ("deepspeed.launcher.runner", "deepspeed"):
        return _through(walk, "deepspeed", at, depth)
    return at, name, walk.command.words[at + 1 :]


def _through(walk: _Walk, launcher: str, at: int, depth: int) -> tuple[int, str, list[Text]] | None:
    """A launcher whose options are known: the first word that is none of them is the program."""
    names, words = walk.names, walk.command.words
    walk.words[launcher] = words[at]
    options = walk.options.setdefault(launcher, {})
    at += 1
    module = False
    while at < len(names) and names[at].startswith("-") and names[at] != "--":
        option, equals, _ = names[at].partition("=")
        if option.startswith("--"):
            option = option.replace("_", "-")
        module |= option in ("-m", "--module")
        if equals:
            options[option] = _behind_equals(words[at])
        elif option in SWITCHES[launcher]:
            options[option] = ()
        elif at + 1 < len(names):
            at += 1
            options[option] = words[at]
        at += 1
    at += at < len(names) and names[at] == "--"
    if at >= len(names):
        return None
    if (
        not module
        and not PROGRAM.match(names[at])
        and depth < 6
        and (_starts(names, at) or posixpath.basename(names[at]) in SUBCOMMANDS)
    ):
        return _program(walk, at, depth + 1)
    return at, names[at], words[at + 1 :]


def option(options: dict[str, Text], name: str) -> Text | None:
    """An option as argparse finds it: by its name, or by the beginning of it where that is all that
    was written.
    """
    if name in options:
        return options[name]
    short = [
        key for key in options if len(key) > 4 and key.startswith("--") and name.startswith(key)
    ]
    return options[short[0]] if len(short) == 1 else None
