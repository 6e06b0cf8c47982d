"""Scenarios of forward-only pipelines: what a human writes for `simulate --forward-only`. Times in
milliseconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from planner.errors import InputError
from planner.specs.documents import build, read_mapping

MAX_STAGES = 4096
MAX_BATCHES = 1_000_000
Time = Annotated[float, Field(ge=0.0, le=1e12)]
Mode = Literal["prefill", "decode", "mixed", "disaggregated"]
Chunking = Literal["none", "fixed", "dynamic"]


class _Pipeline(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    p: int = Field(ge=1, le=MAX_STAGES)
    """Stages."""
    t_p2p: Time = 0.0
    """Transfer between neighbouring stages, and from the last back to the first."""
    host: Time = 0.0
    """Host time before a token's batch may start again."""
    slots: PositiveInt | None = None
    """Batches in flight at most; none: no limit."""
    stage_scale: tuple[Annotated[float, Field(gt=0.0, le=1e12)], ...] | None = None
    """Time of each stage over that of a plain one; none: all equal."""

    @model_validator(mode="after")
    def _one_scale_a_stage(self) -> _Pipeline:
        if self.stage_scale is not None and len(self.stage_scale) != self.p:
            raise ValueError(
                f"stage_scale must have one entry a stage, {self.p}, but got"
                f" {len(self.stage_scale)}"
            )
        return self


class BatchScenario(_Pipeline):
    """The lowest form: the batches in order, their time on a plain stage, and whose tokens they
    wait for.
    """

    stage_times_ms: tuple[Time, ...]
    returns: tuple[int, ...] | None = None
    """For each batch the earlier one whose sampled tokens it needs; -1 none."""

    @model_validator(mode="after")
    def _returns_look_back(self) -> BatchScenario:
        if not self.stage_times_ms:
            raise ValueError("stage_times_ms must have at least one batch, but is empty")
        needs = self.returns or ()
        if self.returns is not None and len(needs) != len(self.stage_times_ms):
            raise ValueError(
                f"returns must have one entry a batch, {len(self.stage_times_ms)}, but got"
                f" {len(needs)}"
            )
        wrong = [k for k, need in enumerate(needs) if not -1 <= need < k]
        if wrong:
            raise ValueError(
                f"returns must name an earlier batch or -1, but batch {wrong[0]} names"
                f" {needs[wrong[0]]}"
            )
        return self


class StageCost(BaseModel):
    """What a batch takes on one plain stage: a chunk of x tokens after l costs constant + b x + a
    ((l + x)^2 - l^2).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    constant_ms: Time
    """Of any batch: launches, reading the weights."""
    per_token_ms: Time
    per_token_squared_ms: Time
    decode_ms: Time = 0.0
    """Of one decode sequence for one token: a group of n costs constant + n times this."""
    decode_constant_ms: Time | None = None
    """Constant of decode work where it differs; a merged batch then pays both constants, else one.
    """


class ServingScenario(_Pipeline):
    """The higher form: prompts and decode groups with the cost of a stage; it becomes the lowest
    form.
    """

    mode: Mode | None = None
    """None: decode without a prompt, prefill without sequences, mixed with both."""
    prompt_tokens: int | None = Field(default=None, ge=1, le=10**9)
    chunking: Chunking | None = None
    """None: fixed when chunk_tokens is given, else none."""
    chunk_tokens: PositiveInt | None = None
    """Of every chunk with fixed; of the first with dynamic."""
    smooth: float = Field(default=0.75, ge=0.0, le=1.0)
    """How far dynamic chunks follow the prediction; 0 keeps the first chunk's size."""
    align: PositiveInt = 64
    """Dynamic chunks are multiples of this many tokens."""
    decode_sequences: int | None = Field(default=None, ge=1, le=10**9)
    groups: PositiveInt | tuple[PositiveInt, ...] | None = None
    """Decode groups: how many, or the sequences of each; none: one a stage."""
    rounds: int = Field(default=40, ge=1, le=MAX_BATCHES)
    """Token rounds of each group."""
    merge: Literal["every-group", "one-group"] = "every-group"
    """Mixed: a chunk rides with every decode batch until the prompt is done, or only with group
    0's.
    """
    cost: StageCost | None = None
    model: str | None = None
    """In place of cost, with cluster: a roofline of the model on tp GPUs a stage."""
    cluster: str | None = None
    tp: PositiveInt = 1
    context_tokens: PositiveInt | None = None
    """Tokens that a decode sequence attends to, for model and cluster; none: prompt_tokens, else
    4,096.
    """

    @property
    def does(self) -> Mode:
        if self.mode is not None:
            return self.mode
        if self.decode_sequences is None and not isinstance(self.groups, tuple):
            return "prefill"
        return "mixed" if self.prompt_tokens is not None else "decode"

    @property
    def cuts(self) -> Chunking:
        return self.chunking or ("none" if self.chunk_tokens is None else "fixed")

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Sequences of each group: as listed, or as even as can be."""
        if isinstance(self.groups, tuple):
            return self.groups
        count = self.groups or min(self.p, self.decode_sequences or 1)
        share, rest = divmod(self.decode_sequences or 0, count)
        return (share + 1,) * rest + (share,) * (count - rest)

    @model_validator(mode="after")
    def _complete(self) -> ServingScenario:
        faults = [*_prefill_faults(self), *_decode_faults(self)]
        if self.cost is not None and (self.model or self.cluster):
            faults.append("give either cost or model and cluster, not both")
        if self.model is None:
            stray = [
                word
                for word in ("cluster", "tp", "context_tokens")
                if word in self.model_fields_set
            ]
            faults += [f"{word} goes with a model, but there is none" for word in stray]
        if faults:
            raise ValueError("; ".join(faults))
        return self


def _prefill_faults(scenario: ServingScenario) -> list[str]:
    if scenario.does == "decode":
        return []
    faults = [] if scenario.prompt_tokens else [f"mode {scenario.does} needs prompt_tokens"]
    if scenario.cuts != "none" and scenario.chunk_tokens is None:
        faults.append(f"chunking {scenario.cuts} needs chunk_tokens")
    if scenario.cuts == "dynamic" and (scenario.chunk_tokens or scenario.align) < scenario.align:
        faults.append(
            f"dynamic chunking needs chunk_tokens of at least align, {scenario.align}, but got"
            f" {scenario.chunk_tokens}"
        )
    if scenario.cuts != "none" and (scenario.prompt_tokens or 0) > MAX_BATCHES * (
        scenario.chunk_tokens or 1
    ):
        faults.append(
            f"a prompt must be at most {MAX_BATCHES:,} chunks, but {scenario.prompt_tokens} tokens"
            f" in {scenario.chunk_tokens} are more"
        )
    return faults


def _decode_faults(scenario: ServingScenario) -> list[str]:
    if scenario.does == "prefill":
        return []
    listed = scenario.groups if isinstance(scenario.groups, tuple) else None
    if listed is not None:
        total = sum(listed)
        wrong = not listed or scenario.decode_sequences not in (None, total)
        return (
            [
                f"groups must add up to decode_sequences, {scenario.decode_sequences}, but add up"
                f" to {total}"
            ]
            if wrong
            else []
        )
    if scenario.decode_sequences is None:
        return [
            f"mode {scenario.does} needs decode_sequences, or the sequences of each group as a list"
            " in groups"
        ]
    count, most = (
        scenario.groups if isinstance(scenario.groups, int) else 1,
        min(scenario.decode_sequences, MAX_BATCHES),
    )
    return (
        [
            f"groups must be at most {most:,} (decode_sequences, and {MAX_BATCHES:,}), but got"
            f" {count:,}"
        ]
        if count > most
        else []
    )


def scenario(document: Any, name: str = "scenario") -> BatchScenario | ServingScenario:
    """The scenario of a parsed document; its faults, the first few of many, in one InputError."""
    if not isinstance(document, dict):
        raise InputError(
            f"{name} must be a mapping of names to values, as `p: 4`, but got"
            f" {type(document).__name__}"
        )
    if "stage_times_ms" in document or "returns" in document:
        return build(BatchScenario, document, name)
    return build(ServingScenario, document, name)


def read_scenario(path: str | Path) -> dict[str, Any]:
    """The fields of a scenario's file, not yet checked: options of the command line may add to
    them. Raises InputError.
    """
    return read_mapping(Path(path))
