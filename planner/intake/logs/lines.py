"""One line of a training's log: what it says of a step's time, throughput, loss and memory."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from planner.units import GB, GIB, MIB

LONGEST = 3000
"""Characters of a line that are looked at."""


@dataclass(frozen=True, slots=True)
class Step:
    """One logged step, or the mean of the steps since the last logged one. None where the line does
    not say.
    """

    style: str
    """megatron, megatron-deepspeed, neox, bridge, deepspeed, nemo, torchtitan, nanotron, trainer.
    """
    number: int | None = None
    step_s: float | None = None
    tflops_per_gpu: float | None = None
    """Of the model alone where the framework says so; GPT-NeoX's and Megatron-DeepSpeed's count
    recomputation where there is some.
    """
    tokens_per_s_per_gpu: float | None = None
    samples_per_s: float | None = None
    """Of all GPUs."""
    global_batch_size: int | None = None
    loss: float | None = None
    """NaN where the line prints nan."""
    nan: int = 0
    """Steps whose loss was NaN, as the line counts them; 1 where its own loss is."""
    skipped: int = 0
    mfu: float | None = None
    reserved_bytes: float | None = None
    allocated_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Peaks that a rank reports, in bytes."""

    rank: int | None
    allocated_bytes: float | None = None
    reserved_bytes: float | None = None
    device_bytes: float | None = None


_COLOR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_N = r"([-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|[nN][aA][nN]|[iI][nN][fF]))"
_H = r"([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?[KMGTB]?)"
_ITERATION = re.compile(r"iteration:?\s+(\d+) ?/\s*\d+ \|")
_FIELDS = {
    "elapsed": re.compile(rf"elapsed time per iteration \(ms\): {_N}"),
    "tflops": re.compile(rf"throughput per GPU \(TFLOP/s/GPU\): {_N}"),
    "tflops_old": re.compile(rf"\| TFLOPs: {_N}"),
    "flops_neox": re.compile(r"approx flops per GPU: (\d+(?:\.\d+)?) ?([KMGTP]?)FLOPS"),
    "tgs": re.compile(rf"tokens per gpu per second \(tgs\): {_N}"),
    "samples": re.compile(rf"samples(?: per second|/sec): {_N}"),
    "batch": re.compile(r"global[_ ]batch[_ ]size: *(\d+)"),
    "loss": re.compile(rf"(?:lm[_ ]loss|reduced_train_loss)(?: value)?[:=] *{_N}"),
    "nan": re.compile(r"number of nan iterations: *(\d+)"),
    "skipped": re.compile(r"number of skipped iterations: *(\d+)"),
}
_BRIDGE = re.compile(rf"Step Time : {_N}s GPU utilization: {_N} ?MODEL_TFLOP/s/GPU")
_PIPE = re.compile(rf"steps: (\d+) loss: {_N}.{{0,200}}?iter time \(s\): {_N} samples/sec: {_N}")
_THROUGHPUT = re.compile(
    rf"(?:global_step=(\d+), )?(?:RunningAvg)?SamplesPerSec={_N}(?:, CurrSamplesPerSec={_N})?"
    rf"(?:, MemAllocated={_N}GB, MaxMemAllocated={_N}GB)?"
)
_NEMO = re.compile(rf"train_step_timing in s[:=] ?{_N}")
_NEMO_STEP = re.compile(r"global_step[:=] ?(\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
_NEMO_FLOPS = re.compile(rf"TFLOPS_per_GPU[:=] ?{_N}")
_TITAN = re.compile(
    rf"step: *(\d+)\s+loss: *{_N}\s.{{0,200}}?memory: *{_N}GiB\({_N}%\)\s+(?:tps|wps):"
    rf" *{_N}(?:\s+tflops: *{_N})?"
    rf"(?:\s+mfu: *{_N}%)?"
)
_NANOTRON = re.compile(
    rf"iteration: (\d+) / .{{0,120}}?time_per_iteration_ms: {_H}.{{0,80}}?tokens_per_sec_per_gpu:"
    rf" {_H}"
    rf" \| global_batch_size: {_H} \| lm_loss: {_N}.{{0,40}}?model_tflops_per_gpu: {_H}"
)
_TRAINER = re.compile(
    rf"'train_samples_per_second': '?{_N}.{{0,40}}?'train_steps_per_second': '?{_N}"
)
_TRAINER_LOSS = re.compile(rf"'train_loss': '?{_N}")
_MEMORY = re.compile(r"memory \((MB|GB)\)")
_PEAKS = {
    "allocated_bytes": re.compile(
        rf"(?:max allocated|mem-max-allocated-gigabytes|peak_allocated_mem|max_allocated)\S*: {_N}"
    ),
    "reserved_bytes": re.compile(
        rf"(?:max reserved|mem-max-reserved-gigabytes|peak_reserved_mem|max_reserved)\S*: {_N}"
    ),
    "device_bytes": re.compile(rf"total device memory used: {_N}"),
}
_RANK = re.compile(r"\[Rank (\d+)\]")
_SEE = re.compile(rf"Max_MA {_N} GB\s+CA {_N} GB\s+Max_CA {_N} GB")
_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "B": 1e9}


def parse(line: str) -> Step | Memory | None:
    """What a line says; None for any other line. Wording of Megatron 0.12 to 0.19 and main,
    Megatron-DeepSpeed, GPT-NeoX, Bridge, DeepSpeed's engines, NeMo 1 and 2, torchtitan, nanotron
    and the Trainer's last line."""
    text = line[:LONGEST]
    if "\x1b" in line:
        text = _COLOR.sub("", text)
    for word, pattern, read in _STYLES:
        if word in text:
            match = pattern.search(text)
            return read(match, text) if match else None
    return None


def _megatron(match: re.Match[str], text: str) -> Step:
    style, tflops = "megatron", _field(text, "tflops")
    flops, old = _FIELDS["flops_neox"].search(text), _field(text, "tflops_old")
    if flops:
        style, tflops = "neox", float(flops[1]) * _SCALE[flops[2]] / 1e12
    elif old is not None:
        style, tflops = "megatron-deepspeed", old
    loss = _field(text, "loss")
    return Step(
        style,
        _int(_figure(_ITERATION.search(text))),
        _number(match[1]) / 1e3,
        tflops,
        _field(text, "tgs"),
        _field(text, "samples"),
        _int(_field(text, "batch")),
        loss,
        max(int(_field(text, "nan") or 0), _is_nan(loss)),
        int(_field(text, "skipped") or 0),
    )


def _bridge(match: re.Match[str], text: str) -> Step:
    return Step("bridge", step_s=_number(match[1]), tflops_per_gpu=_number(match[2]))


def _pipe(match: re.Match[str], text: str) -> Step:
    loss = _number(match[2])
    return Step(
        "deepspeed",
        int(match[1]),
        _number(match[3]),
        samples_per_s=_number(match[4]),
        loss=loss,
        nan=_is_nan(loss),
    )


def _timer(match: re.Match[str], text: str) -> Step:
    """DeepSpeed's ThroughputTimer: samples of all data-parallel ranks a second, the current ones
    where it prints both.
    """
    peak = _figure(match, 5)
    return Step(
        "deepspeed",
        _int(_figure(match, 1)),
        samples_per_s=_number(match[3] or match[2]),
        allocated_bytes=peak and peak * GIB,
    )


def _nemo(match: re.Match[str], text: str) -> Step:
    loss = _field(text, "loss")
    return Step(
        "nemo",
        _int(_figure(_NEMO_STEP.search(text))),
        _number(match[1]),
        _figure(_NEMO_FLOPS.search(text)),
        global_batch_size=_int(_field(text, "batch")),
        loss=loss,
        nan=_is_nan(loss) or int("reduced_train_loss=nan" in text),
    )


def _titan(match: re.Match[str], text: str) -> Step:
    loss, mfu_percent = _number(match[2]), _figure(match, 7)
    return Step(
        "torchtitan",
        int(match[1]),
        None,
        _figure(match, 6),
        _number(match[5]),
        loss=loss,
        nan=_is_nan(loss),
        mfu=mfu_percent and mfu_percent / 100,
        reserved_bytes=_number(match[3]) * GIB,
    )


def _nanotron(match: re.Match[str], text: str) -> Step:
    loss = _number(match[5])
    return Step(
        "nanotron",
        int(match[1]),
        _scaled(match[2]) / 1e3,
        _scaled(match[6]),
        _scaled(match[3]),
        global_batch_size=int(_scaled(match[4])),
        loss=loss,
        nan=_is_nan(loss),
    )


def _trainer(match: re.Match[str], text: str) -> Step | None:
    """The Trainer's summary at the end: the mean over the whole run, evaluation and saving
    included.
    """
    steps_per_s = _number(match[2])
    if not steps_per_s > 0:
        return None
    return Step(
        "trainer",
        None,
        1 / steps_per_s,
        samples_per_s=_number(match[1]),
        loss=_figure(_TRAINER_LOSS.search(text)),
    )


def _memory(match: re.Match[str], text: str) -> Memory | None:
    """Megatron's report (MiB), Bridge's (1e9 bytes); the largest of the steps so far."""
    scale = {"MB": MIB, "GB": GB}[match[1]]
    sizes_bytes = {}
    for name, pattern in _PEAKS.items():
        size = _figure(pattern.search(text))
        if size is not None:
            sizes_bytes[name] = size * scale
    if not sizes_bytes:
        return None
    return Memory(_int(_figure(_RANK.search(text))), **sizes_bytes)


def _see(match: re.Match[str], text: str) -> Memory:
    """DeepSpeed's see_memory_usage: GiB, and the peak reserved in whole ones."""
    reserved = max(_number(match[2]), _number(match[3]))
    return Memory(None, _number(match[1]) * GIB, reserved * GIB)


_STYLES: tuple[tuple[str, re.Pattern[str], Callable[..., Step | Memory | None]], ...] = (
    ("elapsed time per iteration", _FIELDS["elapsed"], _megatron),
    ("memory (", _MEMORY, _memory),
    ("Max_MA", _SEE, _see),
    ("Step Time :", _BRIDGE, _bridge),
    ("iter time (s):", _PIPE, _pipe),
    ("SamplesPerSec=", _THROUGHPUT, _timer),
    ("train_step_timing", _NEMO, _nemo),
    ("time_per_iteration_ms", _NANOTRON, _nanotron),
    ("'train_samples_per_second'", _TRAINER, _trainer),
    ("ps: ", _TITAN, _titan),
)
"""A word by which a line is known, what must be in it then, and who reads that; first come, first
served.
"""


def _field(text: str, name: str) -> float | None:
    return _figure(_FIELDS[name].search(text))


def _figure(match: re.Match[str] | None, group: int = 1) -> float | None:
    """The number in a group; None where the line has none."""
    return _number(match[group]) if match and match[group] else None


def _number(word: str) -> float:
    return float(word.replace(",", ""))


def _int(value: float | None) -> int | None:
    return int(value) if value is not None and math.isfinite(value) else None


def _is_nan(loss: float | None) -> int:
    """1 where the loss is not a number."""
    return int(loss is not None and math.isnan(loss))


def _scaled(word: str) -> float:
    number = word.rstrip("KMGTB")
    return float(number) * _SCALE[word[len(number) :]]
