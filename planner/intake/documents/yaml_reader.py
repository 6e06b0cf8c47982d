"""YAML by its events: no object is constructed, an alias is shared and never copied, depth and
count are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from planner.errors import InputError
from planner.intake.documents.scalars import plain
from planner.intake.documents.tree import DEEPEST, Document, Path, Span

MAX_EVENTS = 60_000
"""Tokens of a file: more than any config has, and under 5 s to read."""


@dataclass(slots=True)
class _Frame:
    """A mapping or list that is open."""

    value: dict[str, Any] | list[Any]
    path: Path
    start: int
    key: str | None = None
    merges: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class _Building:
    """What has been read so far."""

    frames: list[_Frame] = field(default_factory=list)
    spans: dict[Path, Span] = field(default_factory=dict)
    anchors: dict[str, Any] = field(default_factory=dict)
    duplicates: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    root: Any = None
    documents: int = 0


def load(text: str, path: str) -> Document:
    """The first document of a YAML text. InputError: what does not hold, and the line."""
    import yaml

    file = path.rsplit("/", 1)[-1]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    building = _Building()
    try:
        for count, event in enumerate(yaml.parse(text, Loader=loader)):
            if count > MAX_EVENTS:
                raise InputError(
                    f"{file} must have at most {MAX_EVENTS:,} YAML tokens, but has more"
                )
            _take(building, event, file)
    except (yaml.YAMLError, UnicodeError, ValueError, RecursionError) as fault:
        raise InputError(f"{file} must be YAML, but {_problem(fault)}") from None
    notes = list(building.notes)
    if building.documents > 1:
        notes.append(f"{file} holds {building.documents} documents: the first was read")
    return Document(path, building.root, building.spans, tuple(building.duplicates), tuple(notes))


def _take(building: _Building, event: Any, file: str) -> None:
    kind = type(event).__name__
    if kind == "DocumentStartEvent":
        building.documents += 1
    if building.documents != 1:
        return
    if kind == "MappingStartEvent":
        _open(building, event, {}, file)
    elif kind == "SequenceStartEvent":
        _open(building, event, [], file)
    elif kind in ("MappingEndEvent", "SequenceEndEvent"):
        _close(building, event)
    elif kind == "AliasEvent":
        if event.anchor not in building.anchors:
            raise InputError(f"{file} must set the anchor *{event.anchor[:40]} before it is used")
        _put(building, building.anchors[event.anchor], None)
    elif kind == "ScalarEvent":
        _scalar(building, event)


def _open(building: _Building, event: Any, value: dict[str, Any] | list[Any], file: str) -> None:
    if len(building.frames) >= DEEPEST:
        raise InputError(f"{file} must be nested at most {DEEPEST} deep, but is deeper")
    path = _path(building)
    if _wants_key(building):
        raise InputError(
            f"{file}:{event.start_mark.line + 1} must have text as a key, but a list or mapping"
            " is one"
        )
    if event.anchor:
        building.anchors[event.anchor] = value
    building.frames.append(_Frame(value, path, event.start_mark.index))


def _wants_key(building: _Building) -> bool:
    """Whether what comes next is a key of the mapping that is open."""
    if not building.frames:
        return False
    frame = building.frames[-1]
    return isinstance(frame.value, dict) and frame.key is None


def _close(building: _Building, event: Any) -> None:
    frame = building.frames.pop()
    if isinstance(frame.value, dict):
        for merged in frame.merges:
            for key, value in merged.items():
                frame.value.setdefault(key, value)
    _put(building, frame.value, (frame.start, event.end_mark.index))


def _scalar(building: _Building, event: Any) -> None:
    if event.tag and "python" in event.tag:
        building.notes.append(f"the tag {event.tag[:60]} was not followed: its text was read")
    if _wants_key(building):
        frame = building.frames[-1]
        if event.value in frame.value:
            building.duplicates.append(event.value)
        frame.key = event.value
        return
    value = event.value
    if not event.style and event.tag is None:
        value = plain(value)
    if event.anchor:
        building.anchors[event.anchor] = value
    _put(building, value, (event.start_mark.index, event.end_mark.index))


def _put(building: _Building, value: Any, span: Span | None) -> None:
    if not building.frames:
        building.root = value
        if span is not None:
            building.spans[()] = span
        return
    path, frame = _path(building), building.frames[-1]
    if isinstance(frame.value, list):
        frame.value.append(value)
    elif frame.key == "<<" and isinstance(value, dict | list):
        merged = value if isinstance(value, list) else [value]
        frame.merges += [mapping for mapping in merged if isinstance(mapping, dict)]
        frame.key = None
        return
    elif frame.key is not None:
        frame.value[frame.key] = value
        frame.key = None
    elif span is None:
        raise InputError("a YAML alias must stand for a value, but one is a key")
    if span is not None:
        building.spans[path] = span
    else:
        building.spans.pop(path, None)


def _path(building: _Building) -> Path:
    if not building.frames:
        return ()
    frame = building.frames[-1]
    if isinstance(frame.value, list):
        return (*frame.path, str(len(frame.value)))
    return (*frame.path, frame.key or "")


def _problem(fault: BaseException) -> str:
    mark = getattr(fault, "problem_mark", None)
    problem = type(fault).__name__
    if str(fault):
        problem = getattr(fault, "problem", None) or str(fault).splitlines()[0][:120]
    return problem if mark is None else f"line {mark.line + 1}: {problem}"
