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
from planner.intake.bash.traced_text import Text, concatenated, known, places, plain, shown, stretch
from planner.intake.frameworks.megatron_flags import flags
from planner.intake.frameworks.vocabulary import Named, make_reading, named
from planner.intake.reading import APPEND, Edit, Reading, Unresolved, Value
from planner.intake.scripts import argparse_like, classify, configs
from planner.intake.scripts.argparse_like import Parsed, leaf
from planner.intake.scripts.in_yaml import Inside
from planner.intake.scripts.launchers import TrainingCommand, option, training_command
from planner.intake.scripts.world_size import runtime_variables, world
from planner.specs.versions import OWN, PACKAGES

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
ACTORS = {
    "launch.nodes": "actor_num_nodes",
    "launch.gpus_per_node": "actor_num_gpus_per_node",
}
MAX_CANDIDATES = 500
MAX_VARIABLES = 200
MAX_VARIABLE = 300
"""Characters of a variable of the environment that is kept: the longer ones are command lines."""


def read(path: Path, text: str, sets: Mapping[str, str], inside: Inside | None = None) -> Reading:
    """What a script would start, of which only the text is looked at.

    sets: variables and positional parameters (`1`) that hold whatever the script says. inside: the
    script that the file holds, where it is a job's YAML. Raises InputError where no command of it
    starts a training, or where it cannot be read within its limits.
    """
    if inside is None:
        work = follow(path, text, sets)
    else:
        work = follow(path, text, sets, inside.script, inside.files, inside.variables)
    command, parsed, notes = chosen(work, path)
    kind = classify.kind(command, parsed)
    if kind in ("huggingface", "torchtitan"):
        parsed = argparse_like.parse(command.arguments, {}, work.texts)
    launched = _launched(command, parsed, work, path)
    out = configs.reading(kind, command, parsed, work, path, launched, sets)
    unused = _unused(sets, work, out)
    all_notes = dict.fromkeys((*unused, *notes, *out.notes, *parsed.notes, *work.notes))
    stated = _version(out.framework, work)
    out = replace(
        out,
        framework_version=stated or out.framework_version,
        notes=tuple(all_notes),
        undecided=work.undecided,
        version_stated=stated is not None,
    )
    return finished(out, command, work)


def _version(framework: str, work: Work) -> str | None:
    """The framework's version that a script of ours warns about; None where it names none."""
    stated = re.compile(rf"{PACKAGES[OWN[framework]][0]}=(\d[\w.]*)")
    matches = [stated.fullmatch(plain(word)) for command in work.commands for word in command.words]
    return next((match[1] for match in matches if match), None)


def _unused(sets: Mapping[str, str], work: Work, out: Reading) -> list[str]:
    """A note for each name of `sets` that can only be a variable, and that the script never
    reads: names of arguments have small letters.
    """
    return [
        f"nothing uses --set {name[:60]}: the script reads no variable of that name"
        for name in sets
        if name == name.upper() and name not in work.used and name not in out.values
    ]


def chosen(work: Work, path: Path) -> tuple[TrainingCommand, Parsed, list[str]]:
    """The training among all commands, its arguments, and a note where there were several."""
    started = [training for training in map(training_command, work.commands) if training]
    candidates: list[tuple[float, TrainingCommand, Parsed]] = []
    for training in started[:MAX_CANDIDATES]:
        arguments = argparse_like.parse(training.arguments, flags(), work.texts)
        candidates.append((_score(training, arguments), training, arguments))
    best = max(candidates, key=lambda candidate: candidate[0], default=None)
    if best is None or best[0] < 1:
        raise InputError(_nothing(work, path))
    _, command, parsed = best
    others = [other[1] for other in candidates if other is not best and other[0] >= 3]
    return command, parsed, [_several(command, others)] if others else []


def _score(command: TrainingCommand, parsed: Parsed) -> float:
    points = float(len(parsed.flags)) + classify.hugging(parsed)
    points += 2 * len(classify.overrides(parsed)) + 3 * classify.by_recipe(parsed)
    points += 2 * bool(command.options.keys() - {"slurm"}) + 3 * bool(configs.files(parsed))
    if UNLIKELY.search(posixpath.basename(command.program)):
        points -= 20
    if command.program.split(" ")[0] in ("megatron", "swift", "llamafactory-cli", "nemo"):
        points += 3
    return points


def _several(command: TrainingCommand, others: Sequence[TrainingCommand]) -> str:
    where = command.command.where
    if {(other.program, other.command.where) for other in others} == {(command.program, where)}:
        return f"{where}: the loop starts {len(others) + 1} runs; the first is read"
    names = [f"{other.program[-40:]} ({other.command.where})" for other in others[:4]]
    listed = ", ".join(dict.fromkeys(names))
    return f"{where}: {command.program[-60:]} is read; the script also starts {listed}"


def _nothing(work: Work, path: Path) -> str:
    names = [" ".join(shown(command.words[0]).split())[:40] for command in work.commands]
    listed = ", ".join(list(dict.fromkeys(names))[:8])
    seen = f"only {listed}" if names else "none"
    return (
        f"{path.name} must start a training (torchrun, python -m torch.distributed.run, deepspeed,"
        " srun, accelerate, mpirun, ray, megatron or swift with its flags), but among its commands"
        f" is {seen}"
    )


def _launched(command: TrainingCommand, parsed: Parsed, work: Work, path: Path) -> Reading:
    """The launcher's counts and the environment, as a reading to lay over the training's own."""
    host = option(command.options.get("deepspeed", {}), "--hostfile")
    counted = world(command, work.texts, configs.text_beside(work, path, host) if host else None)
    names, unresolved = counted.names, counted.unresolved
    by_flags = _actors(parsed)
    if by_flags:
        names, unresolved = by_flags, []
    variables = []
    for name, value in (command.environment | runtime_variables(command)).items():
        if known(value) and len(plain(value)) <= MAX_VARIABLE:
            variables.append(_variable(name, value, work))
    names = [*names, *variables[:MAX_VARIABLES]]
    return make_reading(
        str(path), "megatron", "megatron", names, unresolved=unresolved, notes=counted.notes
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
        text = texts.get(place.file, "")
        before = text[max(place.start - 1000, 0) : max(place.start, 0)]
        setting = re.search(rf"(?:export[ \t]+)?\b{re.escape(name)}=([\"']?)$", before)
        if setting is None or not text.startswith(setting[1], place.end):
            continue
        start, end = place.start - len(setting[0]), place.end + len(setting[1])
        alone = re.compile(r"[ \t]*(?:[;\n#]|$)").match(text, end) is not None
        if setting[0].startswith("export") and not alone:
            start = text.index(name, start)
        return Edit(place.file, start, end)
    return None


def _actors(parsed: Parsed) -> list[Named]:
    """Nodes and GPUs of the training in flags of the program itself, as reinforcement learning on
    ray has them.
    """
    flags_by_name = {flag.path[0]: flag for flag in parsed.leaves}
    out = []
    for name, spelling in ACTORS.items():
        flag = flags_by_name.get(spelling)
        if flag is None or not isinstance(flag.value, int):
            return []
        out.append(named(name, flag))
    return out


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
    answered = set(values)
    if "launch.gpus" in values:
        answered |= {"gpus", "launch.nodes", "launch.gpus_per_node"}
    # questions of the launch come first; of a name that is asked for twice the last counts
    unresolved: dict[str, Unresolved] = {}
    for question in sorted(out.unresolved, key=lambda question: "--gpus" not in question.why):
        if question.name not in answered:
            unresolved[question.name] = question
    edits = dict(out.edits)
    place = _place_for_flags(out, command, work)
    if place is not None:
        edits[APPEND] = place
    return replace(out, values=values, unresolved=tuple(unresolved.values()), edits=edits)


def _place_for_flags(out: Reading, training: TrainingCommand, work: Work) -> Edit | None:
    """Behind a flag that no other command of the script gets, else behind the program's word."""
    anchors = [out.removals[name][0] for name in ANCHORS if out.removals.get(name)]
    if out.kind in ("nemo", "bridge"):
        anchors = []
        for name, cuts in out.removals.items():
            if not name.startswith(("env.", "launch.")):
                anchors += [edit for edit in cuts if edit.file == out.file]
        anchors = sorted(anchors, key=lambda edit: edit.start)[:1]
    others = set()
    for command in work.commands:
        if command.where == training.command.where:
            continue
        for piece in concatenated(command.words):
            others |= {(place.file, place.start) for place in places(piece)}
    for edit in anchors:
        shared = any(edit.file == file and edit.start <= at < edit.end for file, at in others)
        if not shared:
            return Edit(edit.file, edit.end, edit.end)
    program = stretch([training.word], work.texts)
    return Edit(program.file, program.end, program.end) if program else None
