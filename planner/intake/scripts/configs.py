"""A command line given to its framework's reader, with the configurations that it names: beside it,
or written by the script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.intake.bash.state import Work
from planner.intake.bash.traced_text import UNKNOWN, Piece, Source, Text, cut, plain, shown, source
from planner.intake.documents.scalars import text_of
from planner.intake.documents.tree import Leaf, leaves
from planner.intake.frameworks import companions
from planner.intake.frameworks import megatron_flags as table
from planner.intake.frameworks.nemo_recipes import SPELLED
from planner.intake.frameworks.vocabulary import Named, make_reading, merged
from planner.intake.reading import Edit, Reading
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
)
"""Flags that name a whole configuration."""


def files(parsed: Parsed) -> list[str]:
    """Configurations that the command line names, in order."""
    flagged = [
        str(one.value)
        for one in parsed.leaves
        if one.path[0] in NAMED and _CONFIG.match(str(one.value))
    ]
    return [
        *flagged,
        *(
            shown(word)
            for word in parsed.positional
            if _CONFIG.match(plain(word)) and "=" not in plain(word)
        ),
    ]


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
    if kind in ("megatron", "megatron-deepspeed"):
        return _megatron(kind, parsed, work, path, launched, sets)
    if kind == "huggingface":
        return _hugging(command, parsed, work, path, launched, sets)
    if kind == "swift":
        from planner.intake.frameworks import swift

        named = [name for flat in parsed.leaves for name in swift.names(flat)]
        out = make_reading(str(path), "swift", "megatron", named, unresolved=parsed.unresolved)
        return companions.joined(merged(out, launched), str(path), sets)
    return _configured(kind, parsed, work, path, launched, sets)


def _megatron(
    kind: str, parsed: Parsed, work: Work, path: Path, launched: Reading, sets: Mapping[str, str]
) -> Reading:
    names = [Named(one.path[0], one, one.value) for one in parsed.leaves]
    names += [
        Named("model", one, one.value)
        for one in parsed.leaves
        if one.path[0] in ("hf_checkpoint", "hf_model_path")
    ]
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
    if config is not None and (text := text_beside(work, path, (Piece(str(config.value)),))):
        from planner.intake.frameworks import detect

        below = detect.read_texts([(str(config.value), shown(text))], sets, "megatron-yaml")
        out = merged(_placed(below, text), out)
    named = out.values.get("deepspeed_config")
    if named is not None and deep:
        out = _deepspeed(out, str(named.value), work, path)
    return companions.joined(out, str(path), sets)


def _deepspeed(out: Reading, name: str, work: Work, path: Path) -> Reading:
    """With the DeepSpeed JSON of a name: as the script writes it, else as it lies beside."""
    written = _written(work, name)
    if written is None:
        return companions.attached(out, name, str(path))
    try:
        return merged(out, _placed(companions.deepspeed_text(_filled(written), name), written))
    except InputError as fault:
        return replace(
            out,
            notes=(*out.notes, f"{name[:80]}, which the script writes, cannot be read: {fault}"),
        )


def _written(work: Work, name: str) -> Text | None:
    by_name = {shown(tuple([Piece(key)])): text for key, text in work.written.items()}
    shorter = {Path(key.replace(UNKNOWN, "?")).name: text for key, text in work.written.items()}
    return by_name.get(name) or shorter.get(Path(re.sub(r"\$\w+", "?", name)).name)


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
    whole: Source = source(text)
    edits: dict[str, Edit] = {}
    for name, edit in below.edits.items():
        pieces = cut(whole, edit.start, edit.end)
        exact = len(whole.text) >= edit.end and not any(piece.unknown for piece in text)
        if exact and len(pieces) == 1 and pieces[0].start >= 0:
            edits[name] = Edit(
                pieces[0].file, pieces[0].start, pieces[0].start + len(pieces[0].text)
            )
    return replace(below, edits=edits)


def _hugging(
    command: TrainingCommand,
    parsed: Parsed,
    work: Work,
    path: Path,
    launched: Reading,
    sets: Mapping[str, str],
) -> Reading:
    from planner.intake.frameworks import detect, huggingface

    own = [
        replace(one, path=(one.path[0],)) for one in (*parsed.leaves, *_overriding(parsed, work))
    ]
    below = [
        flat
        for name in files(parsed)
        if (text := text_beside(work, path, (Piece(name),)))
        for flat in leaves(detect.parse(shown(text), name))
    ]
    out = huggingface.reading([*below, *own], str(path))
    out = replace(out, unresolved=(*out.unresolved, *parsed.unresolved))
    launcher = _accelerate(command, work, path)
    out = merged(
        (
            merged(launcher, out, kind="huggingface", framework=_stronger(launcher, out))
            if launcher
            else out
        ),
        launched,
        framework=_stronger(launcher, out) if launcher else out.framework,
    )
    held = out.values.get("hf.deepspeed") or out.values.get(
        "deepspeed_config.deepspeed_config_file"
    )
    written = _written(work, str(held.value)) if held else None
    if held is None or written is None:
        return companions.joined(out, str(path), sets)
    out = merged(
        out, _placed(companions.deepspeed_text(_filled(written), str(held.value)), written)
    )
    names = ("hf.deepspeed", "deepspeed_config.deepspeed_config_file")
    without = replace(
        out, values={name: value for name, value in out.values.items() if name not in names}
    )
    joined = companions.joined(without, str(path), sets)
    return replace(
        joined,
        values={
            **joined.values,
            **{name: out.values[name] for name in names if name in out.values},
        },
    )


def _stronger(launcher: Reading | None, out: Reading) -> Any:
    return launcher.framework if launcher and out.framework == "torch" else out.framework


def _accelerate(command: TrainingCommand, work: Work, path: Path) -> Reading | None:
    """What accelerate is told: its configuration file, below its own options."""
    told = command.told.get("accelerate")
    if told is None:
        return None
    from planner.intake.frameworks import accelerate, detect

    named = option(told, "--config-file")
    text = text_beside(work, path, named) if named else None
    below = leaves(detect.parse(shown(text), plain(named))) if text and named else []
    word = command.words["accelerate"]
    counts = ("--config-file", "--num-processes", "--num-machines")
    own = [
        leaf(_place(name[2:].replace("-", "_")), _told(value), word, [value], work.texts, name)
        for name, value in told.items()
        if name.startswith("--") and name not in counts
    ]
    kinds = {"use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP", "use_megatron_lm": "MEGATRON_LM"}
    own += [
        Leaf(("distributed_type",), kinds[one.path[-1]], origin="flag", where=one.where)
        for one in own
        if one.path[-1] in kinds
    ]
    out = accelerate.reading([*below, *own], str(path))
    lost = (
        [f"{shown(named)[:100]} is not beside the script: what it tells accelerate is not known"]
        if named and not text
        else []
    )
    return replace(out, unresolved=(), notes=(*out.notes, *lost))


def _told(value: Text) -> Any:
    from planner.intake.documents.scalars import plain as meaning

    return meaning(shown(value)[:200]) if value else True


def _place(name: str) -> tuple[str, ...]:
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
        for one in detect.overrides([shown(word)]):
            label = name.lstrip("+~")
            out.append(leaf(one.path, one.value, word, [value], work.texts, label, [word]))
    return out


def _configured(
    kind: str, parsed: Parsed, work: Work, path: Path, launched: Reading, sets: Mapping[str, str]
) -> Reading:
    """NeMo, Bridge, verl, torchtitan, GPT-NeoX, Primus: configurations with overrides on top."""
    from planner.intake.frameworks import detect

    names = files(parsed) or _hydra(parsed)
    texts = [(name, text) for name in names if (text := text_beside(work, path, (Piece(name),)))]
    below = [flat for name, text in texts for flat in leaves(detect.parse(shown(text), name))]
    dotted = [
        replace(one, path=tuple(one.path[0].split(".")))
        for one in parsed.leaves
        if "." in one.path[0]
    ]
    recipes = [
        replace(one, path=(SPELLED[one.path[0]],))
        for one in parsed.leaves
        if one.path[0] in SPELLED
    ]
    above = [*recipes, *dotted, *_overriding(parsed, work)]
    lost = [
        f"{name[:100]} is not beside the script: what it states is not known"
        for name in names
        if name not in dict(texts)
    ]
    if not below and not above:
        why = lost[0] if lost else "it does neither"
        raise InputError(
            f"{path.name} must state how it trains, or name a configuration beside it; but {why}"
        )
    chosen = (
        "torchtitan"
        if kind == "torchtitan"
        else "neox"
        if kind == "neox" and not above
        else None
        if below
        else "nemo"
    )
    out = detect.translated([*below, *above], str(path), lost, sets, chosen)
    return merged(
        replace(out, unresolved=(*out.unresolved, *parsed.unresolved)),
        _without(launched, out),
        framework=out.framework,
    )


def _without(launched: Reading, out: Reading) -> Reading:
    """The launch without what the configuration itself states of nodes and GPUs."""
    stated = [name for name in ("launch.nodes", "launch.gpus_per_node") if name in out.values]
    if not stated:
        return launched
    values = {
        name: value
        for name, value in launched.values.items()
        if name not in (*stated, "launch.gpus")
    }
    return replace(
        launched, values=values, unresolved=() if len(stated) == 2 else launched.unresolved
    )


def _hydra(parsed: Parsed) -> list[str]:
    told = {one.path[0]: str(one.value) for one in parsed.leaves}
    name = told.get("config_name")
    if not name:
        return []
    return [
        str(
            Path(
                told.get("config_path", "."),
                name if name.endswith((".yaml", ".yml")) else f"{name}.yaml",
            )
        )
    ]


def text_beside(work: Work, path: Path, stated: Text) -> Text | None:
    """The text of a file that is named: as the script writes it, else as it lies below the script's
    folder.
    """
    name = shown(stated)
    written = _written(work, name)
    if written is not None:
        return written
    place = companions.beside(name, str(path))
    if place is None:
        return None
    return (Piece(text_of(place), str(place), 0),)
