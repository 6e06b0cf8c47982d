"""`ppplan calibrate`: measures this machine in child processes and writes a hardware profile."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from planner.calibrate import sizes
from planner.calibrate.profile import profile
from planner.errors import InputError, check_installed
from planner.files import check_files, write_folder
from planner.launch import local
from planner.launch.outcome import Outcome, Work, check_limit
from planner.specs import library
from planner.specs.documents import read_mapping
from planner.specs.hardware import HardwareProfile
from planner.views import Views

MODULE = "planner.calibrate.worker"
KEYS = ("machine", "ranks", "gemm", "attention", "memory", "collectives", "launch_us")
"""Of a worker's result."""
MAX_DEVICES = 1024
_HEAD = (
    "# A hardware profile that `ppplan calibrate` measured: `ppplan recommend --cluster THIS` uses"
    " it.\n"
)


@dataclass(frozen=True, slots=True, repr=False)
class Calibration(Views):
    """A measured profile; None where measuring failed, and the outcome says why."""

    profile: HardwareProfile | None
    file: str
    measurements: int
    fit_error: dict[str, float]
    """Median error of each fit, as a share."""
    outcome: Outcome


def calibrate(
    out: str | Path = "profile.yaml",
    device: str | None = None,
    devices: int | None = None,
    limit_s: float = 600.0,
    measured: str | Path | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Calibration:
    """Measures `devices` ranks at once on "cpu" or "cuda" (default: what this machine has) and
    writes the profile to `out`.

    measured: the RESULT.json of a worker that torchrun started over nodes, in place of a run here.
    `tell` gets progress, line by line. Raises InputError for faulty words; a failed run is a
    Calibration without a profile.
    """
    path = Path(out)
    if path.suffix not in (".yaml", ".yml"):
        named = path.with_suffix(".yaml") if path.stem.strip(".") else path / "profile.yaml"
        raise InputError(f"out must be a YAML file, but got {str(out)!r}; try {named}")
    check_files([str(path)])
    check_limit(limit_s)
    outcome = _run(device, devices, limit_s, tell) if measured is None else _read(Path(measured))
    result = outcome.result
    if result is None:
        return Calibration(None, "", 0, {}, outcome)
    try:
        fitted = profile(result, _known(result), datetime.date.today().isoformat())
    except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as fault:
        if measured is None:
            raise
        raise InputError(
            f"{measured} must be a result of {MODULE}, but its figures are none:"
            f" {type(fault).__name__} {str(fault)[:80]}"
        ) from None
    text = _HEAD + yaml.safe_dump(fitted.document, sort_keys=False, width=140, allow_unicode=True)
    (file,) = write_folder(path.parent, {path.name: text})
    count = sum(len(result[kind]) for kind in ("memory", "gemm", "attention", "collectives"))
    return Calibration(library.hardware(file), file, count, fitted.errors, outcome)


def local_devices() -> tuple[str, int]:
    """What this machine would be measured on: its GPUs, else two processes on the processor."""
    gpus = len(library.local_gpus())
    return ("cuda", gpus) if gpus else ("cpu", min(2, len(os.sched_getaffinity(0))))


def _run(
    device: str | None, devices: int | None, limit_s: float, tell: Callable[[str], None]
) -> Outcome:
    check_installed("calibrate", "torch")
    kind, count = local_devices()
    device = device or kind
    if device not in ("cpu", "cuda"):
        raise InputError(f"device must be cpu or cuda, but got {device!r}")
    if device == "cuda" and kind != "cuda":
        raise InputError(
            "device must be one that this machine has, but there is no GPU here; try --device cpu"
        )
    ranks = devices
    if ranks is None:
        ranks = count if device == kind else 2
    most = min(count, MAX_DEVICES) if device == "cuda" else MAX_DEVICES
    if not 1 <= ranks <= most:
        raise InputError(f"devices must be from 1 to {most}, but got {ranks}")

    def progress(line: dict[str, Any]) -> bool:
        tell(f"measuring {line['phase']}")
        return False

    backend: Literal["cpu", "cuda"] = "cuda" if device == "cuda" else "cpu"
    return local.run(Work(MODULE, sizes.request(device), ranks, limit_s, backend), progress)


def _read(path: Path) -> Outcome:
    result = read_mapping(path, "JSON")
    missing = [key for key in KEYS if key not in result]
    if missing:
        raise InputError(f"{path} must be a result of {MODULE}, but it lacks {', '.join(missing)}")
    return Outcome("done", result)


def _known(result: dict[str, Any]) -> HardwareProfile | None:
    """The shipped profile of the GPU that was measured, by the name that its driver gives it."""
    if not result["machine"]["compute_capability"]:
        return None
    try:
        return library.hardware(result["machine"]["name"])
    except InputError:
        return None
