"""The smallest set of changes that makes a launch legal and lets it fit, written into a copy of its
file.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.advice import rewrite
from planner.advice.findings import Finding, Way
from planner.advice.names import flag
from planner.errors import InputError
from planner.intake.frameworks.edit import changed
from planner.interpret.interpret import Understood

DOCUMENTS = (".json", ".yml", ".yaml", ".toml")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Texts of the files that change, by their path as read."""

    texts: dict[str, str]
    diff: str
    left: tuple[str, ...]
    """Changes that no text could take, in words."""


def needed(findings: list[Finding], joint: Way | None, rules: tuple[str, ...]) -> dict[str, Any]:
    """The way out of all broken rules of the layout together, then the first of each other error
    and of a memory warning.
    """
    out: dict[str, Any] = dict(joint.values) if joint else {}
    for one in findings:
        wanted = (
            one.severity == "error" and not (joint and one.rule in rules)
        ) or one.rule == "memory fits the GPU"
        if wanted and one.ways:
            out = {**one.ways[0].values, **out}
    return out


def rewritten(u: Understood, values: dict[str, Any]) -> Rewritten:
    """The files with the values in place: replaced where they stand, taken out, or added to the
    command or the configuration.
    """
    values = _nodes(u, values)
    edits = u.reading.edits
    spans: dict[str, list[tuple[int, int, str]]] = {}
    for name, value in values.items():
        if name in edits and value is not None:
            spans.setdefault(edits[name].file, []).append(
                (edits[name].start, edits[name].end, _literal(edits[name].file, value))
            )
    before = {file: _read(file) for file in {*spans, u.reading.file}}
    texts = {file: rewrite.replaced(text, spans.get(file, [])) for file, text in before.items()}
    left = []
    for name, value in values.items():
        if name not in edits or value is None:
            file = _home(u, name)
            before.setdefault(file, _read(file))
            text = _one(u, texts.get(file, before[file]), name, value)
            left += (
                []
                if text is not None
                else [f"{flag(u.reading.kind, name)} {'out' if value is None else value}"]
            )
            texts[file] = texts.get(file, before[file]) if text is None else text
    parts = [
        difflib.unified_diff(
            before[file].splitlines(), new.splitlines(), file, f"{file} (fixed)", lineterm=""
        )
        for file, new in texts.items()
    ]
    return Rewritten(texts, "\n".join(line for part in parts for line in part), tuple(left))


def _nodes(u: Understood, values: dict[str, Any]) -> dict[str, Any]:
    """A GPU count as a number of nodes, where the file states that."""
    each, count = u.plain.get("launch.gpus_per_node"), values.get("launch.gpus")
    if (
        "launch.nodes" not in u.reading.edits
        or not isinstance(each, int)
        or not count
        or count % each
    ):
        return values
    return {name: value for name, value in values.items() if name != "launch.gpus"} | {
        "launch.nodes": count // each
    }


def _home(u: Understood, name: str) -> str:
    """The file that a value belongs to: keys of DeepSpeed's go where its others are."""
    if not name.startswith("deepspeed."):
        return u.reading.file
    return next(
        (edit.file for key, edit in u.reading.edits.items() if key.startswith("deepspeed.")),
        u.reading.file,
    )


def _one(u: Understood, text: str, name: str, value: Any) -> str | None:
    """One value that has no place yet, or is to go; None where the text cannot take it."""
    file = _home(u, name)
    if name.startswith("launch."):
        return None
    if file.endswith(DOCUMENTS):
        return _key(u, file, text, name, value)
    if name.startswith("env."):
        return rewrite.environment(text, name.removeprefix("env."), value)
    if name.startswith("deepspeed."):
        return None
    if value is None or (value is False and name != "add_bias_linear"):
        return rewrite.without(text, name, u.plain.get(name))
    return rewrite.appended(text, _words(u, name, value))


def _key(u: Understood, file: str, text: str, name: str, value: Any) -> str | None:
    """A key of a configuration; of a JSON whose style is not followed the whole is written
    again.
    """
    apart = name.startswith("deepspeed.") and u.reading.kind != "neox"
    new = changed(
        file, text, "deepspeed" if apart and file != u.reading.file else u.reading.kind, name, value
    )
    if (
        new is None
        and apart
        and u.reading.kind in ("deepspeed", "megatron-deepspeed", "huggingface")
        and file.endswith(".json")
    ):
        return rewrite.keyed(text, name.removeprefix("deepspeed.").split("."), value)
    return new


def _words(u: Understood, name: str, value: Any) -> str:
    label = flag(u.reading.kind, name)
    if name == "add_bias_linear" and value is False:
        return "--disable-bias-linear"
    if u.reading.kind in ("nemo", "bridge"):
        return f"{label}={value}"
    if u.reading.kind == "swift" and value is True:
        return f"{label} true"
    return label if value is True else f"{label} {_literal('', value)}"


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise InputError(
            f"{file} must be a readable text to be written again, but: {fault}"
        ) from None


def _literal(file: str, value: Any) -> str:
    if file.endswith(DOCUMENTS):
        return json.dumps(value)
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
