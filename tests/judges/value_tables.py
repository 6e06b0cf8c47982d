"""Tables of the values that frameworks' own parsers take:

`python -m tests.judges.value_tables 0.14=FOLDER ... 0.19=.mcore/0.19.2` writes the column `choices`
of megatron_arguments.csv from the parsers of unpacked wheels or checkouts, oldest first.
`python -m tests.judges.value_tables deepspeed` writes deepspeed_values.csv from the models of the
DeepSpeed that is installed; `... torchtitan` writes torchtitan_values.csv from 0.2.2's JobConfig.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from enum import EnumMeta
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from planner.intake.frameworks import accepted
from planner.intake.frameworks.accepted import Accepted
from planner.intake.frameworks.megatron_flags import TABLE
from tests.judges import megatron_oracle, wheels

Choices = dict[str, list[str]]
"""Words by flag."""


def megatron_choices(folder: Path) -> Choices:
    """What the parser in a folder takes, by flag: none where it takes any value of a type."""
    script = str(Path(__file__).with_name("megatron_values.py"))
    env = {**os.environ, "PYTHONPATH": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    answer = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True)
    if answer.returncode:
        raise RuntimeError(answer.stderr[-3000:])
    choices: Choices = json.loads(answer.stdout.splitlines()[-1])
    return choices


def newest_choices(version: str = megatron_oracle.NEWEST) -> Choices:
    return megatron_choices(megatron_oracle.wheel(version))


def column(flag: str, by_version: Mapping[str, Choices]) -> str:
    """The words of a flag in all versions: `a|b>=0.18|c<0.16` where not every one has them."""
    having = {version: words[flag] for version, words in by_version.items() if flag in words}
    versions = list(having)
    cells = []
    for word in dict.fromkeys(word for words in having.values() for word in words):
        taking = [version for version in versions if word in having[version]]
        first, last = versions.index(taking[0]), versions.index(taking[-1])
        since = f">={taking[0]}" if first else ""
        before = f"<{versions[last + 1]}" if last + 1 < len(versions) else ""
        cells.append(f"{word}{since}{before}")
    return "|".join(cells)


def deepspeed_values() -> list[Accepted]:
    """The keys of the sections that have models, and what these take."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    return [
        *_keys("zero_optimization", DeepSpeedZeroConfig),
        *_keys("fp16", DeepSpeedFP16Config),
        *_keys("bf16", DeepSpeedBF16Config),
    ]


def _keys(section: str, model: Any) -> list[Accepted]:
    """Of each field under its own name and its alias; models within are sections."""
    keys = []
    for name, field in model.model_fields.items():
        kind, optional = _bare(field.annotation)
        names = [name, field.alias] if field.alias else [name]
        if hasattr(kind, "model_fields"):
            keys += _keys(f"{section}.{name}", kind)
            continue
        words = _words(kind)
        if words:
            kind = type(words[0])
        if kind not in (bool, int, float, str):
            continue
        limits = [_limit(rule) for rule in field.metadata]
        texts = tuple(map(str, words))
        for key in names:
            keys.append(
                Accepted(f"{section}.{key}", kind.__name__, texts, optional, " ".join(limits))
            )
    return keys


def _bare(annotation: Any) -> tuple[Any, bool]:
    """A type without None, and whether it takes None; object where several are left."""
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    kinds = [member for member in members if member is not type(None)]
    if not members:
        return annotation, False
    return (kinds[0] if len(kinds) == 1 else object), len(kinds) < len(members)


def _words(kind: Any) -> list[Any]:
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [member.value for member in kind] if isinstance(kind, EnumMeta) else []


def _limit(rule: Any) -> str:
    """A bound of annotated_types: `>=0`."""
    signs = {"Ge": ">=", "Gt": ">", "Le": "<=", "Lt": "<"}
    name = type(rule).__name__
    return f"{signs[name]}{getattr(rule, name.lower())}"


def torchtitan_values() -> list[Accepted]:
    """The keys of the TOML that take some words alone."""
    folder = wheels.wheel("torchtitan", "0.2.2") / "torchtitan"
    # as a bare package: its own __init__ imports kernels
    script = (
        "import dataclasses as d, json, sys, types, typing as t\n"
        "package = types.ModuleType('torchtitan')\n"
        f"package.__path__ = [{str(folder)!r}]\n"
        "sys.modules['torchtitan'] = package\n"
        "from torchtitan.config.job_config import JobConfig\n"
        "def keys(kind, path):\n"
        "    for field in d.fields(kind):\n"
        "        if d.is_dataclass(field.type):\n"
        "            yield from keys(field.type, [*path, field.name])\n"
        "        for member in (field.type, *t.get_args(field.type)):\n"
        "            if t.get_origin(member) is t.Literal:\n"
        "                yield '.'.join([*path, field.name]), t.get_args(member)\n"
        "print(json.dumps(list(keys(JobConfig, []))))"
    )
    env = wheels.environment("torchtitan", "0.2.2")
    answer = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    if answer.returncode:
        raise RuntimeError(answer.stderr[-3000:])
    pairs = json.loads(answer.stdout.splitlines()[-1])
    return [Accepted(key, "str", tuple(words), False, "") for key, words in pairs]


def main(words: Iterable[str]) -> None:
    if "deepspeed" in words:
        accepted.write(accepted.DEEPSPEED, deepspeed_values())
    elif "torchtitan" in words:
        accepted.write(accepted.TORCHTITAN, torchtitan_values())
    else:
        write_megatron(words)


def write_megatron(words: Iterable[str]) -> None:
    by_version = {}
    for word in words:
        version, _, folder = word.partition("=")
        by_version[version] = megatron_choices(Path(folder))
    with TABLE.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        row["choices"] = column(row["flag"], by_version)
    with TABLE.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
