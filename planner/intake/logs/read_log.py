"""A training's log: what was run, and what was measured: step time, throughput, memory, losses that
broke, memory that ran out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from planner.errors import InputError
from planner.intake.logs import argument_blocks, oom
from planner.intake.logs.lines import Memory, Step, parse
from planner.intake.logs.oom import Oom
from planner.intake.logs.sampling import stretches
from planner.intake.reading import Reading

MAX_STEPS = 10_000
"""Steps that are read; of a longer log every 16th after these."""
MAX_OOMS = 64
STYLES = (
    "megatron",
    "megatron-deepspeed",
    "neox",
    "nemo",
    "torchtitan",
    "nanotron",
    "bridge",
    "deepspeed",
    "trainer",
)
"""By what their lines tell, most first: where a run prints several, those that are printed most
often count, and of equals the first.
"""
WARM_UP = 3
"""Steps at the start that are not counted: compilation, the allocator, the first collectives. At
most a third of all.
"""


@dataclass(frozen=True, slots=True)
class Log:
    """None where the log does not tell."""

    file: str
    reading: Reading | None
    """Of the last run's arguments that the log prints."""
    style: str | None
    """Whose lines the steps are, one of STYLES."""
    steps: int = 0
    """Steps that were logged, each once."""
    timed: int = 0
    """Of these, the ones that the figures are made of."""
    step_s: float | None = None
    """Median after the warm-up. Made of the throughput where a line states no time and the batch is
    known.
    """
    step_s_low: float | None = None
    """10% and 90% of the timed steps lie below."""
    step_s_high: float | None = None
    tokens_per_s_per_gpu: float | None = None
    model_tflops_per_gpu: float | None = None
    samples_per_s: float | None = None
    global_batch_size: int | None = None
    mfu: float | None = None
    """As the framework prints it, of the peak that it assumes."""
    allocated_bytes: float | None = None
    """Peak of the worst rank that reports."""
    reserved_bytes: float | None = None
    device_bytes: float | None = None
    ranks: int = 0
    """Ranks that report memory."""
    last_loss: float | None = None
    nan_steps: int = 0
    skipped_steps: int = 0
    """Steps without an update: a loss scale that is found, or broken gradients."""
    ooms: tuple[Oom, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Seen:
    steps: dict[tuple[str, int | None, int], Step] = field(default_factory=dict)
    order: int = 0
    memories: dict[int | None, Memory] = field(default_factory=dict)
    ooms: list[Oom] = field(default_factory=list)
    reading: Reading | None = None
    runs: int = 0


def read(path: str | Path) -> Log:
    """What a log says. It is streamed: a log of several GB needs no memory of its size. InputError
    when it cannot be read.
    """
    seen = _Seen()
    name = Path(path).name
    for found in stretches(path):
        if found.kind == "line":
            _line(seen, found.text)
        elif found.kind == "oom":
            _oom(seen, found.text)
        else:
            _block(seen, found.kind, found.text, name)
    return _log(seen, str(path))


def is_log(text: str) -> bool:
    """Whether the start of a file (some 100 kB) is a log's: lines of a training, a block of
    arguments, or memory that ran out.
    """
    head = text[:200_000]
    if head.lstrip().startswith(("{", "#!")):
        return False
    if "- arguments -" in head and " ...." in head:
        return True
    return (
        any(parse(line) is not None for line in head.split("\n")[:2000])
        or oom.parse(head) is not None
    )


def _line(seen: _Seen, text: str) -> None:
    seen.order += 1
    if len(seen.steps) >= MAX_STEPS and seen.order % 16 and "memory (" not in text:
        return
    said = parse(text)
    if isinstance(said, Memory):
        kept = seen.memories.get(said.rank)
        seen.memories[said.rank] = _larger(kept, said) if kept else said
    elif said is not None:
        key = (said.style, said.number, 0 if said.number is not None else seen.order)
        seen.steps.setdefault(key, said)


def _oom(seen: _Seen, text: str) -> None:
    line = text.partition("\n")[0]
    found = oom.parse(text if "ried to allocate " in line else line)
    if found is not None and len(seen.ooms) < MAX_OOMS:
        seen.ooms.append(found)


def _block(seen: _Seen, kind: str, text: str, name: str) -> None:
    if kind == "json":
        seen.reading = argument_blocks.joined(
            seen.reading, argument_blocks.configuration(text, name)
        )
        return
    found = argument_blocks.arguments(text, name)
    if found is not None:
        seen.runs += 1
        seen.reading = found
        for kept in (seen.steps, seen.memories, seen.ooms):
            kept.clear()


def _larger(one: Memory, other: Memory) -> Memory:
    return Memory(
        one.rank,
        _most((one.allocated_bytes, other.allocated_bytes)),
        _most((one.reserved_bytes, other.reserved_bytes)),
        _most((one.device_bytes, other.device_bytes)),
    )


def _log(seen: _Seen, path: str) -> Log:
    styles = [style for style, _, _ in seen.steps]
    style = max((one for one in STYLES if one in styles), key=styles.count) if styles else None
    every = [step for (kind, _, _), step in seen.steps.items() if kind == style]
    steps = [step for step in every if step.number != 1 or len(every) < 3]
    timed = steps[min(WARM_UP, len(steps) // 3) :]
    others = [step for (kind, _, _), step in seen.steps.items() if kind != style]
    peaks = [
        *seen.memories.values(),
        *(Memory(None, step.allocated_bytes, step.reserved_bytes) for step in seen.steps.values()),
    ]
    notes = (
        [f"{seen.runs} runs in one log: the last one's arguments count"] if seen.runs > 1 else []
    )
    losses = [step.loss for step in every if step.loss is not None]
    out = Log(
        path,
        seen.reading,
        style,
        len(every),
        len(timed),
        model_tflops_per_gpu=_median(step.tflops_per_gpu for step in timed)
        or _median(other.tflops_per_gpu for other in others[-len(timed) :]),
        tokens_per_s_per_gpu=_median(step.tokens_per_s_per_gpu for step in timed),
        samples_per_s=_median(step.samples_per_s for step in timed),
        global_batch_size=_batch(timed, seen.reading),
        mfu=_median(step.mfu for step in timed),
        allocated_bytes=_most(one.allocated_bytes for one in peaks),
        reserved_bytes=_most(one.reserved_bytes for one in peaks),
        device_bytes=_most(one.device_bytes for one in peaks),
        ranks=sum(rank is not None for rank in seen.memories),
        last_loss=losses[-1] if losses else None,
        nan_steps=sum(step.nan for step in every),
        skipped_steps=sum(step.skipped for step in every),
        ooms=tuple(seen.ooms),
        notes=tuple(notes),
    )
    return _with_time(out, timed)


def _with_time(out: Log, timed: Sequence[Step]) -> Log:
    times = sorted(
        step.step_s
        for step in timed
        if step.step_s is not None and math.isfinite(step.step_s) and step.step_s > 0
    )
    if times:
        low, high = (times[min(int(share * len(times)), len(times) - 1)] for share in (0.1, 0.9))
        return replace(out, step_s=statistics.median(times), step_s_low=low, step_s_high=high)
    if out.samples_per_s and out.global_batch_size:
        return replace(
            out,
            step_s=out.global_batch_size / out.samples_per_s,
            notes=(*out.notes, "step time of samples per second"),
        )
    return out


def _batch(timed: Sequence[Step], reading: Reading | None) -> int | None:
    stated = [step.global_batch_size for step in timed if step.global_batch_size]
    if stated:
        return stated[-1]
    for name in ("global_batch_size", "deepspeed.train_batch_size"):
        found = reading.values.get(name) if reading else None
        if (
            found
            and isinstance(found.value, int)
            and not isinstance(found.value, bool)
            and found.value > 0
        ):
            return found.value
    return None


def _median(values: Iterable[float | None]) -> float | None:
    stated = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.median(stated) if stated else None


def _most(values: Iterable[float | None]) -> float | None:
    stated = [value for value in values if value is not None and math.isfinite(value)]
    return max(stated) if stated else None


def said(out: Log) -> bool:
    """Whether the log says anything that the program can use."""
    return bool(out.reading or out.steps or out.ooms or out.allocated_bytes or out.reserved_bytes)


def checked(out: Log) -> Log:
    """The log, or InputError where nothing in it is known."""
    if said(out):
        return out
    raise InputError(
        f"{Path(out.file).name} must be a log of Megatron-LM, DeepSpeed, NeMo, torchtitan, nanotron"
        " or the Trainer, but has no line of theirs"
    )
