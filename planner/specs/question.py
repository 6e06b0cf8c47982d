"""A question from words that were stated: checked, and restated in part."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, create_model

from planner.errors import InputError, unknown
from planner.layout import (
    MODULES,
    OFFLOAD_CODE,
    OFFLOADS,
    RECOMPUTE,
    RECOMPUTE_CODE,
    SCHEDULE_CODE,
    SCHEDULES,
    module_mask,
)
from planner.specs.documents import build, read_mapping
from planner.specs.recipe import Bounds
from planner.specs.words import LAYOUT, MAX_COUNT, Knob, Question, declared

MIN_BETWEEN_S = 60.0
MAX_HALTED = 100


def _layout_words(kind: Any) -> tuple[str, ...]:
    words = declared(Question).items()
    return tuple(name for name, (of, word) in words if word.panel == LAYOUT and of == kind)


LAYOUT_WORDS = tuple(name for name, (_, word) in declared(Question).items() if word.panel == LAYOUT)
RANGED = _layout_words(Knob)
SWITCHES = _layout_words(bool | None)
LAYERS = _layout_words(int | None)
_RANGE = re.compile(r"(\d{1,12})(?:\.\.(\d{1,12}))?")


_fields: dict[str, Any] = {
    name: (
        Annotated[kind, Field(ge=word.low, gt=word.above, le=word.high)],
        ... if name == "model" else getattr(Question, name),
    )
    for name, (kind, word) in declared(Question).items()
}
_Checked: Any = create_model(
    "Question", __config__=ConfigDict(extra="forbid", allow_inf_nan=False), **_fields
)
"""What checks the types and limits of words."""


def from_words(words: Mapping[str, Any], where: str = "the question") -> Question:
    """The question from stated words; every faulty word in one InputError, unknown names answered
    with the nearest.
    """
    given = {word: value for word, value in words.items() if value is not None}
    for word in RANGED:
        value = given.get(word)
        if isinstance(value, (list, tuple)):
            raise InputError(
                f"{where}: {word} must be a whole number or a range such as 1..8, but got a list;"
                f" a sweep over {word} gives a table"
            )
        if value is not None and type(value) not in (int, str):
            raise InputError(
                f"{where}: {word} must be a whole number or a range such as 1..8, but got"
                f" {str(value)[:40]}"
            )
    checked = build(_Checked, given, where)
    question = Question(**{word: getattr(checked, word) for word in declared(Question)})
    _check_batch(question, where)
    _check_progress(question, where)
    for word, value in question.words().items():
        if isinstance(value, str) and not value.strip():
            raise InputError(
                f"{where}: {word} must be stated, but got nothing; leave it out for the default"
            )
    for word in RANGED:
        bounds(word, getattr(question, word))
    for word, known in (("schedule", SCHEDULES), ("recompute", RECOMPUTE), ("offload", OFFLOADS)):
        _check_known(word, getattr(question, word), known)
    for name in question.recompute_modules or ():
        _check_known("recompute_modules", name, MODULES)
    return question


def _check_batch(question: Question, where: str) -> None:
    if question.global_batch_size and question.global_batch_tokens:
        raise InputError(
            f"{where}: the batch must be stated once, but got global_batch_size and"
            " global_batch_tokens; leave one out"
        )


def _check_progress(question: Question, where: str) -> None:
    """Far beyond these a share of the time that trains is no number at all: exp(-745) is 0."""
    if question.mtbf_hours is None:
        return
    between_s = question.mtbf_hours * 3600 / (question.gpus or 1)
    if between_s < MIN_BETWEEN_S:
        raise InputError(
            f"{where}: mtbf_hours must leave {MIN_BETWEEN_S:.0f} s between interruptions of a run,"
            f" but {question.gpus or 1:,} GPUs of {question.mtbf_hours:g} hours each leave"
            f" {between_s:.3g} s; it counts hours of one GPU"
        )
    for word in ("checkpoint_s", "restart_s"):
        seconds = getattr(question, word) or 0
        if seconds > MAX_HALTED * between_s:
            raise InputError(
                f"{where}: {word} must be at most {MAX_HALTED} times what lies between"
                f" interruptions of a run, {between_s:,.3g} s here, but got {seconds:,.6g}; such a"
                " run makes no progress"
            )


def read(path: str | Path) -> Question:
    """A recipe file."""
    return from_words(read_mapping(Path(path)), str(path))


def bounds(word: str, value: Knob) -> Bounds | None:
    """`8` fixes, `1..8` bounds; InputError for anything else."""
    if value is None:
        return None
    least = 0 if word == "zero" else 1
    most = 3 if word == "zero" else MAX_COUNT
    match = _RANGE.fullmatch(str(value).replace(" ", ""))
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (-1, -1)
    if not least <= low <= high <= most:
        raise InputError(
            f"{word} must be a whole number from {least} to {most:,} or a range such as 1..8, but"
            f" got {str(value)[:40]!r}"
        )
    return Bounds(low=low, high=high)


def limits(question: Question) -> dict[str, Bounds]:
    """What the question fixes or bounds, by layout field; names as codes."""
    limits: dict[str, Bounds] = {}
    for word in RANGED:
        bound = bounds(word, getattr(question, word))
        if bound:
            limits[word] = bound
    fixed: dict[str, int | None] = {
        word: _number(getattr(question, word)) for word in (*SWITCHES, *LAYERS)
    }
    fixed["schedule"] = SCHEDULE_CODE[question.schedule] if question.schedule else None
    fixed["recompute"] = RECOMPUTE_CODE[question.recompute] if question.recompute else None
    fixed["offload"] = OFFLOAD_CODE[question.offload] if question.offload else None
    if question.recompute_modules:
        fixed["recompute_modules"] = module_mask(question.recompute_modules)
    for word, value in fixed.items():
        if value is not None:
            limits[word] = Bounds(low=value, high=value)
    return limits


def changed(question: Question, words: Mapping[str, Any]) -> Question:
    """The question with words restated; what followed from the old ones is derived anew (dp, m,
    schedule, batch).
    """
    restated = {word: value for word, value in words.items() if value is not None and value != ()}
    kept = question.words()
    follows = {word for name in restated for word in _FOLLOWS.get(name, ())}
    if "gpus" not in kept and "gpus" not in restated:
        follows -= {"dp"}
    kept = {word: value for word, value in kept.items() if word not in follows}
    return from_words(kept | restated)


_FOLLOWS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("tp", "pp", "cp", "gpus"), ("dp", "m")),
    "dp": ("gpus", "m"),
    "mbs": ("m",),
    "m": ("global_batch_size", "global_batch_tokens"),
    "global_batch_size": ("m", "global_batch_tokens"),
    "global_batch_tokens": ("m", "global_batch_size"),
    "v": ("schedule", "group"),
    "framework": ("framework_version", "software", "stack", "attention", "switch"),
    "framework_version": ("software",),
    "software": ("framework", "framework_version", "stack", "attention", "switch"),
    "stack": ("framework", "framework_version", "software", "attention", "switch"),
    "recompute": ("recompute_layers", "recompute_modules"),
    "container": ("framework_version", "software"),
    "cluster": ("set",),
    "lora_rank": ("frozen",),
    "frozen": ("lora_rank", "lora_targets", "lora_base"),
}
"""What is dropped from a question when a word of it is restated. Without a GPU count dp is a
statement, not a result.
"""


def _check_known(kind: str, name: str | None, names: tuple[str, ...]) -> None:
    if name is not None and name not in names:
        raise unknown(kind, name, names)


def _number(value: bool | int | None) -> int | None:
    return None if value is None else int(value)
