"""The line that `prove.py` prints: one rank of a plan as it ran on one GPU."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.intake.plain_file import plain_file

MARK = "ppplan proof "
MAX_LINE = 1 << 20
MAX_PROOFS = 100_000
MAX_COUNT = 10**9


@dataclass(frozen=True, slots=True)
class Proof:
    """What one line says."""

    question: dict[str, Any]
    """The plan's question with its layout, in words."""
    digest: str
    """A short name of the question."""
    stage: int
    """The pipeline stage that ran, the fullest by prediction."""
    micro_batches: int
    """As many as ran; the plan may have more."""
    allocated_bytes: float
    reserved_bytes: float
    steps_s: tuple[float, ...]
    """Without communication."""
    out_of_memory: str
    """The allocator's message; empty where memory was enough."""
    gpu: str
    versions: dict[str, str]
    instead: dict[str, Any]
    """Switches at other values than the plan's."""
    predicted: dict[str, float]
    """What the plan said of that rank's memory."""


def proofs(path: str | Path) -> list[Proof]:
    """The lines of a file, a log or what people sent; none where there is no such line. InputError
    for a line that is cut off or of other content, and for the script that prints it.
    """
    found: list[Proof] = []
    with plain_file(path).open("r", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            place = line.find(MARK, 0, MAX_LINE)
            if place >= 0 and Path(path).suffix == ".py":
                raise InputError(
                    "a proof must be the line that the script printed, or a log with it, but"
                    f" {path} is the script; run it on a GPU, then check what it printed"
                )
            if place >= 0 and len(found) < MAX_PROOFS:
                found.append(_proof(line[place + len(MARK) :], f"{path}, line {number}"))
    return found


def _proof(text: str, where: str) -> Proof:
    try:
        content = json.loads(text[:MAX_LINE])
        question = dict(content["question"])
        return Proof(
            question=question,
            digest=str(content["digest"]),
            stage=_whole(content, "stage", 0, _last_stage(question)),
            micro_batches=_whole(content, "micro_batches", 1, MAX_COUNT),
            allocated_bytes=_figure("allocated_bytes", content["allocated_bytes"], 1),
            reserved_bytes=_figure("reserved_bytes", content["reserved_bytes"], 1),
            steps_s=_steps(content["steps_s"]),
            out_of_memory=str(content["out_of_memory"]),
            gpu=str(content["gpu"]),
            versions={str(name): str(version) for name, version in content["versions"].items()},
            instead=dict(content["instead"]),
            predicted={name: _figure(name, size) for name, size in content["predicted"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise InputError(
            f"{where}: a proof must be the whole line that prove.py printed, but"
            f" {type(fault).__name__}: {str(fault)[:80]}"
        ) from None


def _last_stage(question: dict[str, Any]) -> int:
    stages = question.get("pp")
    return int(stages or 1) - 1


def _whole(content: dict[str, Any], name: str, low: int, high: int) -> int:
    value = content[name]
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} must be from {low} to {high:,}, but got {str(value)[:20]}")
    return value


def _figure(name: str, value: object, low: int = 0) -> float:
    if type(value) not in (int, float) or not low <= float(str(value)) < math.inf:
        raise ValueError(f"{name} must be a number from {low}, but got {str(value)[:20]}")
    return float(str(value))


def _steps(value: object) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise ValueError(f"steps_s must be a list, but got {str(value)[:20]}")
    return tuple(_figure("steps_s", step) for step in value)
