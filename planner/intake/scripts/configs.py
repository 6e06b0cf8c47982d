"""A command line given to its framework's reader, with the configurations that it names: beside it,
or written by the script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from planner.errors import InputError
from planner.intake.bash.state import Work
from planner.intake.bash.traced_text import UNKNOWN, Piece, Text, cut, known, plain, shown, source
from planner.intake.documents import scalars
from planner.intake.documents.tree import Leaf, leaves
from planner.intake.frameworks import companions, torchtitan_python
from planner.intake.frameworks import megatron_flags as table
from planner.intake.frameworks.nemo_recipes import SPELLED
from planner.intake.frameworks.vocabulary import make_reading, merged, named
from planner.intake.reading import Edit, Reading, Unresolved
from planner.intake.scripts.argparse_like import Parsed, leaf
from planner.intake.scripts.classify import overrides
from planner.intake.scripts.launchers import TrainingCommand, option

_CONFIG = re.compile(r".+\.(ya?ml|json|toml)$")
NAMED = (
    "config",
    "config_file",
    "job.config_file",
    "yaml_cfg",
    "conf",
    "exp",
    "config_path",
    "cfg",
    "job_config_file",
    "job.config",
    "overrides",
)
"""Flags that name a whole configuration."""
ACCELERATE_COUNTS = ("--config-file", "--num-processes", "--num-machines")
ACCELERATE_KINDS = {
    "use_deepspeed": "DEEPSPEED",
    "use_fsdp": "FSDP",
    "use_megatron_lm": "MEGATRON_LM",
}
DEEPSPEED_FILES = ("hf.deepspeed", "deepspeed_config.deepspeed_config_file")


def files(parsed: Parsed) -> list[str]:
    """Configurations that the command line names, in order."""
    out = []
    for flag in parsed.leaves:
        if flag.path[0] in NAMED and _CONFIG.match(str(flag.value)):
            out.append(str(flag.value))
    for word in parsed.positional:
        if _CONFIG.match(plain(word)) and "=" not in plain(word):
            out.append(shown(word))
    return out


def reading(
    kind: str,
    command: TrainingCommand,
    parsed: Parsed,
    work: Work,
    path: Path,
    launched: Reading,
    sets: Mapping[str, str],
) -> Reading:
    """The arguments under the Reading's names, over what the named configurations state, with the
    launch.
    """
    if kind == "config" and not files(parsed) and _by_accelerate(command, work, path):
        kind = "huggingface"
    if kind in ("megatron", "megatron-deepspeed"):
        return _megatron(kind, parsed, work, path, launched, sets)
    if kind == "huggingface":
        return _hugging(command, parsed, work, path, launched, sets)
    if kind == "swift":
        from planner.intake.frameworks import swift

        names = list(chain.from_iterable(map(swift.names, parsed.leaves)))
        out = make_reading(str(path), "swift", "megatron", names, unresolved=parsed.unresolved)
        return companions.joined(merged(out, launched), str(path), sets)
    return _configured(kind, parsed, work, path, launched, sets)


def _megatron(
    kind: str, parsed: Parsed, work: Work, path: Path, launched: Reading, sets: Mapping[str, str]
) -> Reading:
    names = [named(flag.path[0], flag) for flag in parsed.leaves]
    for flag in parsed.leaves:
        if flag.path[0] in ("hf_checkpoint", "hf_model_path"):
            names.append(named("model", flag))
    deep = kind == "megatron-deepspeed"
    version, why = (None, "") if deep else table.version(parsed.flags)
    out = make_reading(
        str(path),
        kind,
        "deepspeed" if deep else "megatron",
        names,
        version=version,
        unresolved=parsed.unresolved,
        notes=[why] if why else [],
    )
    out = merged(replace(out, unknown=tuple(dict.fromkeys(parsed.unknown))), launched)
    config = out.values.get("yaml_cfg")
    text = text_beside(work, path, (Piece(str(config.value)),)) if config else None
    if config and text:
        from planner.intake.frameworks import detect

        below = detect.read_texts([(str(config.value), shown(text))], sets, "megatron-yaml")
        out = merged(_placed(below, text), out)
    document = out.values.get("deepspeed_config")
    if document is not None and deep:
        out = _deepspeed(out, str(document.value), work, path)
    return companions.joined(out, str(path), sets)


def _deepspeed(out: Reading, name: str, work: Work, path: Path) -> Reading:
    """With the DeepSpeed JSON of a name: as the script writes it, else as it lies beside."""
    written = _written(work, name)
    if written is None:
        return companions.attached(out, name, str(path))
    try:
        return merged(out, _placed(companions.deepspeed_text(_filled(written), name), written))
    except InputError as fault:
        why = f"{name[:80]}, which the script writes, cannot be read: {fault}"
        return replace(out, notes=(*out.notes, why))


def _written(work: Work, name: str) -> Text | None:
    """What the script writes to a file: of that path, else of that last part."""
    shorter = {Path(key.replace(UNKNOWN, "?")).name: text for key, text in work.written.items()}
    return work.written.get(name) or shorter.get(Path(re.sub(r"\$\w+", "?", name)).name)


def _filled(text: Text) -> str:
    """The text with what is not known as `${NAME}`, in quotes where it stands bare."""
    out = ""
    for piece in text:
        if piece.unknown:
            out += f"${{{piece.unknown}}}" if out.count('"') % 2 else f'"${{{piece.unknown}}}"'
        else:
            out += piece.text
    return out


def _placed(below: Reading, text: Text) -> Reading:
    """Edits of a text that stands in pieces elsewhere, where each is one piece."""
    src = source(text)
    edits: dict[str, Edit] = {}
    for name, edit in below.edits.items():
        pieces = cut(src, edit.start, edit.end)
        exact = len(src.text) >= edit.end and known(text)
        if exact and len(pieces) == 1 and pieces[0].start >= 0:
            piece = pieces[0]
            edits[name] = Edit(piece.file, piece.start, piece.start + len(piece.text))
    return replace(below, edits=edits)


def _hugging(
    command: TrainingCommand,
    parsed: Parsed,
    work: Work,
    path: Path,
    launched: Reading,
    sets: Mapping[str, str],
) -> Reading:
    from planner.intake.frameworks import accelerate, huggingface

    own = [*parsed.leaves, *_overriding(parsed, work)]
    own = [replace(flag, path=(flag.path[0],)) for flag in own]
    below, _ = _leaves_of(files(parsed), work, path)
    out = huggingface.reading([*below, *own], str(path))
    out = replace(out, unresolved=(*out.unresolved, *parsed.unresolved))
    launcher = _accelerate(command, work, path)
    if launcher:
        framework = launcher.framework if out.framework == "torch" else out.framework
        out = merged(launcher, out, kind="huggingface", framework=framework)
    out = accelerate.planned(merged(out, launched))
    held = {name: out.values[name] for name in DEEPSPEED_FILES if name in out.values}
    if not held:
        return companions.joined(out, str(path), sets)
    file = str(next(iter(held.values())).value)
    written = _written(work, file)
    if written is None:
        return companions.joined(out, str(path), sets)
    out = merged(out, _placed(companions.deepspeed_text(_filled(written), file), written))
    # what the script writes is merged by now: no file is looked for
    values = {name: value for name, value in out.values.items() if name not in DEEPSPEED_FILES}
    joined = companions.joined(replace(out, values=values), str(path), sets)
    return replace(joined, values=joined.values | held)


def _by_accelerate(command: TrainingCommand, work: Work, path: Path) -> bool:
    """Whether accelerate is told how to train."""
    reading = _accelerate(command, work, path)
    return reading is not None and "distributed_type" in reading.values


def _leaves_of(names: list[str], work: Work, path: Path) -> tuple[list[Leaf], list[str]]:
    """Leaves of the configurations of these names, and the names of those that are not there."""
    from planner.intake.frameworks import detect

    out: list[Leaf] = []
    lost = []
    for name in names:
        text = text_beside(work, path, (Piece(name),))
        if text:
            out += leaves(detect.parse(shown(text), name))
        else:
            lost.append(name)
    return out, lost


def _accelerate(command: TrainingCommand, work: Work, path: Path) -> Reading | None:
    """What accelerate is told: its configuration file, below its own options."""
    options = command.options.get("accelerate")
    if options is None:
        return None
    from planner.intake.frameworks import accelerate, detect

    below: list[Leaf] = []
    lost = []
    config = option(options, "--config-file")
    if config:
        text = text_beside(work, path, config)
        if text:
            below = list(leaves(detect.parse(shown(text), plain(config))))
        else:
            name = shown(config)[:100]
            lost = [f"{name} is not beside the script: what it tells accelerate is not known"]
    word = command.words["accelerate"]
    own = []
    kinds = []
    for name, text in options.items():
        if not name.startswith("--") or name in ACCELERATE_COUNTS:
            continue
        section = _section(name[2:].replace("-", "_"))
        value = scalars.plain(shown(text)[:200]) if text else True
        stated = leaf(section, value, word, [text], work.texts, name)
        own.append(stated)
        kind = ACCELERATE_KINDS.get(section[-1])
        if kind:
            kinds.append(Leaf(("distributed_type",), kind, origin="flag", where=stated.where))
    out = accelerate.reading([*below, *own, *kinds], str(path))
    return replace(out, unresolved=(), notes=(*out.notes, *lost))


def _section(name: str) -> tuple[str, ...]:
    """The section of an accelerate configuration that an option belongs to."""
    if name in (
        "zero_stage",
        "gradient_accumulation_steps",
        "gradient_clipping",
    ) or name.startswith(("offload_", "zero3_", "deepspeed_")):
        return "deepspeed_config", name
    for front, section in (
        ("fsdp_", "fsdp_config"),
        ("megatron_lm_", "megatron_lm_config"),
        ("parallelism_config_", "parallelism_config"),
    ):
        if name.startswith(front):
            return section, name
    return (name,)


def _overriding(parsed: Parsed, work: Work) -> list[Leaf]:
    """`a.b=c` as leaves with their places."""
    from planner.intake.frameworks import detect

    out = []
    for word in overrides(parsed):
        name, _, _ = plain(word).partition("=")
        value = cut(source(word), len(name) + 1, len(plain(word)))
        for flat in detect.overrides([shown(word)]):
            label = name.lstrip("+~")
            out.append(leaf(flat.path, flat.value, word, [value], work.texts, label, [word]))
    return out


def _configured(
    kind: str, parsed: Parsed, work: Work, path: Path, launched: Reading, sets: Mapping[str, str]
) -> Reading:
    """NeMo, Bridge, verl, torchtitan, GPT-NeoX, Primus: configurations with overrides on top."""
    from planner.intake.frameworks import detect

    below, absent = _leaves_of(files(parsed) or _hydra(parsed), work, path)
    lost = [
        f"{name[:100]} is not beside the script: what it states is not known" for name in absent
    ]
    recipes, precisions, dotted = [], [], []
    for flag in parsed.leaves:
        name = flag.path[0]
        if name in SPELLED:
            recipes.append(replace(flag, path=(SPELLED[name],)))
        elif name == "precision":
            precisions.append(replace(flag, path=("mixed_precision",)))
        if "." in name:
            dotted.append(replace(flag, path=tuple(name.split("."))))
    above = [*dotted, *_overriding(parsed, work)]
    if recipes:
        # What a recipe's name and its precision mean is below what files and words say.
        below = [*recipes, *precisions, *below]
    unresolved = list(parsed.unresolved)
    if kind == "torchtitan" and not below:
        below, questions, notes = _torchtitan_python(parsed, work, path)
        lost += notes
        answered = {".".join(leaf.path) for leaf in above} | sets.keys()
        unresolved += [question for question in questions if question.name not in answered]
    if not below and not above:
        why = lost[0] if lost else "it does neither"
        raise InputError(
            f"{path.name} must state how it trains, or name a configuration beside it; but {why}"
        )
    chosen = "nemo" if recipes or not below else None
    if kind == "torchtitan" or (kind == "neox" and not above):
        chosen = kind
    out = detect.translated([*below, *above], str(path), lost, sets, chosen)
    return merged(
        replace(out, unresolved=(*out.unresolved, *unresolved)),
        _without(launched, out),
        framework=out.framework,
    )


def _torchtitan_python(
    parsed: Parsed, work: Work, path: Path
) -> tuple[list[Leaf], list[Unresolved], list[str]]:
    """What `--module MODULE --config FUNCTION` states: leaves, what stays open, and notes on what
    is not there.
    """
    words = {flag.path[0]: str(flag.value)[:200] for flag in parsed.leaves}
    module, function = words.get("module"), words.get("config")
    if not module or not function:
        return [], [], []
    folder = module.replace(".", "/")
    for name in (
        f"{folder}/config_registry.py",
        f"torchtitan/models/{folder}/config_registry.py",
        f"torchtitan/experiments/{folder}/config_registry.py",
        f"{folder}.py",
    ):
        text = text_beside(work, path, (Piece(name),))
        if text is None:
            continue
        file = text[0].file if len(text) == 1 and text[0].file else name
        out = torchtitan_python.read(shown(text), file, module, function)
        if out is not None:
            return *out, []
    note = f"{module}, with {function}, is not beside the script: what it states is not known"
    return [], [], [note]


def _without(launched: Reading, out: Reading) -> Reading:
    """The launch without what the configuration itself states of nodes and GPUs."""
    counts = {"launch.nodes", "launch.gpus_per_node"} & out.values.keys()
    if not counts:
        return launched
    values = dict(launched.values)
    for name in (*counts, "launch.gpus"):
        values.pop(name, None)
    unresolved = () if len(counts) == 2 else launched.unresolved
    return replace(launched, values=values, unresolved=unresolved)


def _hydra(parsed: Parsed) -> list[str]:
    """The configuration of Hydra's --config-name and --config-path."""
    values = {flag.path[0]: str(flag.value) for flag in parsed.leaves}
    name = values.get("config_name")
    if not name:
        return []
    if not name.endswith((".yaml", ".yml")):
        name = f"{name}.yaml"
    return [str(Path(values.get("config_path", "."), name))]


def text_beside(work: Work, path: Path, file: Text) -> Text | None:
    """The text of a file that is named: as the script writes it, else as it lies below the script's
    folder.
    """
    name = shown(file)
    written = _written(work, name)
    if written is not None:
        return written
    place = companions.file_beside(name, str(path))
    if place is None:
        return None
    return (Piece(scalars.text_of(place), str(place), 0),)
