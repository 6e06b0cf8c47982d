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
from planner.advice.flag_names import flag
from planner.advice.rewrite import Change
from planner.errors import InputError
from planner.intake.frameworks.edit import changed
from planner.intake.reading import APPEND
from planner.interpret.interpret import Launch

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
    for finding in findings:
        wanted = (
            finding.severity == "error" and not (joint and finding.rule in rules)
        ) or finding.rule == "memory fits the GPU"
        if wanted and finding.ways:
            out = {**finding.ways[0].values, **out}
    return out


def rewritten(launch: Launch, values: dict[str, Any]) -> Rewritten:
    """The files with the values in place: replaced where they stand, taken out, or added to the
    command or the configuration.
    """
    values = _nodes(launch, values)
    edits, removals = launch.reading.edits, launch.reading.removals
    changes: dict[str, list[Change]] = {}
    added: list[str] = []
    exports: dict[str, Any] = {}
    keys: list[str] = []
    by_hand: list[str] = []
    for name, value in values.items():
        goes = value is None or (value is False and name != "add_bias_linear")
        if name in edits and value is not None:
            edit = edits[name]
            new = Change(edit.start, edit.end, _literal(edit.file, value))
            changes.setdefault(edit.file, []).append(new)
        elif name.startswith("launch."):
            by_hand.append(name)
        elif _home(launch, name).endswith(DOCUMENTS):
            keys.append(name)
        elif name in removals:
            words = "" if goes or name.startswith("env.") else _words(launch, name, value)
            for edit in removals[name]:
                changes.setdefault(edit.file, []).append(Change(edit.start, edit.end, words))
            if value is not None and name.startswith("env."):
                exports[name] = value
        elif goes:
            if name in launch.reading.values:
                by_hand.append(name)
        elif name.startswith("env."):
            exports[name] = value
        elif name.startswith("deepspeed.") or APPEND not in edits or _in_python(launch, name):
            by_hand.append(name)
        else:
            added.append(_words(launch, name, value))
    if added:
        place = edits[APPEND]
        new = Change(place.start, place.end, " " + " ".join(added))
        changes.setdefault(place.file, []).append(new)
    files = {*changes, launch.reading.file, *(_home(launch, name) for name in keys)}
    before = {file: _read(file) for file in sorted(files)}
    texts = {file: rewrite.rewritten(text, changes.get(file, [])) for file, text in before.items()}
    for name, value in exports.items():
        text = texts[launch.reading.file]
        texts[launch.reading.file] = rewrite.exported(text, name.removeprefix("env."), value)
    for name in keys:
        file = _home(launch, name)
        text_with_key = _key(launch, file, texts[file], name, values[name])
        if text_with_key is None:
            by_hand.append(name)
        else:
            texts[file] = text_with_key
    diff: list[str] = []
    for file, new_text in texts.items():
        old, new_lines = before[file].splitlines(), new_text.splitlines()
        diff += difflib.unified_diff(old, new_lines, file, f"{file} (fixed)", lineterm="")
    left = [
        f"{flag(launch.reading.kind, name)} {'out' if values[name] is None else values[name]}"
        for name in values
        if name in by_hand
    ]
    return Rewritten(texts, "\n".join(diff), tuple(left))


def _nodes(launch: Launch, values: dict[str, Any]) -> dict[str, Any]:
    """A GPU count as a number of nodes, where the file states that."""
    each, count = launch.plain.get("launch.gpus_per_node"), values.get("launch.gpus")
    if (
        "launch.nodes" not in launch.reading.edits
        or not isinstance(each, int)
        or not count
        or count % each
    ):
        return values
    return {name: value for name, value in values.items() if name != "launch.gpus"} | {
        "launch.nodes": count // each
    }


def _home(launch: Launch, name: str) -> str:
    """The file that a value belongs to: keys of DeepSpeed's go where its others are."""
    if not name.startswith("deepspeed."):
        return launch.reading.file
    return next(
        (edit.file for key, edit in launch.reading.edits.items() if key.startswith("deepspeed.")),
        launch.reading.file,
    )


def _key(launch: Launch, file: str, text: str, name: str, value: Any) -> str | None:
    """The text of a configuration with a key set, or without it; None where it cannot take it."""
    apart = name.startswith("deepspeed.") and launch.reading.kind != "neox"
    kind = "deepspeed" if apart and file != launch.reading.file else launch.reading.kind
    return changed(file, text, kind, name, value)


def _in_python(launch: Launch, name: str) -> bool:
    """Whether a class says it in torchtitan's Python: no flag changes it."""
    stated = launch.reading.values.get(name)
    return name == "activation_checkpoint.mode" and stated is not None and ".py:" in stated.where


def _words(launch: Launch, name: str, value: Any) -> str:
    label = flag(launch.reading.kind, name)
    if name == "add_bias_linear" and value is False:
        return "--disable-bias-linear"
    if launch.reading.kind in ("nemo", "bridge"):
        return f"{label}={value}"
    if launch.reading.kind == "torchtitan":
        label = f"--{label}"
    if launch.reading.kind == "swift" and value is True:
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
