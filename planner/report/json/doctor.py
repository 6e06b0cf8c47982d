"""The answer of `doctor` as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from planner.units import GIB

if TYPE_CHECKING:
    from planner.launch.capabilities import Diagnosis


def document(answer: Diagnosis) -> dict[str, Any]:
    """Sizes in GiB."""
    machine = asdict(answer.machine)
    for name in ("memory", "available", "shared_memory"):
        machine[f"{name}_gib"] = machine.pop(f"{name}_bytes") / GIB
    for gpu in machine["gpus"]:
        for name in ("memory", "used"):
            gpu[f"{name}_gib"] = gpu.pop(f"{name}_bytes") / GIB
    return {
        "machine": machine,
        "runners": [asdict(runner) for runner in answer.runners],
        "launchers": [asdict(launcher) for launcher in answer.launchers],
        "nearest": asdict(answer.nearest),
        "warnings": list(answer.warnings),
    }
