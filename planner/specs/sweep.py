"""Swept words: `v=1,2,4`, `m=8..12`, `sp=on,off`, and switches of the software:
`cuda_graph=none,attn`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.errors import InputError, unknown
from planner.specs import library, named_software
from planner.specs.question import LAYOUT_WORDS, SWITCHES, changed
from planner.specs.switches.table import BY_FRAMEWORK, check_values
from planner.specs.words import Question

WORDS = (
    *(word for word in LAYOUT_WORDS if word != "recompute_modules"),
    "gpus",
    "global_batch_size",
    "global_batch_tokens",
    "seq_length",
    "precision",
    "attention",
    "software",
    "stack",
    "framework_version",
    "container",
    "cluster",
)
"""What may be swept, beside the switches of every framework."""
MAX_ROWS = 2000
"""Rows of a sweep."""
_SHORT = {"gbs": "global_batch_size", "microbatches": "m"}
_SWITCH = {
    "on": True,
    "true": True,
    "yes": True,
    "1": True,
    "off": False,
    "false": False,
    "no": False,
    "0": False,
}
_RANGE = re.compile(r"(\d{1,9})\.\.(\d{1,9})")


def sweeps(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Values by word, in the order given. InputError for a word that is unknown or stated twice,
    and for no values.
    """
    out: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        word = name.strip().lstrip("-").replace("-", "_")
        word = _SHORT.get(word, word)
        if not equals or not values.strip():
            raise InputError(
                f"--sweep must read WORD=VALUE,VALUE such as v=1,2,4, but got {text[:60]!r}"
            )
        if word not in WORDS and not is_switch(word):
            raise unknown("a swept word", word, (*WORDS, *switch_names()))
        if word in out:
            raise InputError(
                f"--sweep must name a word once, but got {word} twice; write {word}=A,B,C"
            )
        out[word] = [value for part in values.split(",") for value in _values(word, part.strip())]
    return out


def is_switch(word: str) -> bool:
    """Whether a swept word is a switch of some framework."""
    return any(word in switches for switches in BY_FRAMEWORK.values())


def switch_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for table in BY_FRAMEWORK.values() for name in table))


def at(question: Question, point: Mapping[str, Any]) -> Question:
    """The question at one point of a sweep. What it states of the software stays stated where
    another software is the point, and its other switches where a switch is.
    """
    words = {word: value for word, value in point.items() if not is_switch(word)}
    kept = [one for one in question.switch if switch_name(one) not in point]
    swept = [f"{word}={value}" for word, value in point.items() if is_switch(word)]
    of_software = [word for word in ("software", "stack") if word in words]
    if of_software:
        words = {"attention": question.attention, **words}
    if of_software == ["software"]:
        words["stack"] = question.stack
    if of_software == ["stack"] and "container" not in words:
        words = {"framework_version": question.framework_version, **words}
    if swept or of_software:
        words["switch"] = (*kept, *swept)
    return changed(question, words)


def switch_name(word: str) -> str:
    """The switch of `NAME=VALUE`."""
    return word.partition("=")[0].strip().replace("-", "_")


def check_once(over: Mapping[str, Sequence[Any]], words: Mapping[str, Any]) -> None:
    """Raises InputError where a value is named twice, or a swept word has a value of its own too:
    one of the two would be lost.
    """
    fixed = {switch_name(one): one for one in words.get("switch") or ()}
    for word, values in over.items():
        if word in fixed:
            raise InputError(
                f"switch {word} must be stated once, but it is swept and {fixed[word][:60]} is"
                " stated too; leave one out"
            )
        if words.get(word) is not None:
            raise InputError(
                f"{word} must be stated once, but it is swept and {word} {str(words[word])[:40]} is"
                " stated too; leave one out"
            )
        for value in values:
            if values.count(value) > 1:
                raise InputError(
                    f"{word} must be swept over each value once, but got {str(value)[:40]} twice;"
                    " leave one out"
                )


def check_names(over: Mapping[str, Sequence[Any]]) -> None:
    """Raises InputError for a stack or software that nobody knows, and for a value that a swept
    switch cannot take under any framework: that is wrong input, no row without a plan.
    """
    for word, values in over.items():
        if is_switch(word):
            check_values(word, map(str, values))
    for name in over.get("stack", ()):
        library.stack(str(name))
    for name in over.get("software", ()):
        named_software.split(str(name))


def _values(word: str, text: str) -> list[Any]:
    if is_switch(word):
        return [text]
    match = _RANGE.fullmatch(text)
    if match and int(match[2]) - int(match[1]) < MAX_ROWS:
        return list(range(int(match[1]), int(match[2]) + 1))
    if word in SWITCHES:
        if text.lower() not in _SWITCH:
            raise InputError(f"--sweep {word} must get on or off, but got {text[:40]!r}")
        return [_SWITCH[text.lower()]]
    return [int(text) if re.fullmatch(r"\d{1,15}", text) else text]
