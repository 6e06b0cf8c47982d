"""Changes of a text that keep everything else as it is: a flag added to a command, taken out of it,
a key of a configuration set.
"""

from __future__ import annotations

import json
import re
from typing import Any

ANCHORS = (
    r"--micro[-_]batch[-_]size[ =]",
    r"--global[-_]batch[-_]size[ =]",
    r"--seq[-_]length[ =]",
    r"--num[-_]layers[ =]",
    r"--per_device_train_batch_size[ =]",
    r"--model_name_or_path[ =]",
    r"--tensor[-_]model[-_]parallel[-_]size[ =]",
    r"--model[ =]",
    r"model\.\w+=",
)
"""What a training command has: a new flag goes behind the first of these that is there."""
_VALUE = r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"')]+)"


def appended(text: str, words: str) -> str | None:
    """The text with words behind a flag of the training command, else behind its script; None where
    there is neither.
    """
    for pattern in (*(anchor + _VALUE for anchor in ANCHORS), r"(?<![\w/])[\w./${}-]+\.py\b"):
        for found in re.finditer(pattern, text):
            if not _commented(text, found.start()):
                return f"{text[: found.end()]} {words}{text[found.end() :]}"
    return None


def without(text: str, name: str, value: Any) -> str:
    """A flag taken out with as many words as its value has; also `model.name=value` of an
    override.
    """
    spelled = re.escape(name.removeprefix("hf.")).replace("_", "[-_]")
    count = 0 if value is True else len(value) if isinstance(value, list) else 1
    words = rf"(?:[ \t]+{_VALUE}|={_VALUE})" * min(count, 1) + rf"(?:[ \t]+{_VALUE})" * max(
        count - 1, 0
    )
    text = re.sub(rf"[ \t]*(?<![\w-])--{spelled}(?![\w-]){words}", "", text)
    return re.sub(rf"[ \t]*(?<![\w.])(?:\+{{0,2}}model\.){spelled}={_VALUE}", "", text)


def _commented(text: str, at: int) -> bool:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line.lstrip().startswith("#") or " #" in line


def environment(text: str, name: str, value: Any) -> str:
    """A variable exported at the top, or no longer set."""
    gone = re.sub(rf"^export {name}=\S*\n|\b{name}=\S* ", "", text, flags=re.MULTILINE)
    if value is None:
        return gone
    first, newline, rest = gone.partition("\n")
    line = f"export {name}={value}\n"
    return f"{first}{newline}{line}{rest}" if first.startswith("#!") else line + gone


def keyed(text: str, path: list[str], value: Any) -> str | None:
    """A key of a JSON configuration set, or removed where the value is None; None where the text is
    no plain JSON.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    at = data
    for part in path[:-1]:
        at = at.setdefault(part, {}) if isinstance(at, dict) else None
    if not isinstance(at, dict):
        return None
    if value is None:
        at.pop(path[-1], None)
    else:
        at[path[-1]] = value
    return json.dumps(data, indent=2) + "\n"


def replaced(text: str, spans: list[tuple[int, int, str]]) -> str:
    """Spans of the text, which do not overlap, with new words in their place."""
    for start, end, new in sorted(set(spans), reverse=True):
        text = text[:start] + new + text[end:]
    return text
