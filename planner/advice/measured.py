"""What a log measured, beside what was predicted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from planner.advice.findings import Finding
from planner.cost.terms import Estimate
from planner.errors import InputError
from planner.intake.logs import csv_row, read_log
from planner.intake.logs.read_log import Log
from planner.intake.plain_file import plain_file
from planner.intake.reading import Reading, Value
from planner.interpret.interpret import Launch
from planner.units import GIB

MAX_HEAD_BYTES = 200_000
TEXTS = (
    ".sh",
    ".bash",
    ".slurm",
    ".sbatch",
    ".json",
    ".yaml",
    ".yml",
    ".toml",
    ".py",
    ".cfg",
    ".hjson",
    ".jsonc",
)
"""Endings of files that state a run rather than tell of one."""
FRAMEWORKS = {
    "deepspeed": "deepspeed",
    "megatron-deepspeed": "deepspeed",
    "neox": "deepspeed",
    "torchtitan": "torch",
    "nanotron": "torch",
    "trainer": "torch",
}
KINDS = {"trainer": "huggingface", "nanotron": "torchtitan"}
LAYOUT = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "micro_batch_size",
    "deepspeed.zero_optimization.stage",
    "deepspeed.train_micro_batch_size_per_gpu",
    "parallelism.tensor_parallel_degree",
    "parallelism.pipeline_parallel_degree",
    "parallelism.data_parallel_shard_degree",
    "training.local_batch_size",
    "hf.per_device_train_batch_size",
    "hf.fsdp",
)
"""Values that state a layout: one of them, and the others are the framework's defaults, not
guesses.
"""
FAR_OFF = 0.2
"""A prediction further than this from the measurement is worth a word."""


class LoggedRun(NamedTuple):
    """A log, and what it states of the run."""

    log: Log
    reading: Reading


def log_of(path: str | Path) -> LoggedRun | None:
    """The log that a path is, with the arguments that it prints; None where it is no log.
    InputError when it cannot be read.
    """
    file = plain_file(path)
    if file.suffix.lower() in TEXTS or not read_log.is_log(_head(file)):
        return None
    log = read_log.checked(read_log.read(file))
    return LoggedRun(log, log.reading or _bare(path, log))


def _bare(path: str | Path, log: Log) -> Reading:
    """Of a log without arguments: what its lines tell, and that the rest is guessed (bf16: nearly
    all runs that are logged are).
    """
    style = log.style or "megatron"
    framework = FRAMEWORKS.get(style, "megatron")
    values = {}
    if framework == "megatron":
        values["bf16"] = Value(True, "default", "the log does not tell")
        if log.global_batch_size:
            values["global_batch_size"] = Value(log.global_batch_size, "flag", "lines of the log")
    note = (
        "the log prints no arguments: layout, micro-batch and precision are guessed; name the"
        " script instead, with the log beside it"
    )
    kind = KINDS.get(style, style)
    notes = (note,)
    return Reading(str(path), kind, framework, None, values, notes=notes)  # type: ignore[arg-type]


def guessed(launch: Launch, log: Log) -> bool:
    """Whether the layout is nobody's word: the log itself was asked about, it prints no arguments,
    and no option states a size.
    """
    if log.reading is not None or log.file != launch.reading.file:
        return False
    layout = [value for name, value in launch.values.items() if name in LAYOUT]
    return all(value.origin == "default" for value in layout)


def unknown_layout(launch: Launch, log: Log) -> Finding:
    """Instead of a prediction for a layout that nobody stated."""
    text = (
        f"{Path(log.file).name} prints no arguments, so nothing is predicted; what it measured"
        " stands below. Name the script with the log beside it, or state the layout"
    )
    if launch.recipe.framework == "megatron":
        text += ": --set tensor_model_parallel_size=N and so on"
    return Finding("warning", "layout not known", text)


def log_beside(path: str | Path) -> Log | None:
    """The log that lies beside a script under its name (launch.sh, launch.log), if there is one and
    it is one.
    """
    for ending in (".log", ".out"):
        file = Path(path).with_suffix(ending)
        if file != Path(path) and file.is_file():
            logged = log_of(file)
            return logged.log if logged else None
    return None


def _head(file: Path) -> str:
    try:
        with plain_file(file).open("rb") as opened:
            return opened.read(MAX_HEAD_BYTES).decode("utf-8", "replace")
    except OSError as fault:
        raise InputError(
            f"{file} must be a file that can be read, but: {fault.strerror or fault}"
        ) from None


def measured(launch: Launch, log: Log, estimate: Estimate | None) -> dict[str, Any]:
    """Figures of the log by name and unit, the prediction's error where there is one, and a row
    that `validate` accepts.
    """
    figures = {
        "log": log.file,
        "steps": log.steps,
        "timed": log.timed,
        "step_s": log.step_s,
        "step_s_low": log.step_s_low,
        "step_s_high": log.step_s_high,
        "tokens_per_s_per_gpu": log.tokens_per_s_per_gpu,
        "model_tflops_per_gpu": log.model_tflops_per_gpu,
        "memory_allocated_gib": in_gib(log.allocated_bytes),
        "memory_reserved_gib": in_gib(log.reserved_bytes),
        "memory_device_gib": in_gib(log.device_bytes),
        "nan_steps": log.nan_steps,
        "skipped_steps": log.skipped_steps,
        "out_of_memory": len(log.ooms),
        "notes": list(log.notes),
    }
    if not log.reading and not guessed(launch, log):
        log = replace(log, reading=replace(launch.reading, values=launch.values))
    row = csv_row.row(
        log,
        model=launch.recipe.model.name if launch.sized else "",
        hardware=launch.recipe.hardware.name,
        gpus=launch.recipe.gpus,
    )
    return {
        **figures,
        "error": _errors(log, estimate),
        "row": {name: value for name, value in row.items() if value not in (None, "")},
    }


def _errors(log: Log, estimate: Estimate | None) -> dict[str, float]:
    """Prediction over measurement, less 1."""
    if estimate is None:
        return {}
    pairs = {
        "step_s": (estimate.step_s, log.step_s),
        "memory_allocated_gib": (estimate.memory.allocated_bytes, log.allocated_bytes),
        "memory_reserved_gib": (estimate.memory.reserved_bytes, log.reserved_bytes),
        "model_tflops_per_gpu": (estimate.model_tflops_per_gpu, log.model_tflops_per_gpu),
    }
    return {name: float(ours) / theirs - 1 for name, (ours, theirs) in pairs.items() if theirs}


def findings(log: Log, estimate: Estimate | None) -> list[Finding]:
    """What the log tells of the run that the file does not."""
    out: list[Finding] = []
    if log.ooms:
        text = f"{Path(log.file).name} has {len(log.ooms)} messages of memory that ran out"
        if estimate is not None:
            text += f", where {estimate.oom_probability:.0%} was predicted"
        text += f": {' '.join(log.ooms[0].text.split())[:200]}"
        out.append(Finding("error", "the log ran out of memory", text))
    if log.nan_steps:
        text = f"{log.nan_steps} of {log.steps} steps have no finite loss"
        out.append(Finding("warning", "losses broke", text))
    if log.step_s and estimate is not None:
        off = float(estimate.step_s) / log.step_s - 1
        low, high = estimate.step_s_low, estimate.step_s_high
        inside = low <= log.step_s <= high
        text = (
            f"a step took {log.step_s:.3g} s (median of {log.timed}), predicted"
            f" {estimate.step_s:.3g} s ({off:+.0%})"
        )
        if not inside:
            text += f", outside of the {low:.3g} to {high:.3g} s of 80% of such runs"
        near = inside or abs(off) < FAR_OFF
        out.append(Finding("hint" if near else "warning", "measured", text))
    return out


def in_gib(size: float | None) -> float | None:
    return None if size is None else size / GIB
