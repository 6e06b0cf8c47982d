"""Documents by name: presets of models, profiles of clusters, stacks; or the path of one's own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from planner.errors import InputError, unknown
from planner.specs.documents import Document, build, check_figures, parse_yaml, read_mapping
from planner.specs.extends import merged
from planner.specs.hardware import HardwareProfile
from planner.specs.model import ModelSpec
from planner.specs.software import Software

_HERE = Path(__file__).parent
_MODELS = _HERE / "models"
_STACKS = _HERE / "stacks"
_SUFFIXES = (".yaml", ".yml", ".json")
_ODD = re.compile(r"[^\w.+-]+")
"""What the name of a document may not hold."""
_SAME_SHAPE = re.compile(r"-(hf|base|instruct|chat|it)$")


def model(name_or_path: str) -> ModelSpec:
    """A preset by name, alias or Hub id; or a config.json, its folder, or a model YAML."""
    path = _document(name_or_path, _MODELS, models, "model")
    if path.is_dir():
        path = path / "config.json"
        if not path.is_file():
            way_out = "pass a preset name, a config.json or a model YAML"
            raise InputError(
                f"a model folder must hold config.json, but {path.parent} has none; {way_out}"
            )
    name = (
        _ODD.sub("-", path.absolute().parent.name if path.stem == "config" else path.stem).strip(
            "-"
        )
        or "model"
    )
    data = read_mapping(path)
    if path.suffix.lower() == ".json" and not {"name", "family"} <= data.keys():
        from planner.specs.huggingface import model_from_config

        return model_from_config(data, name, str(path))
    return _named(build(ModelSpec, data, _where(path)), _where(path))


def hardware(name_or_path: str, overrides: Sequence[str] = ()) -> HardwareProfile:
    """A profile by name or path, its base's fields below its own, with single figures replaced:
    `fabric.nic_gbytes_per_s=12.5`.
    """
    path = _profile(name_or_path)
    profile = _checked(HardwareProfile, merged(path, _profile), _where(path))
    if not overrides:
        return profile
    data = profile.model_dump()
    fields = [override.partition("=")[0].strip() for override in overrides]
    for field, override in zip(fields, overrides, strict=True):
        if fields.count(field) > 1:
            raise InputError(f"--set must state {field[:60]} once, but got it twice; leave one out")
        _set(data, profile, override)
    return _checked(HardwareProfile, data, f"{profile.name} with --set")


def _profile(name_or_path: str) -> Path:
    return _document(name_or_path, profiles_folder(), clusters, "cluster")


def stack(name_or_path: str) -> Software:
    """A stack by name or path."""
    path = _document(name_or_path, _STACKS, stacks, "stack")
    return _checked(Software, read_mapping(path), _where(path))


def _checked(kind: type[Document], data: dict[str, Any], where: str) -> Document:
    document = build(kind, data, where)
    check_figures(document, where)
    return _named(document, where)


def _named(document: Document, where: str) -> Document:
    """The document, if its name is safe. Names are written into launch scripts and file names,
    where a quote or a line break would change the command. Raises InputError.
    """
    name = str(getattr(document, "name", ""))
    if not name or len(name) > 100 or _ODD.search(name):
        raise InputError(
            f"{where}: name must be of letters, digits and . _ + - alone, at most 100, but got"
            f" {name[:60]!r}"
        )
    return document


def models() -> list[str]:
    return _names(_MODELS)


def clusters() -> list[str]:
    return _names(profiles_folder())


def stacks() -> list[str]:
    return _names(_STACKS)


def local_gpus() -> tuple[str, ...]:
    """The GPUs in this machine as nvidia-smi names them; none where it is not there or does not
    answer.
    """
    import shutil
    import subprocess

    if shutil.which("nvidia-smi") is None:
        return ()
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=3, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in answer.splitlines() if line.strip())


def local_cluster() -> str | None:
    """The profile of the GPUs in this machine; None without GPUs, without a profile, or with
    several kinds of them.
    """
    profiles = {_find(name, profiles_folder()) for name in local_gpus()}
    path = profiles.pop() if len(profiles) == 1 else None
    return path.stem if path else None


def fold(name: str) -> str:
    """What names have in common: case, dots, underscores and the Hub's owner do not count, nor do
    -hf, -base, -instruct, -chat, -it.

    `meta-llama/Llama-3.1-70B-Instruct` and `llama3.1-70b` both give `llama3-1-70b`. Dots become
    hyphens rather than vanish: gpt-1.8b is not gpt-18b.
    """
    text = re.sub(r"[\s._-]+", "-", name.rsplit("/", 1)[-1].lower()).strip("-")
    text = re.sub(r"(?<=[a-z])-(?=\d)", "", text).removeprefix("meta-").removeprefix("nvidia-")
    return _SAME_SHAPE.sub("", text)


def profiles_folder() -> Path:
    """In a wheel the profiles lie inside the package, in a checkout beside it."""
    inside = _HERE.parent / "hardware_profiles"
    return inside if inside.is_dir() else _HERE.parent.parent / "hardware_profiles"


def _names(folder: Path) -> list[str]:
    return sorted(
        name.removesuffix(".yaml") for name in os.listdir(folder) if name.endswith(".yaml")
    )


def _where(path: Path) -> str:
    return str(path) if path.parent not in (_MODELS, _STACKS, profiles_folder()) else path.name


def _document(name: str, folder: Path, known: Callable[[], list[str]], kind: str) -> Path:
    """A path when it looks like one, else a name, else a path again."""
    if not str(name).strip():
        raise InputError(
            f"{kind} must be a name or a path, but got nothing; known: {', '.join(known())}"
        )
    path = _path(name)
    looks = path.suffix.lower() in _SUFFIXES or name.startswith((".", "/", "~"))
    there = _exists(path)
    if there and (looks or len(path.parts) > 1):
        return path
    preset = None if looks else _find(name, folder)
    if preset is not None or there:
        return preset or path
    if looks:
        raise InputError(
            f"{kind} must be a known name or an existing path, but there is no {name[:200]}"
        )
    raise unknown(kind, name, known())


def _path(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # no such user
        return Path(name)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _find(name: str, folder: Path) -> Path | None:
    """By file name; else by folded file name; else by the aliases in the documents."""
    if re.fullmatch(r"[\w.-]{1,100}", name) and (folder / f"{name}.yaml").is_file():
        return folder / f"{name}.yaml"
    wanted, names = fold(name), _names(folder)
    matches = [x for x in names if fold(x) == wanted] or [
        x for x in names if wanted in map(fold, _aliases(folder / f"{x}.yaml"))
    ]
    return folder / f"{matches[0]}.yaml" if matches else None


def _aliases(path: Path) -> list[str]:
    """The one line `aliases: [...]`, read without the rest of the document: a scan of all presets
    takes milliseconds.
    """
    match = re.search(r"^aliases: *\[(.*)\]", path.read_text(encoding="utf-8"), re.MULTILINE)
    return [alias.strip() for alias in match.group(1).split(",")] if match else []


def _set(data: dict[str, Any], profile: HardwareProfile, override: str) -> None:
    """Replaces one figure in the dumped profile."""
    dotted, equals, text = override.partition("=")
    if not equals or not dotted.strip():
        raise InputError(
            "--set must read FIELD=VALUE, such as fabric.nic_gbytes_per_s=12.5, but got"
            f" {override[:80]!r}"
        )
    known = _paths(profile)
    if dotted.strip() not in known:
        raise unknown("--set field", dotted.strip(), known)
    try:
        value = parse_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InputError(
            f"--set {dotted} must get one plain value, but got {text[:80]!r}"
        ) from None
    *outer, last = dotted.strip().split(".")
    at: Any = data
    for part in outer:
        at = at[_key(at, part)]
    at[_key(at, last)] = value


def _paths(node: Any, before: str = "") -> list[str]:
    """Every dotted path to a single figure of a document."""
    if isinstance(node, BaseModel):
        pairs: list[tuple[Any, Any]] = [
            (name, getattr(node, name)) for name in type(node).model_fields
        ]
    elif isinstance(node, dict):
        pairs = list(node.items())
    else:
        return [before]
    return [
        path
        for key, value in pairs
        for path in _paths(value, f"{before}.{key}" if before else str(key))
    ]


def _key(at: Any, part: str) -> Any:
    """Groups by number of members are keyed by whole numbers."""
    return int(part) if part.isdigit() and int(part) in at else part
