"""The blocks that a run prints when it starts: Megatron's and GPT-NeoX's arguments, DeepSpeed's
configuration.
"""

from __future__ import annotations

import re
from typing import Any

from planner.errors import InputError
from planner.intake.documents import json_reader
from planner.intake.documents.scalars import plain
from planner.intake.documents.tree import Leaf, leaves
from planner.intake.frameworks import deepspeed, megatron_yaml, neox
from planner.intake.frameworks.neox_keys import KEYS
from planner.intake.frameworks.vocabulary import merged
from planner.intake.frameworks.vocabulary import reading as made
from planner.intake.reading import Reading

_ARGUMENT = re.compile(
    r"(?:^|[\s:|\]>])([A-Za-z_][A-Za-z0-9_]{1,80}) (?:\.+ )([^\n]*?)(?:\.+(updated|default))?\s*$"
)
MAX_LINES = 3000
"""Arguments of a block."""
LAUNCH = {
    "world_size": "launch.gpus",
    "padded_vocab_size": "padded_vocab_size",
    "global_num_gpus": "launch.gpus",
}


def arguments(text: str, file: str) -> Reading | None:
    """The arguments of a block as a full Reading, defaults that the framework filled in with origin
    `default` where it says so.
    """
    found = [
        leaf for line in text.split("\n")[:MAX_LINES] if (leaf := _leaf(line, file)) is not None
    ]
    names = {leaf.path[0] for leaf in found}
    if len(found) < 5:
        return None
    if "pipe_parallel_size" in names and names & KEYS:
        updated = [leaf for leaf in found if leaf.origin == "flag"]
        return neox.reading([*(leaf for leaf in found if leaf.origin == "default"), *updated], file)
    flat = [name for leaf in found for name in megatron_yaml.names(leaf) if name.value is not None]
    launched = [leaf._replace(name=LAUNCH[leaf.name]) for leaf in flat if leaf.name in LAUNCH]
    deep = any(leaf.path[0] in ("deepspeed", "deepspeed_config") and leaf.value for leaf in found)
    kind = "megatron-deepspeed" if deep else "megatron"
    return made(file, kind, "deepspeed" if deep else "megatron", [*flat, *launched])


def configuration(text: str, file: str) -> Reading | None:
    """A DeepSpeed configuration that the engine printed, or None where the text is none."""
    try:
        document = json_reader.load(text, file)
        found = leaves(document)
    except InputError:
        return None
    data = document.data
    if not isinstance(data, dict) or not set(data) & set(deepspeed.SECTIONS):
        return None
    return deepspeed.reading([Leaf(leaf.path, leaf.value, file) for leaf in found], file)


def joined(first: Reading | None, second: Reading | None) -> Reading | None:
    """Both blocks of one run: Megatron-DeepSpeed prints its arguments and then DeepSpeed's
    configuration.
    """
    if first is None or second is None:
        return second or first
    if {first.kind, second.kind} == {"megatron-deepspeed", "deepspeed"} or {
        first.kind,
        second.kind,
    } == {"neox", "deepspeed"}:
        kind = next(one.kind for one in (first, second) if one.kind != "deepspeed")
        return merged(first, second, kind=kind, framework="deepspeed")
    return second


def _leaf(line: str, file: str) -> Leaf | None:
    match = _ARGUMENT.search(line[:2000])
    if match is None:
        return None
    said = match[3]
    return Leaf(
        (match[1],),
        _python(match[2].strip()),
        file,
        origin="default" if said == "default" else "flag",
    )


def _python(text: str) -> Any:
    """A value as Python prints it: None, True, numbers, a flat list; an enumeration's member by its
    last name; else the text.
    """
    if text == "None":
        return None
    if text.startswith("[") and text.endswith("]"):
        return [
            _python(part.strip().strip("'\"")) for part in text[1:-1].split(",") if part.strip()
        ]
    member = re.fullmatch(r"<?[A-Za-z]\w*\.(\w+)(?:: ?[^>]{0,40}>)?", text)
    if member and text[:1] in "<ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        return member[1]
    return text if text == "" else plain(text)
