"""Documents by name: presets of models, profiles of clusters, software; or the path of one's
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from planner.errors import InputError, unknown
from planner.specs import software_documents
from planner.specs.distributions import distributions, named
from planner.specs.documents import build, parse_yaml, read_mapping
from planner.specs.extends import merged
from planner.specs.hardware import HardwareProfile
from planner.specs.model import ModelSpec
from planner.specs.names import (
    ODD,
    checked,
    document_path,
    find_preset,
    place,
    preset_names,
    with_safe_name,
)
from planner.specs.software import Software

_HERE = Path(__file__).parent
_MODELS = _HERE / "models"


def model(name_or_path: str) -> ModelSpec:
    """A preset by name, alias or Hub id; or a config.json, its folder, or a model YAML."""
    path = document_path(name_or_path, _MODELS, models, "model")
    if path.is_dir():
        path = path / "config.json"
        if not path.is_file():
            way_out = "pass a preset name, a config.json or a model YAML"
            raise InputError(
                f"a model folder must hold config.json, but {path.parent} has none; {way_out}"
            )
    name = (
        ODD.sub("-", path.absolute().parent.name if path.stem == "config" else path.stem).strip("-")
        or "model"
    )
    data = read_mapping(path)
    if path.suffix.lower() == ".json" and not {"name", "family"} <= data.keys():
        from planner.specs.huggingface import model_from_config

        return model_from_config(data, name, str(path))
    at = place(path, _MODELS)
    return with_safe_name(build(ModelSpec, data, at), at)


def hardware(name_or_path: str, overrides: Sequence[str] = ()) -> HardwareProfile:
    """A profile by name or path, its base's fields below its own, with single figures replaced:
    `fabric.nic_gbytes_per_s=12.5`.
    """
    path = _profile(name_or_path)
    profile = checked(HardwareProfile, merged(path, _profile), place(path, profiles_folder()))
    if not overrides:
        return profile
    data = profile.model_dump()
    fields = [override.partition("=")[0].strip() for override in overrides]
    for field, override in zip(fields, overrides, strict=True):
        if fields.count(field) > 1:
            raise InputError(f"--set must state {field[:60]} once, but got it twice; leave one out")
        _set(data, profile, override)
    return checked(HardwareProfile, data, f"{profile.name} with --set")


def _profile(name_or_path: str) -> Path:
    return document_path(name_or_path, profiles_folder(), clusters, "cluster")


def stack(name_or_path: str) -> Software:
    """A software under the switches of a distribution, by either's name; or by path."""
    distribution = named(name_or_path)
    if distribution is not None:
        return distribution.built()
    return software_documents.software(name_or_path, stacks)


def models() -> list[str]:
    return preset_names(_MODELS)


def clusters() -> list[str]:
    return preset_names(profiles_folder())


def stacks() -> list[str]:
    """Software and distributions."""
    return sorted({*software_documents.software_names(), *distributions()})


def offered_stacks() -> list[str]:
    """Those that are not there for published runs alone."""
    of = {name: each.software for name, each in distributions().items()}
    apart = software_documents.reproductions()
    return [name for name in stacks() if of.get(name, name) not in apart]


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
    profiles = {find_preset(name, profiles_folder()) for name in local_gpus()}
    path = profiles.pop() if len(profiles) == 1 else None
    return path.stem if path else None


def profiles_folder() -> Path:
    """In a wheel the profiles lie inside the package, in a checkout beside it."""
    inside = _HERE.parent / "hardware_profiles"
    return inside if inside.is_dir() else _HERE.parent.parent / "hardware_profiles"


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
