"""A launch script as a Reading: the training command found among all, its arguments in the
framework's words.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.errors import InputError
from planner.intake.bash.interpreter import follow
from planner.intake.bash.state import Work
from planner.intake.bash.traced_text import Text, known, places, plain, shown, stretch
from planner.intake.frameworks.megatron_flags import flags
from planner.intake.frameworks.vocabulary import Named, make_reading
from planner.intake.reading import APPEND, Edit, Reading, Unresolved, Value
from planner.intake.scripts import argparse_like, classify, configs
from planner.intake.scripts.argparse_like import Parsed, leaf
from planner.intake.scripts.launchers import TrainingCommand, option, training_command
from planner.intake.scripts.world_size import runtime_variables, world

UNLIKELY = re.compile(
    r"convert|preprocess|prepare|tokeni[sz]e|download|merge|export|inspect|eval|generat|server|"
    r"serve|infer|load_ratios|checkpoint|test_|"
    r"setup\.py|upload|plot|report|pip\b"
)
ANCHORS = (
    "micro_batch_size",
    "global_batch_size",
    "seq_length",
    "num_layers",
    "hf.per_device_train_batch_size",
    "hf.model_name_or_path",
    "tensor_model_parallel_size",
    "model",
)
"""Further flags go behind the first of these that the command states."""
MAX_VARIABLES = 200
LONGEST = 300
"""Characters of a variable of the environment that is kept: the longer ones are command lines."""


def read(path: Path, text: str, sets: Mapping[str, str]) -> Reading:
    """What a script would start, of which only the text is looked at.

    sets: variables and positional parameters (`1`) that hold whatever the script says. Raises
    InputError where no command of it starts a training, or where it cannot be read within its
    limits.
    """
    work = follow(path, text, sets)
    found, parsed, notes = chosen(work, path)
    kind = classify.kind(found, parsed)
    if kind in ("huggingface", "torchtitan"):
        parsed = argparse_like.parse(found.arguments, {}, work.texts)
    launched = _launched(found, parsed, work, path)
    out = configs.reading(kind, found, parsed, work, path, launched, sets)
    return finished(
        replace(
            out,
            notes=tuple(dict.fromkeys((*notes, *out.notes, *parsed.notes, *work.notes))),
            undecided=work.undecided,
        ),
        found,
        work,
    )


def chosen(work: Work, path: Path) -> tuple[TrainingCommand, Parsed, list[str]]:
    """The training among all commands, its arguments, and a note where there were several."""
    started = [one for command in work.commands if (one := training_command(command)) is not None]
    parsed = [
        (command, argparse_like.parse(command.arguments, flags(), work.texts))
        for command in started[:500]
    ]
    scored = [
        (_score(parsed_command, said), -index)
        for index, (parsed_command, said) in enumerate(parsed)
    ]
    if not scored or max(scored)[0] < 1:
        raise InputError(_nothing(work, path))
    best = -max(scored)[1]
    found, said = parsed[best]
    others = [
        parsed_command
        for index, (parsed_command, _) in enumerate(parsed)
        if index != best and scored[index][0] >= 3
    ]
    return found, said, [_several(found, others)] if others else []


def _score(command: TrainingCommand, parsed: Parsed) -> float:
    points = (
        float(len(parsed.flags)) + classify.hugging(parsed) + 2 * len(classify.overrides(parsed))
    )
    points += 3 * classify.by_recipe(parsed)
    points += 2 * bool(command.told.keys() - {"slurm"}) + 3 * bool(configs.files(parsed))
    if UNLIKELY.search(posixpath.basename(command.program)):
        points -= 20
    return points + 3 * (
        command.program.split(" ")[0] in ("megatron", "swift", "llamafactory-cli", "nemo")
    )


def _several(command: TrainingCommand, others: Sequence[TrainingCommand]) -> str:
    same = sum(
        other.program == command.program and other.command.where == command.command.where
        for other in others
    )
    if same == len(others):
        return f"{command.command.where}: the loop starts {same + 1} runs; the first is read"
    names = ", ".join(
        dict.fromkeys(f"{other.program[-40:]} ({other.command.where})" for other in others[:4])
    )
    return (
        f"{command.command.where}: {command.program[-60:]} is read; the script also starts {names}"
    )


def _nothing(work: Work, path: Path) -> str:
    names = list(
        dict.fromkeys(" ".join(shown(command.words[0]).split())[:40] for command in work.commands)
    )[:8]
    seen = f"only {', '.join(names)}" if names else "none"
    return (
        f"{path.name} must start a training (torchrun, python -m torch.distributed.run, deepspeed,"
        " srun, accelerate, mpirun, ray, megatron or swift with its flags), but among its commands"
        f" is {seen}"
    )


def _launched(command: TrainingCommand, parsed: Parsed, work: Work, path: Path) -> Reading:
    """The launcher's counts and the environment, as a reading to lay over the training's own."""
    host = option(command.told.get("deepspeed", {}), "--hostfile")
    counted = world(command, work.texts, configs.text_beside(work, path, host) if host else None)
    by_flags = _actors(parsed)
    names = [*([] if by_flags else counted.names), *by_flags]
    opened = [] if by_flags else counted.unresolved
    variables = {**command.environment, **runtime_variables(command)}
    named = [
        (name, value)
        for name, value in variables.items()
        if known(value) and len(plain(value)) <= LONGEST
    ][:MAX_VARIABLES]
    names += [_variable(name, value, work) for name, value in named]
    return make_reading(
        str(path), "megatron", "megatron", names, unresolved=opened, notes=counted.notes
    )


def _variable(name: str, value: Text, work: Work) -> Named:
    stated = leaf((name,), plain(value), value, [value], work.texts, name)
    origin = stated.origin if stated.origin == "option" else "environment"
    removal = _assignment(name, value, work.texts)
    return Named(f"env.{name}", replace(stated, origin=origin, removal=removal), plain(value))


def _assignment(name: str, value: Text, texts: Mapping[str, str]) -> Edit | None:
    """`export NAME=value` or the `NAME=value` before a command, for a value of one piece."""
    if len(value) != 1:
        return None
    for place in places(value[0]):
        whole = texts.get(place.file, "")
        setting = re.compile(rf"(?:export[ \t]+)?\b{re.escape(name)}=([\"']?)$").search(
            whole[max(place.start - 1000, 0) : place.start] if place.start > 0 else ""
        )
        if setting is None or not whole.startswith(setting[1], place.end):
            continue
        start, end = place.start - len(setting[0]), place.end + len(setting[1])
        alone = re.compile(r"[ \t]*(?:[;\n#]|$)").match(whole, end) is not None
        if setting[0].startswith("export") and not alone:
            start = whole.index(name, start)
        return Edit(place.file, start, end)
    return None


def _actors(parsed: Parsed) -> list[Named]:
    """Nodes and GPUs of the training in flags of the program itself, as reinforcement learning on
    ray has them.
    """
    told = {one.path[0]: one for one in parsed.leaves}
    nodes, each = told.get("actor_num_nodes"), told.get("actor_num_gpus_per_node")
    if (
        nodes is None
        or each is None
        or not isinstance(nodes.value, int)
        or not isinstance(each.value, int)
    ):
        return []
    return [
        Named("launch.nodes", nodes, nodes.value),
        Named("launch.gpus_per_node", each, each.value),
    ]


def finished(out: Reading, command: TrainingCommand, work: Work) -> Reading:
    """With the product of nodes and GPUs, the place for further flags, and nothing open that is
    known.
    """
    values = dict(out.values)
    nodes, each = values.get("launch.nodes"), values.get("launch.gpus_per_node")
    if (
        nodes
        and each
        and "launch.gpus" not in values
        and isinstance(nodes.value, int)
        and isinstance(each.value, int)
    ):
        values["launch.gpus"] = Value(
            nodes.value * each.value, each.origin, f"{nodes.where} x {each.where}"
        )
    counts = (
        ("gpus", "launch.gpus", "launch.nodes", "launch.gpus_per_node")
        if "launch.gpus" in values
        else ()
    )
    waiting = [question for question in out.unresolved if question.name not in (*values, *counts)]
    first = sorted(waiting, key=lambda one: not _of_launch(one))
    edits = dict(out.edits)
    place = _place_for_flags(out, command, work)
    if place is not None:
        edits[APPEND] = place
    return replace(
        out, values=values, unresolved=tuple({one.name: one for one in first}.values()), edits=edits
    )


def _place_for_flags(out: Reading, found: TrainingCommand, work: Work) -> Edit | None:
    """Behind a flag that no other command of the script gets, else behind the program's word."""
    anchors = [out.removals[name][0] for name in ANCHORS if out.removals.get(name)]
    if out.kind in ("nemo", "bridge"):
        stated = [
            edit
            for name, cuts in out.removals.items()
            for edit in cuts
            if edit.file == out.file and not name.startswith(("env.", "launch."))
        ]
        anchors = sorted(stated, key=lambda edit: edit.start)[:1]
    others = {
        (place.file, place.start)
        for command in work.commands
        if command.where != found.command.where
        for word in command.words
        for piece in word
        for place in places(piece)
    }
    for edit in anchors:
        shared = any(edit.file == file and edit.start <= at < edit.end for file, at in others)
        if not shared:
            return Edit(edit.file, edit.end, edit.end)
    program = stretch([found.word], work.texts)
    return Edit(program.file, program.end, program.end) if program else None


def _of_launch(question: Unresolved) -> bool:
    return "--gpus" in question.why
