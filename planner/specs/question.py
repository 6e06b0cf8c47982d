"""Question: what a person asks, in the words of the command line; None = not stated, a default is
chosen and said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, model_validator

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

MOST = 2**27
"""Of tokens in a sequence, sequences in a batch, and every degree: ten times what anyone has run,
and products stay exact.
"""
Count = Annotated[int, Field(ge=1, le=MOST)]
Tokens = Annotated[int, Field(ge=1, le=2**40)]
Gpus = Annotated[int, Field(ge=1, le=2**20)]
Layers = Annotated[int, Field(ge=0, le=2**20)]
LEAST_BETWEEN_S = 60.0
MOST_HALTED = 100
Knob = int | str | None
"""A number fixes the knob, `LOW..HIGH` bounds it, None leaves it to the search (or to the default
of explain).
"""

RANGED = ("tp", "pp", "dp", "cp", "ep", "etp", "v", "mbs", "m", "zero", "hpz", "cp_a2a")
SWITCHES = ("sp", "account_for_embedding", "account_for_loss")
LAYERS = ("first_layers", "last_layers", "recompute_layers", "group")
LAYOUT_WORDS = (
    *RANGED,
    *SWITCHES,
    *LAYERS,
    "schedule",
    "recompute",
    "recompute_modules",
    "offload",
    "stage_layout",
)
_RANGE = re.compile(r"(\d{1,12})(?:\.\.(\d{1,12}))?")


class Question(BaseModel):
    """Words that describe what to train on what, and what the answer may look like. A recipe file
    is one of these in YAML.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str
    gpus: Gpus | None = None
    cluster: str | None = None
    set: tuple[str, ...] = ()
    """Figures of the cluster to change: FIELD=VALUE."""
    seq_length: Count | None = None
    global_batch_size: Count | None = None
    global_batch_tokens: Tokens | None = None
    precision: str | None = None
    framework: str | None = None
    framework_version: str | None = None
    stack: str | None = None
    attention: str | None = None
    max_memory_gib: PositiveFloat | None = None
    mtbf_hours: Annotated[float, Field(ge=1 / 60, le=1e12)] | None = None
    """Mean time between interruptions of one GPU with all that belongs to it; a run's is that over
    its GPUs.
    """
    checkpoint_s: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """How long training stands still for one checkpoint."""
    restart_s: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """From an interruption until the last checkpoint is loaded."""
    optimizer: str | None = None
    lora_rank: Count | None = None
    lora_targets: tuple[str, ...] | None = None
    """Linears that have adapters; None: all."""
    lora_base: str | None = None
    """16bit, or nf4: QLoRA."""
    frozen: tuple[str, ...] | None = None
    """Parts that are not trained."""
    packing: bool | None = None
    mean_length: Count | None = None
    """Mean tokens of a sample."""

    tp: Knob = None
    pp: Knob = None
    dp: Knob = None
    cp: Knob = None
    ep: Knob = None
    etp: Knob = None
    v: Knob = None
    mbs: Knob = None
    m: Knob = None
    zero: Knob = None
    hpz: Knob = None
    cp_a2a: Knob = None
    offload: str | None = None
    sp: bool | None = None
    schedule: str | None = None
    group: Layers | None = None
    recompute: str | None = None
    recompute_layers: Layers | None = None
    recompute_modules: tuple[str, ...] | None = None
    account_for_embedding: bool | None = None
    account_for_loss: bool | None = None
    first_layers: Layers | None = None
    last_layers: Layers | None = None
    stage_layout: str | None = None

    @model_validator(mode="after")
    def _one_batch(self) -> Question:
        if self.global_batch_size and self.global_batch_tokens:
            raise ValueError(
                "the batch must be stated once, but got global_batch_size and global_batch_tokens;"
                " leave one out"
            )
        return self

    @model_validator(mode="after")
    def _may_progress(self) -> Question:
        """Far beyond these a share of the time that trains is no number at all: exp(-745) is 0."""
        if self.mtbf_hours is None:
            return self
        between_s = self.mtbf_hours * 3600 / (self.gpus or 1)
        if between_s < LEAST_BETWEEN_S:
            raise ValueError(
                f"mtbf_hours must leave {LEAST_BETWEEN_S:.0f} s between interruptions of a run, but"
                f" {self.gpus:,} GPUs of {self.mtbf_hours:g} hours each leave {between_s:.3g} s; it"
                " counts hours of one GPU"
            )
        for word, seconds in (("checkpoint_s", self.checkpoint_s), ("restart_s", self.restart_s)):
            if (seconds or 0) > MOST_HALTED * between_s:
                raise ValueError(
                    f"{word} must be at most {MOST_HALTED} times what lies between interruptions of"
                    f" a run, {between_s:,.3g} s here, but got {seconds:,.6g}; such a run makes no"
                    " progress"
                )
        return self


def question(words: Mapping[str, Any], where: str = "the question") -> Question:
    """The question from stated words; every faulty word in one InputError, unknown names answered
    with the nearest.
    """
    asked = build(
        Question, {word: value for word, value in words.items() if value is not None}, where
    )
    empty = [word for word, value in asked if isinstance(value, str) and not value.strip()]
    if empty:
        raise InputError(
            f"{where}: {empty[0]} must be stated, but got nothing; leave it out for the default"
        )
    for word in RANGED:
        bounds(word, getattr(asked, word))
    for word, known in (("schedule", SCHEDULES), ("recompute", RECOMPUTE), ("offload", OFFLOADS)):
        _known(word, getattr(asked, word), known)
    for name in asked.recompute_modules or ():
        _known("recompute_modules", name, MODULES)
    return asked


def read(path: str | Path) -> Question:
    """A recipe file."""
    return question(read_mapping(Path(path)), str(path))


def bounds(word: str, value: Knob) -> Bounds | None:
    """`8` fixes, `1..8` bounds; InputError for anything else."""
    if value is None:
        return None
    least = 0 if word == "zero" else 1
    most = 3 if word == "zero" else MOST
    found = _RANGE.fullmatch(str(value).replace(" ", ""))
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (-1, -1)
    if not least <= low <= high <= most:
        raise InputError(
            f"{word} must be a whole number from {least} to {most:,} or a range such as 1..8, but"
            f" got {str(value)[:40]!r}"
        )
    return Bounds(low=low, high=high)


def limits(asked: Question) -> dict[str, Bounds]:
    """What the question fixes or bounds, by layout field; names as codes."""
    fixed: dict[str, int | None] = {
        word: _number(getattr(asked, word)) for word in (*SWITCHES, *LAYERS)
    }
    fixed["schedule"] = SCHEDULE_CODE[asked.schedule] if asked.schedule else None
    fixed["recompute"] = RECOMPUTE_CODE[asked.recompute] if asked.recompute else None
    fixed["offload"] = OFFLOAD_CODE[asked.offload] if asked.offload else None
    fixed["recompute_modules"] = (
        module_mask(asked.recompute_modules) if asked.recompute_modules else None
    )
    ranged = {word: bounds(word, getattr(asked, word)) for word in RANGED}
    out = {
        word: Bounds(low=value, high=value) for word, value in fixed.items() if value is not None
    }
    return {word: bound for word, bound in ranged.items() if bound} | out


def changed(asked: Question, words: Mapping[str, Any]) -> Question:
    """The question with words restated; what followed from the old ones is derived anew (dp, m,
    schedule, batch).
    """
    stated = {word: value for word, value in words.items() if value is not None and value != ()}
    data = asked.model_dump(exclude_none=True)
    follows = {word for name in stated for word in _FOLLOWS.get(name, ())}
    if "gpus" not in data and "gpus" not in stated:
        follows -= {"dp"}
    return question({word: value for word, value in data.items() if word not in follows} | stated)


_FOLLOWS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("tp", "pp", "cp", "gpus"), ("dp", "m")),
    "dp": ("gpus", "m"),
    "mbs": ("m",),
    "m": ("global_batch_size", "global_batch_tokens"),
    "global_batch_size": ("m", "global_batch_tokens"),
    "global_batch_tokens": ("m", "global_batch_size"),
    "v": ("schedule", "group"),
    "framework": ("framework_version", "stack", "attention"),
    "stack": ("framework", "framework_version", "attention"),
    "recompute": ("recompute_layers", "recompute_modules"),
    "cluster": ("set",),
    "lora_rank": ("frozen",),
    "frozen": ("lora_rank", "lora_targets", "lora_base"),
}
"""What is dropped from a question when a word of it is restated. Without a GPU count dp is a
statement, not a result.
"""


def _known(kind: str, name: str | None, names: tuple[str, ...]) -> None:
    if name is not None and name not in names:
        raise unknown(kind, name, names)


def _number(value: bool | int | None) -> int | None:
    return None if value is None else int(value)
