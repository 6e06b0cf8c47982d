"""One line of a training's log: what it says of a step's time, throughput, loss and memory."""

from __future__ import annotations

import math
import re
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
    allocated_bytes: float | None
    reserved_bytes: float | None
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
    "allocated": re.compile(
        rf"(?:max allocated|mem-max-allocated-gigabytes|peak_allocated_mem|max_allocated)\S*: {_N}"
    ),
    "reserved": re.compile(
        rf"(?:max reserved|mem-max-reserved-gigabytes|peak_reserved_mem|max_reserved)\S*: {_N}"
    ),
    "device": re.compile(rf"total device memory used: {_N}"),
}
_RANK = re.compile(r"\[Rank (\d+)\]")
_SEE = re.compile(rf"Max_MA {_N} GB\s+CA {_N} GB\s+Max_CA {_N} GB")
_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "B": 1e9}


def parse(line: str) -> Step | Memory | None:
    """What a line says; None for any other line. Wording of Megatron 0.12 to 0.19 and main,
    Megatron-DeepSpeed, GPT-NeoX, Bridge, DeepSpeed's engines, NeMo 1 and 2, torchtitan, nanotron
    and the Trainer's last line."""
    text = _COLOR.sub("", line[:LONGEST]) if "\x1b" in line else line[:LONGEST]
    if "elapsed time per iteration" in text:
        return _megatron(text)
    if "memory (" in text:
        return _memory(text)
    if "Max_MA" in text:
        return _see(text)
    for word, read in (
        ("Step Time :", _bridge),
        ("iter time (s):", _pipe),
        ("SamplesPerSec=", _timer),
        ("train_step_timing", _nemo),
        ("time_per_iteration_ms", _nanotron),
        ("'train_samples_per_second'", _trainer),
        ("ps: ", _titan),
    ):
        if word in text:
            return read(text)
    return None


def _megatron(text: str) -> Step | None:
    elapsed = _field(text, "elapsed")
    if elapsed is None:
        return None
    number = _ITERATION.search(text)
    flops = _FIELDS["flops_neox"].search(text)
    tflops = _field(text, "tflops")
    style = "megatron"
    if flops:
        style, tflops = "neox", float(flops[1]) * _SCALE[flops[2]] / 1e12
    elif (old := _field(text, "tflops_old")) is not None:
        style, tflops = "megatron-deepspeed", old
    loss = _field(text, "loss")
    nan, skipped = _field(text, "nan") or 0, _field(text, "skipped") or 0
    return Step(
        style,
        int(number[1]) if number else None,
        elapsed / 1e3,
        tflops,
        _field(text, "tgs"),
        _field(text, "samples"),
        _whole(_field(text, "batch")),
        loss,
        max(int(nan), int(loss is not None and math.isnan(loss))),
        int(skipped),
    )


def _bridge(text: str) -> Step | None:
    match = _BRIDGE.search(text)
    return (
        Step("bridge", step_s=_number(match[1]), tflops_per_gpu=_number(match[2]))
        if match
        else None
    )


def _pipe(text: str) -> Step | None:
    match = _PIPE.search(text)
    if not match:
        return None
    loss = _number(match[2])
    return Step(
        "deepspeed",
        int(match[1]),
        _number(match[3]),
        samples_per_s=_number(match[4]),
        loss=loss,
        nan=int(math.isnan(loss)),
    )


def _timer(text: str) -> Step | None:
    """DeepSpeed's ThroughputTimer: samples of all data-parallel ranks a second, the current ones
    where it prints both.
    """
    match = _THROUGHPUT.search(text)
    if not match:
        return None
    peak = _number(match[5]) * GIB if match[5] else None
    return Step(
        "deepspeed",
        int(match[1]) if match[1] else None,
        samples_per_s=_number(match[3] or match[2]),
        allocated_bytes=peak,
    )


def _nemo(text: str) -> Step | None:
    found, step, flops = _NEMO.search(text), _NEMO_STEP.search(text), _NEMO_FLOPS.search(text)
    if not found:
        return None
    loss = _field(text, "loss")
    bad = int(loss is not None and math.isnan(loss)) or int("reduced_train_loss=nan" in text)
    return Step(
        "nemo",
        int(float(step[1])) if step else None,
        _number(found[1]),
        _number(flops[1]) if flops else None,
        global_batch_size=_whole(_field(text, "batch")),
        loss=loss,
        nan=bad,
    )


def _titan(text: str) -> Step | None:
    match = _TITAN.search(text)
    if not match:
        return None
    loss = _number(match[2])
    tflops, mfu = (_number(match[at]) if match[at] else None for at in (6, 7))
    return Step(
        "torchtitan",
        int(match[1]),
        None,
        tflops,
        _number(match[5]),
        loss=loss,
        nan=int(math.isnan(loss)),
        mfu=mfu / 100 if mfu is not None else None,
        reserved_bytes=_number(match[3]) * GIB,
    )


def _nanotron(text: str) -> Step | None:
    match = _NANOTRON.search(text)
    if not match:
        return None
    loss = _number(match[5])
    return Step(
        "nanotron",
        int(match[1]),
        _scaled(match[2]) / 1e3,
        _scaled(match[6]),
        _scaled(match[3]),
        global_batch_size=int(_scaled(match[4])),
        loss=loss,
        nan=int(math.isnan(loss)),
    )


def _trainer(text: str) -> Step | None:
    """The Trainer's summary at the end: the mean over the whole run, evaluation and saving
    included.
    """
    found, loss = _TRAINER.search(text), _TRAINER_LOSS.search(text)
    if not found or not _number(found[2]) > 0:
        return None
    return Step(
        "trainer",
        None,
        1 / _number(found[2]),
        samples_per_s=_number(found[1]),
        loss=_number(loss[1]) if loss else None,
    )


def _memory(text: str) -> Memory | None:
    """Megatron's report (MiB), Bridge's (1e9 bytes); the largest of the steps so far."""
    unit = _MEMORY.search(text)
    if not unit:
        return None
    scale = MIB if unit[1] == "MB" else GB
    sizes = {
        name: _number(match[1]) * scale
        for name, pattern in _PEAKS.items()
        if (match := pattern.search(text))
    }
    rank = _RANK.search(text)
    if not sizes:
        return None
    return Memory(
        int(rank[1]) if rank else None,
        sizes.get("allocated"),
        sizes.get("reserved"),
        sizes.get("device"),
    )


def _see(text: str) -> Memory | None:
    """DeepSpeed's see_memory_usage: GiB, and the peak reserved in whole ones."""
    match = _SEE.search(text)
    return (
        Memory(None, _number(match[1]) * GIB, max(_number(match[2]), _number(match[3])) * GIB)
        if match
        else None
    )


def _field(text: str, name: str) -> float | None:
    match = _FIELDS[name].search(text)
    return _number(match[1]) if match else None


def _number(word: str) -> float:
    return float(word.replace(",", ""))


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and math.isfinite(value) else None


def _scaled(word: str) -> float:
    return float(word.rstrip("KMGTB")) * _SCALE[word[-1] if word[-1] in "KMGTB" else ""]
