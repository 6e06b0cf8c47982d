"""The smallest set of changes that makes a launch legal and lets it fit, written into a copy of its file."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.advice.findings import Finding, Way
from planner.advice.names import flag
from planner.errors import InputError
from planner.intake.understood import Understood


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Texts of the files that change, by their path as read."""

    texts: dict[str, str]
    diff: str
    left: tuple[str, ...]
    """Changes that no text could take, in words."""


def needed(findings: list[Finding], joint: Way | None, rules: tuple[str, ...]) -> dict[str, Any]:
    """The way out of all broken rules of the layout together, then the first of each other error and of a memory warning."""
    out: dict[str, Any] = dict(joint.values) if joint else {}
    for one in findings:
        wanted = (one.severity == "error" and not (joint and one.rule in rules)) or one.rule == "memory fits the GPU"
        if wanted and one.ways:
            out = {**one.ways[0].values, **out}
    return out


def rewritten(u: Understood, values: dict[str, Any]) -> Rewritten:
    """The files with the values in place: replaced where they stand, removed, or added to the command."""
    texts: dict[str, list[tuple[int, int, str]]] = {}
    added: list[str] = []
    left: list[str] = []
    for name, value in values.items():
        edit = u.reading.edits.get(name)
        if edit is not None and value is not None:
            texts.setdefault(edit.file, []).append((edit.start, edit.end, _literal(edit.file, value)))
        elif edit is not None:
            added.append(name)
        elif name.startswith("launch."):
            left.append(f"{flag(u.reading.kind, name)} {value}")
        else:
            added.append(name)
    done = {file: _replaced(_read(file), spans) for file, spans in texts.items()}
    main = u.reading.file
    text = done.get(main, _read(main))
    text, more = _with_flags(u, text, {name: values[name] for name in added})
    done[main] = text
    parts = [difflib.unified_diff(_read(file).splitlines(), new.splitlines(), file, f"{file} (fixed)", lineterm="")
             for file, new in done.items()]
    return Rewritten(done, "\n".join(line for part in parts for line in part), (*left, *more))


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise InputError(f"{file} must be a readable text to be written again, but: {fault}") from None


def _literal(file: str, value: Any) -> str:
    if file.endswith((".json", ".yml", ".yaml")):
        return json.dumps(value)
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _replaced(text: str, spans: list[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(set(spans), reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _with_flags(u: Understood, text: str, values: dict[str, Any]) -> tuple[str, list[str]]:
    """Flags put in or taken out of the command's text; what the text cannot take comes back in words."""
    left: list[str] = []
    for name, value in values.items():
        if name.startswith("env."):
            text = _environment(text, name.removeprefix("env."), value)
        elif name.startswith("deepspeed.") or not _is_script(u):
            text, done = _in_document(text, name, value, u)
            left += [] if done else [f"{flag(u.reading.kind, name)} = {value}"]
        elif value is None or value is False:
            text = _without(text, name)
        else:
            text, done = _appended(text, _words(u, name, value), name)
            left += [] if done else [_words(u, name, value)]
    return text, left


def _is_script(u: Understood) -> bool:
    return not u.reading.file.endswith((".json", ".yml", ".yaml", ".toml"))


def _words(u: Understood, name: str, value: Any) -> str:
    label = flag(u.reading.kind, name)
    if name == "add_bias_linear" and value is False:
        return "--disable-bias-linear"
    if u.reading.kind in ("nemo", "bridge"):
        return f"{label}={value}"
    return label if value is True else f"{label} {_literal('', value)}"


def _without(text: str, name: str) -> str:
    """A flag with its values taken out, however its dashes are written."""
    spelled = name.removeprefix("hf.").replace("_", "[-_]")
    return re.sub(rf"[ \t]*--{spelled}(?![\w-])(?:[ =](?![-\\])[^\s\\\"')]+)*", "", text)


def _appended(text: str, words: str, name: str) -> tuple[str, bool]:
    """Added after a flag of the same command: one that is there, else the script's name."""
    for pattern in (r"--micro[-_]batch[-_]size[ =]\S+", r"--global[-_]batch[-_]size[ =]\S+", r"--seq[-_]length[ =]\S+",
                    r"--num[-_]layers[ =]\S+", r"--per_device_train_batch_size[ =]\S+", r"--model_name_or_path[ =]\S+",
                    r"model\.\w+=\S+", r"--tensor_model_parallel_size[ =]\S+", r"--model[ =]\S+", r"\S+\.py\b"):
        found = re.search(pattern, text)
        if found:
            at = found.end() - len(re.search(r"[\"')]*$", found.group()).group())  # type: ignore[union-attr]
            return f"{text[:at]} {words}{text[at:]}", True
    return text, False


def _environment(text: str, name: str, value: Any) -> str:
    gone = re.sub(rf"^export {name}=\S*\n|{name}=\S* ", "", text, flags=re.MULTILINE)
    if value is None:
        return gone
    first, newline, rest = gone.partition("\n")
    line = f"export {name}={value}\n"
    return f"{first}{newline}{line}{rest}" if first.startswith("#!") else line + gone


def _in_document(text: str, name: str, value: Any, u: Understood) -> tuple[str, bool]:
    """A key of a JSON configuration set or removed; other dresses are left to the person."""
    try:
        data = json.loads(text)
    except ValueError:
        return text, False
    *outer, last = name.removeprefix("deepspeed.").split(".")
    at = data
    for part in outer:
        at = at.setdefault(part, {}) if isinstance(at, dict) else {}
    if not isinstance(at, dict):
        return text, False
    if value is None:
        at.pop(last, None)
    else:
        at[last] = value
    return json.dumps(data, indent=2) + "\n", True
