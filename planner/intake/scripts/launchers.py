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
from planner.intake.bash.traced_text import Text, cut, plain, source

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
    told: dict[str, dict[str, Text]] = field(default_factory=dict)
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
    told: dict[str, dict[str, Text]]
    words: dict[str, Text]
    environment: dict[str, Text]


def training_command(command: Command) -> TrainingCommand | None:
    """The training program of a command; None where it starts none."""
    slurm = slurm_header.facts(command.outer)
    told = {"slurm": slurm} if slurm else {}
    words = {"slurm": command.outer[-1][0]} if slurm else {}
    for outer in command.outer:
        _outer(outer, told, words)
    walk = _Walk(
        command, [plain(word) for word in command.words], told, words, dict(command.environment)
    )
    found = _program(walk, 0, 0)
    if found is None:
        return None
    at, program, arguments = found
    walk.told = {
        name: {key.replace("_", "-"): value for key, value in one.items()}
        for name, one in walk.told.items()
    }
    return TrainingCommand(
        command, program, arguments, command.words[at], walk.told, walk.words, walk.environment
    )


def _outer(words: list[Text], told: dict[str, dict[str, Text]], mine: dict[str, Text]) -> None:
    base = posixpath.basename(plain(words[0])) if words else ""
    if base in ("mpirun", "mpiexec", "orterun"):
        told["mpirun"], mine["mpirun"] = _loose(words[1:]), words[0]


def _program(walk: _Walk, at: int, depth: int) -> tuple[int, str, list[Text]] | None:
    """(index of its word, name, arguments) of the program, looked for from `at` on."""
    names, words = walk.names, walk.command.words
    while at < len(names) and _ASSIGNED.match(names[at]) and "/" not in names[at].partition("=")[0]:
        name = names[at].partition("=")[0]
        walk.environment[name] = cut(source(words[at]), len(name) + 1, len(names[at]))
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
    if base in ("accelerate-launch",):
        return _through(walk, "accelerate", at, depth)
    if base in SUBCOMMANDS:
        following = at + 1 if at + 1 < len(names) and not names[at + 1].startswith("-") else at
        return (
            following,
            " ".join(names[at : following + 1]).replace(names[at], base, 1),
            words[following + 1 :],
        )
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
        walk.told["ray"], walk.words["ray"] = _loose(words[at + 1 : bar]), words[at]
        return _program(walk, bar + 1, depth + 1)
    following = next((one for one in range(at + 1, len(names)) if _starts(names, one)), None)
    if following is None:
        return None
    if base in ("srun", "salloc", "sbatch"):
        walk.told["slurm"] = {
            **walk.told.get("slurm", {}),
            **slurm_header.options(words[at + 1 : following]),
        }
        walk.words.setdefault("slurm", words[at])
    elif base in ("mpirun", "mpiexec", "orterun", "horovodrun"):
        walk.told["mpirun"], walk.words["mpirun"] = _loose(words[at + 1 : following]), words[at]
        _carried(walk, at + 1, following)
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
    return (
        base in known or PYTHON.match(names[at]) is not None or PROGRAM.match(names[at]) is not None
    )


def _carried(walk: _Walk, start: int, end: int) -> None:
    """mpirun -x NAME=value."""
    for at in range(start, end - 1):
        if walk.names[at] == "-x" and _ASSIGNED.match(walk.names[at + 1]):
            name = walk.names[at + 1].partition("=")[0]
            walk.environment[name] = cut(
                source(walk.command.words[at + 1]), len(name) + 1, len(walk.names[at + 1])
            )


def _loose(words: Sequence[Text]) -> dict[str, Text]:
    """Options of a command whose grammar is not followed: each with the word after it."""
    out: dict[str, Text] = {}
    names = [plain(word) for word in words]
    for at, name in enumerate(names):
        stated, equals, _ = name.partition("=")
        if name.startswith("-"):
            out[stated] = (
                cut(source(words[at]), len(stated) + 1, len(name))
                if equals
                else words[at + 1]
                if at + 1 < len(names)
                else ()
            )
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
    told = walk.told.setdefault(launcher, {})
    at += 1
    module = False
    while at < len(names) and names[at].startswith("-") and names[at] != "--":
        stated, equals, _ = names[at].partition("=")
        option = stated.replace("_", "-") if stated.startswith("--") else stated
        module |= option in ("-m", "--module")
        if equals:
            told[option] = cut(source(words[at]), len(stated) + 1, len(names[at]))
        elif option in SWITCHES[launcher]:
            told[option] = ()
        elif at + 1 < len(names):
            at += 1
            told[option] = words[at]
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


def option(told: dict[str, Text], name: str) -> Text | None:
    """An option as argparse finds it: by its name, or by the beginning of it where that is all that
    was written.
    """
    if name in told:
        return told[name]
    short = [key for key in told if len(key) > 4 and key.startswith("--") and name.startswith(key)]
    return told[short[0]] if len(short) == 1 else None
