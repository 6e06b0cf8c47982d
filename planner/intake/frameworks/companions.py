"""The files that a configuration names and that lie beside it: a model's file, a DeepSpeed JSON, a
config.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.intake.documents import json_reader, yaml_reader
from planner.intake.documents.scalars import text_of
from planner.intake.documents.tree import Document, Leaf, leaves
from planner.intake.frameworks import deepspeed, primus, trainer_aliases
from planner.intake.frameworks.vocabulary import merged
from planner.intake.reading import Reading, Value

DEEPEST = 8
"""Files that build on one another."""
CLIMB = 6
"""Folders up in which a clone of Primus is looked for: its experiments and models lie in different
folders of one repository.
"""
_MODELS = Path("primus", "configs", "models", "megatron")


def joined(out: Reading, path: str, sets: Mapping[str, Any]) -> Reading:
    """The reading with the DeepSpeed configuration that it names and the config.json of the model,
    where they lie beside it.
    """
    out = trainer_aliases.meant(out)
    named = out.values.get("hf.deepspeed") or out.values.get(
        "deepspeed_config.deepspeed_config_file"
    )
    if named is not None and isinstance(named.value, str):
        out = attached(out, named.value, path)
    elif named is not None and isinstance(named.value, dict):
        inline = leaves(Document("", named.value, {}))
        out = merged(out, deepspeed.reading(inline, out.file))
    config = model_config(path)
    if config is not None and "hf_config" not in out.values:
        out = replace(out, values={**out.values, "hf_config": Value(config, "flag", "config.json")})
    if out.kind != "huggingface" or not any(name.startswith("deepspeed.") for name in out.values):
        return out
    gpus = _count(sets.get("gpus"))
    if not gpus and "launch.gpus" in out.values:
        gpus = _count(out.values["launch.gpus"].value)
    return deepspeed.with_trainer(replace(out, framework="deepspeed"), gpus)


def attached(out: Reading, named: str, path: str) -> Reading:
    """The reading with a DeepSpeed JSON that it names, looked for beside `path`: by its whole path,
    then by its name alone.
    """
    place = file_beside(named, path)
    if place is None:
        return _by_name(out, named)
    return merged(out, deepspeed_text(text_of(place), str(place)))


def _by_name(out: Reading, named: str) -> Reading:
    """What the name of a configuration tells that is not at hand."""
    preset = trainer_aliases.preset(named, f"the name {named[:80]}")
    says = "what it states is not known"
    if preset:
        says = f"stage {preset[trainer_aliases.STAGE].value} is taken by its name"
    note = f"{named[:120]} is not beside the file: {says}"
    return replace(trainer_aliases.filled(out, preset), notes=(*out.notes, note))


def deepspeed_text(text: str, name: str) -> Reading:
    """A DeepSpeed configuration alone, of a text."""
    document = json_reader.load(text, name)
    notes = list(document.notes)
    if document.duplicates:
        twice = ", ".join(document.duplicates[:6])
        notes.append(f"{Path(name).name} states {twice} twice: DeepSpeed stops there")
    return deepspeed.reading(leaves(document), name, notes)


def file_beside(named: str, path: str) -> Path | None:
    """The file of a name, in the folder of `path` or below it; None where there is none. Never
    elsewhere on this machine.
    """
    folder = Path(path).parent
    parts = [
        part
        for part in Path(named).parts
        if part not in ("..", "/", "\\", ".") and not part.startswith(("$", "~"))
    ]
    for depth in range(len(parts)):
        place = folder.joinpath(*parts[depth:])
        try:
            if place.is_file() and place.resolve().is_relative_to(folder.resolve()):
                return place
        except (OSError, ValueError):
            return None
    return None


def model_config(path: str) -> dict[str, Any] | None:
    """The config.json in the file's folder, parsed; None without one, or where it is the file
    itself or no model's.
    """
    place = Path(path).parent / "config.json"
    try:
        if not place.is_file() or place.name == Path(path).name:
            return None
        data = json_reader.load(text_of(place), place.name).data
    except (InputError, OSError):
        return None
    if isinstance(data, dict) and ("model_type" in data or "hidden_size" in data):
        return data
    return None


def primus_model(named: str | None, path: str) -> list[Leaf]:
    """A Primus model file's leaves, those it builds on first; none where it is not at hand."""
    if not named:
        return []
    place = file_beside(named, path) or _in_clone(named, path)
    return _built(place, 0) if place else []


def _in_clone(named: str, path: str) -> Path | None:
    for folder in list(Path(path).absolute().parents)[:CLIMB]:
        place = folder / _MODELS / Path(named).name
        if place.is_file():
            return place
    return None


def _built(place: Path, depth: int) -> list[Leaf]:
    if depth > DEEPEST:
        raise InputError(
            f"{place.name} must build on at most {DEEPEST} files, one on the other, but builds on"
            " more (a circle?)"
        )
    own = leaves(yaml_reader.load(text_of(place), str(place)))
    built: list[Leaf] = []
    for name in primus.extends(own):
        below = place.parent / Path(name).name
        if below.is_file():
            built += _built(below, depth + 1)
    return built + [leaf for leaf in own if leaf.path[0] != "extends"]


def _count(value: Any) -> int | None:
    try:
        count = int(value)
    except (TypeError, ValueError):
        return None
    return count if 0 < count < 10**7 else None
