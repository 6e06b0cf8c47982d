"""The bash inside a YAML: SkyPilot's `run`, the command of a Kubernetes pod and the files of its
ConfigMap, every line with its place in the YAML.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from planner.errors import InputError
from planner.intake.bash.traced_text import Piece, Text
from planner.intake.documents import yaml_reader
from planner.intake.documents.tree import Path as Keys
from planner.intake.documents.tree import Span

MAX_DOCUMENTS = 50
TASK = frozenset({"resources", "num_nodes", "setup", "workdir", "envs", "file_mounts"})
"""Keys of SkyPilot that stand beside `run`."""
_START = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_GPUS = re.compile(r"[\w-]+:(\d{1,4})")


@dataclass(frozen=True, slots=True)
class Inside:
    """What a job runs."""

    script: Text
    files: dict[str, Text] = field(default_factory=dict)
    """That it holds, by the names under which its script reaches them."""
    variables: dict[str, Text] = field(default_factory=dict)
    """Of the environment."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One document of a YAML."""

    file: str
    text: str
    data: dict[str, Any]
    spans: dict[Keys, Span]
    start: int
    """Its offset in the file."""

    def traced(self, *keys: str) -> Text:
        """The text of a value with its places."""
        value: Any = self.data
        for key in keys:
            value = value[int(key)] if isinstance(value, list) else value[key]
        text = "" if value is None else str(value)
        span = self.spans.get(keys)
        pieces = None
        if span is not None:
            pieces = _literal(self, text, span) or _written_out(self, text, span)
        return pieces or (Piece(text),)


def job(path: Path, text: str) -> Inside | None:
    """The job that a YAML describes; None where it is none, or runs nothing."""
    try:
        parts = list(_parts(str(path), text))
    except InputError:
        return None
    for part in parts:
        if isinstance(part.data.get("run"), str) and TASK & part.data.keys():
            return _task(part)
    return _pod(parts)


def _parts(file: str, text: str) -> Iterator[_Part]:
    starts = [0, *(match.end() for match in _START.finditer(text))]
    ends = [*(match.start() for match in _START.finditer(text)), len(text)]
    for start, end in list(zip(starts, ends, strict=True))[:MAX_DOCUMENTS]:
        document = yaml_reader.load(text[start:end], file)
        if isinstance(document.data, dict):
            yield _Part(file, text, document.data, dict(document.spans), start)


def _literal(part: _Part, value: str, span: Span) -> Text | None:
    """Lines of a block scalar (`|`), each where it stands; None for any other scalar."""
    block = part.text[part.start + span[0] : part.start + span[1]]
    if not block.startswith("|"):
        return None
    head, _, body = block.partition("\n")
    at = part.start + span[0] + len(head) + 1
    lines = body.split("\n")
    filled = [line for line in lines if line.strip()]
    indent = min((len(line) - len(line.lstrip(" ")) for line in filled), default=0)
    pieces = []
    for line, content in zip(lines, value.split("\n"), strict=False):
        if line[indent:] != content:
            return None
        pieces.append(Piece(f"{content}\n", part.file, at + min(indent, len(line))))
        at += len(line) + 1
    return tuple(pieces)


def _written_out(part: _Part, value: str, span: Span) -> Text | None:
    """A scalar of one line, in quotes or not."""
    start, end = part.start + span[0], part.start + span[1]
    if part.text[start:end] in (f'"{value}"', f"'{value}'"):
        start += 1
    elif part.text[start:end] != value:
        return None
    return (Piece(value, part.file, start),)


def _task(part: _Part) -> Inside:
    """SkyPilot's task; nodes and GPUs of a node are variables to its script."""
    variables = {}
    for section in ("envs", "secrets"):
        values = part.data.get(section)
        for name in values if isinstance(values, dict) else ():
            variables[name] = part.traced(section, name)
    if "num_nodes" in part.data:
        variables["SKYPILOT_NUM_NODES"] = part.traced("num_nodes")
    resources = part.data.get("resources")
    gpus = resources.get("accelerators") if isinstance(resources, dict) else None
    match = _GPUS.fullmatch(str(gpus))
    if match:
        variables["SKYPILOT_NUM_GPUS_PER_NODE"] = (Piece(match[1], via="accelerators"),)
    return Inside(part.traced("run"), variables=variables)


def _pod(parts: list[_Part]) -> Inside | None:
    """The first container that is told a command; its files are those of every ConfigMap."""
    files = {}
    for part in parts:
        data = part.data.get("data")
        if part.data.get("kind") == "ConfigMap" and isinstance(data, dict):
            for name in data:
                files[name] = part.traced("data", name)
    for part in parts:
        for keys, container in _containers(part.data, (), set()):
            script = _command(part, keys, container)
            if script:
                names = [word for word in _words(container) if PurePosixPath(word).name in files]
                named = {word: files[PurePosixPath(word).name] for word in names}
                return Inside(script, files | named, _environment(part, keys, container))
    return None


def _containers(value: Any, keys: Keys, seen: set[int]) -> Iterator[tuple[Keys, dict[str, Any]]]:
    """seen: what an alias may stand for again, and again within."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, list):
        children = [(str(index), child) for index, child in enumerate(value)]
    elif isinstance(value, dict):
        children = list(value.items())
    else:
        return
    for key, child in children:
        inner = (*keys, key)
        if keys[-1:] == ("containers",) and isinstance(child, dict):
            yield inner, child
        if isinstance(child, list | dict):
            yield from _containers(child, inner, seen)


def _words(container: dict[str, Any]) -> list[str]:
    listed = [container.get(name) for name in ("command", "args")]
    return [str(word) for words in listed if isinstance(words, list) for word in words]


def _command(part: _Part, keys: Keys, container: dict[str, Any]) -> Text:
    """The command and its arguments as a line of bash; what `-c` is given by itself."""
    line: list[Piece] = []
    shell = False
    for section in ("command", "args"):
        words = container.get(section)
        for index, word in enumerate(words if isinstance(words, list) else ()):
            traced = part.traced(*keys, section, str(index))
            if shell:
                return traced
            shell = re.fullmatch(r"-[a-z]*c", str(word)) is not None
            quoted = shlex.quote(str(word))
            line += traced if quoted == str(word) else (Piece(quoted),)
            line.append(Piece(" "))
    return tuple(line)


def _environment(part: _Part, keys: Keys, container: dict[str, Any]) -> dict[str, Text]:
    """Variables with a value; those of a field or secret are known when it runs."""
    out = {}
    listed = container.get("env")
    for index, entry in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(entry, dict) and "name" in entry and "value" in entry:
            out[str(entry["name"])] = part.traced(*keys, "env", str(index), "value")
    return out
