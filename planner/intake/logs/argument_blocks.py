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
from planner.intake.frameworks.vocabulary import Framework, Named, make_reading, merged
from planner.intake.reading import Origin, Reading

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
    `default` where it says so. None where the block has fewer than five.
    """
    block = _leaves(text, file)
    keys = {leaf.path[0] for leaf in block}
    if len(block) < 5:
        return None
    if "pipe_parallel_size" in keys and keys & KEYS:
        defaults_first = sorted(block, key=lambda leaf: leaf.origin != "default")
        return neox.reading(defaults_first, file)
    names: list[Named] = []
    kind = "megatron"
    framework: Framework = "megatron"
    for leaf in block:
        names += megatron_yaml.names(leaf)
        if leaf.path[0] in ("deepspeed", "deepspeed_config") and leaf.value:
            kind, framework = "megatron-deepspeed", "deepspeed"
    names = [name for name in names if name.value is not None]
    launched = [name._replace(name=LAUNCH[name.name]) for name in names if name.name in LAUNCH]
    return make_reading(file, kind, framework, [*names, *launched])


def configuration(text: str, file: str) -> Reading | None:
    """A DeepSpeed configuration that the engine printed, or None where the text is none."""
    try:
        document = json_reader.load(text, file)
        keys = leaves(document)
    except InputError:
        return None
    data = document.data
    if not isinstance(data, dict) or not set(data) & set(deepspeed.SECTIONS):
        return None
    return deepspeed.reading([Leaf(leaf.path, leaf.value, file) for leaf in keys], file)


def joined(first: Reading | None, second: Reading | None) -> Reading | None:
    """Both blocks of one run: Megatron-DeepSpeed prints its arguments and then DeepSpeed's
    configuration.
    """
    if first is None or second is None:
        return second or first
    kinds = {first.kind, second.kind}
    if kinds not in ({"megatron-deepspeed", "deepspeed"}, {"neox", "deepspeed"}):
        return second
    (kind,) = kinds - {"deepspeed"}
    return merged(first, second, kind=kind, framework="deepspeed")


def _leaves(text: str, file: str) -> list[Leaf]:
    """The lines `name ..... value` of a block."""
    block = []
    for line in text.split("\n")[:MAX_LINES]:
        match = _ARGUMENT.search(line[:2000])
        if match is not None:
            origin: Origin = "default" if match[3] == "default" else "flag"
            block.append(Leaf((match[1],), _python(match[2].strip()), file, origin=origin))
    return block


def _python(text: str) -> Any:
    """A value as Python prints it: None, True, numbers, a flat list; an enumeration's member by its
    last name; else the text.
    """
    if text == "None":
        return None
    if text.startswith("[") and text.endswith("]"):
        items = filter(str.strip, text[1:-1].split(","))
        return [_python(item.strip().strip("'\"")) for item in items]
    member = re.fullmatch(r"<?[A-Za-z]\w*\.(\w+)(?:: ?[^>]{0,40}>)?", text)
    if member and text[:1] in "<ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        return member[1]
    return plain(text) if text else ""
