"""What the machine is that a child stands on: names, sizes, versions. Imports torch: for children
alone.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

from planner.units import GIB


def machine(device: str) -> dict[str, Any]:
    """Host, device, memory in GiB of one rank's device, cores, versions."""
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    if device == "cuda":
        here = torch.cuda.get_device_properties(torch.cuda.current_device())
        nccl: Any = torch.cuda.nccl
        versions |= {
            "cuda": str(torch.version.cuda or torch.version.hip),
            "nccl": ".".join(map(str, nccl.version())),
        }
        free, _ = torch.cuda.mem_get_info()
        total_gib, capability = here.total_memory / GIB, here.major + here.minor / 10
        count = torch.cuda.device_count()
        return _facts(here.name, total_gib, free / GIB, capability, count, versions)
    total_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return _facts(_processor(), total_gib, total_gib, 0.0, len(os.sched_getaffinity(0)), versions)


def _facts(
    name: str,
    total_gib: float,
    usable_gib: float,
    capability: float,
    count: int,
    versions: dict[str, str],
) -> dict[str, Any]:
    return {
        "host": platform.node(),
        "name": name,
        "memory_gib": total_gib,
        "usable_gib": usable_gib,
        "compute_capability": capability,
        "devices": count,
        "cores": len(os.sched_getaffinity(0)),
        "versions": versions,
    }


def _processor() -> str:
    """The processor as the kernel names it."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        if line.startswith(("model name", "Model name")):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
