"""A training's log: what was run, and what was measured: step time, throughput, memory, losses that
broke, memory that ran out.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from planner.errors import InputError
from planner.intake.documents.scalars import is_positive_int
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
    for stretch in stretches(path):
        if stretch.kind == "line":
            _line(seen, stretch.text)
        elif stretch.kind == "oom":
            _oom(seen, stretch.text)
        else:
            _block(seen, stretch.kind, stretch.text, name)
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
    lines = head.split("\n")[:2000]
    return any(map(parse, lines)) or oom.parse(head) is not None


def _line(seen: _Seen, text: str) -> None:
    seen.order += 1
    if len(seen.steps) >= MAX_STEPS and seen.order % 16 and "memory (" not in text:
        return
    entry = parse(text)
    if isinstance(entry, Memory):
        pair = (seen.memories.get(entry.rank, entry), entry)
        seen.memories[entry.rank] = Memory(
            entry.rank,
            _largest(pair, "allocated_bytes"),
            _largest(pair, "reserved_bytes"),
            _largest(pair, "device_bytes"),
        )
    elif entry is not None:
        key = (entry.style, entry.number, 0 if entry.number is not None else seen.order)
        seen.steps.setdefault(key, entry)


def _oom(seen: _Seen, text: str) -> None:
    if "ried to allocate " not in text:
        text = text.partition("\n")[0]
    message = oom.parse(text)
    if message is not None and len(seen.ooms) < MAX_OOMS:
        seen.ooms.append(message)


def _block(seen: _Seen, kind: str, text: str, name: str) -> None:
    if kind == "json":
        configuration = argument_blocks.configuration(text, name)
        seen.reading = argument_blocks.joined(seen.reading, configuration)
        return
    arguments = argument_blocks.arguments(text, name)
    if arguments is not None:
        seen.runs += 1
        seen.reading = arguments
        seen.steps.clear()
        seen.memories.clear()
        seen.ooms.clear()


def _log(seen: _Seen, path: str) -> Log:
    counts = Counter(step.style for step in seen.steps.values())
    style = max(STYLES, key=lambda name: counts[name]) if counts else None
    logged: list[Step] = []
    others: list[Step] = []
    for step in seen.steps.values():
        (logged if step.style == style else others).append(step)
    warm = [step for step in logged if step.number != 1 or len(logged) < 3]
    timed = warm[min(WARM_UP, len(warm) // 3) :]
    memories = list(seen.memories.values())
    peaks: list[Step | Memory] = [*memories, *seen.steps.values()]
    losses = [step.loss for step in logged if step.loss is not None]
    out = Log(
        path,
        seen.reading,
        style,
        len(logged),
        len(timed),
        model_tflops_per_gpu=_median(timed, "tflops_per_gpu")
        or _median(others[-len(timed) :], "tflops_per_gpu"),
        tokens_per_s_per_gpu=_median(timed, "tokens_per_s_per_gpu"),
        samples_per_s=_median(timed, "samples_per_s"),
        global_batch_size=_batch(timed, seen.reading),
        mfu=_median(timed, "mfu"),
        allocated_bytes=_largest(peaks, "allocated_bytes"),
        reserved_bytes=_largest(peaks, "reserved_bytes"),
        device_bytes=_largest(memories, "device_bytes"),
        ranks=len(seen.memories.keys() - {None}),
        last_loss=losses[-1] if losses else None,
        nan_steps=sum(step.nan for step in logged),
        skipped_steps=sum(step.skipped for step in logged),
        ooms=tuple(seen.ooms),
    )
    if seen.runs > 1:
        note = f"{seen.runs} runs in one log: the last one's arguments count"
        out = replace(out, notes=(note,))
    return _with_time(out, timed)


def _with_time(out: Log, timed: Sequence[Step]) -> Log:
    times = sorted(time for time in _finite(timed, "step_s") if time > 0)
    if times:
        low, high = times[int(0.1 * len(times))], times[int(0.9 * len(times))]
        return replace(out, step_s=statistics.median(times), step_s_low=low, step_s_high=high)
    if out.samples_per_s and out.global_batch_size:
        return replace(
            out,
            step_s=out.global_batch_size / out.samples_per_s,
            notes=(*out.notes, "step time of samples per second"),
        )
    return out


def _batch(timed: Sequence[Step], reading: Reading | None) -> int | None:
    """Sequences of a step: as the last line states it, else as the arguments do."""
    for step in reversed(timed):
        if step.global_batch_size:
            return step.global_batch_size
    if reading is not None:
        for name in ("global_batch_size", "deepspeed.train_batch_size"):
            if name in reading.values and is_positive_int(reading.values[name].value):
                return int(reading.values[name].value)
    return None


def _finite(entries: Sequence[Step | Memory], name: str) -> list[float]:
    """A figure of those that state it."""
    figures = [getattr(entry, name) for entry in entries]
    return [figure for figure in figures if figure is not None and math.isfinite(figure)]


def _median(steps: Sequence[Step], name: str) -> float | None:
    figures = _finite(steps, name)
    return statistics.median(figures) if figures else None


def _largest(entries: Sequence[Step | Memory], name: str) -> float | None:
    return max(_finite(entries, name), default=None)


def checked(out: Log) -> Log:
    """The log, or InputError where nothing in it is known."""
    if out.reading or out.steps or out.ooms or out.allocated_bytes or out.reserved_bytes:
        return out
    raise InputError(
        f"{Path(out.file).name} must be a log of Megatron-LM, DeepSpeed, NeMo, torchtitan, nanotron"
        " or the Trainer, but has no line of theirs"
    )
