"""What runs a layout: the runner (whose training step), the launcher (where its processes start),
the devices that are here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from planner.errors import InputError, unknown
from planner.launch.devices import gpus
from planner.launch.outcome import Outcome, Progress, Work, check_limit
from planner.launch.rank_environment import cores
from planner.layout import Layout
from planner.specs.recipe import Recipe
from planner.specs.switches.table import under
from planner.tune import torch_support
from planner.tune.measurement import Measurement
from planner.tune.study.space import Candidate
from planner.tune.study.study import Refused

RUNNERS = {
    "torch": "planner.tune.runners.torch_runner",
    "deepspeed": "planner.tune.runners.deepspeed_runner",
    "megatron": "planner.tune.runners.megatron_runner",
}
"""Each has MODULE, request(recipe, layout, devices, steps, warmup, device) and measurement(result).
"""
PACKAGES = {"torch": ("torch",), "deepspeed": ("torch", "deepspeed"), "megatron": ("torch",)}
"""What a runner's children import."""
LAUNCHERS = {
    "local": "planner.launch.local",
    "torchrun": "planner.launch.torchrun",
    "slurm": "planner.launch.slurm",
    "kubernetes": "planner.launch.kubernetes",
}
"""Each has run(work, progress) -> Outcome."""
STEPS, WARMUP = 8, 2
Run = Callable[[Work, Progress], Outcome]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where and how trials run."""

    runner: str
    launcher: str
    devices: int
    device: Literal["cpu", "cuda"]
    limit_s: float
    """Of one trial, start to end."""
    megatron: str | None = None
    """A checkout of Megatron-LM."""


def bench(
    recipe: Recipe,
    runner: str,
    launcher: str,
    devices: int | None,
    limit_s: float,
    megatron: str | Path | None = None,
) -> Bench:
    """InputError for a name that is not known, a package or a checkout that is not there, a count
    or limit that cannot be.
    """
    for kind, name, known in (("runner", runner, RUNNERS), ("launcher", launcher, LAUNCHERS)):
        if name not in known:
            raise unknown(kind, name, known)
    absent = [package for package in PACKAGES[runner] if find_spec(package) is None]
    if absent:
        raise InputError(
            f"--runner {runner} must find {' and '.join(absent)}, but this Python has none; pip"
            f" install {' '.join(absent)}"
        )
    check_limit(limit_s)
    if devices is not None and not 1 <= devices <= 2**20:
        raise InputError(f"devices must be from 1 to {2**20:,}, but got {devices}")
    device, here = devices_of(recipe, launcher)
    return Bench(runner, launcher, devices or here, device, limit_s, _checkout(runner, megatron))


def _checkout(runner: str, megatron: str | Path | None) -> str | None:
    if runner != "megatron":
        return None
    from planner.tune.runners import megatron_runner

    return str(megatron_runner.clone(megatron))


def devices_of(recipe: Recipe, launcher: str) -> tuple[Literal["cpu", "cuda"], int]:
    """Elsewhere what the plan asks for; here the GPUs, without any (or for a profile of a CPU) a
    process a core as far as needed.
    """
    cpu = recipe.hardware.gpu.architecture == "cpu"
    if launcher != "local":
        return ("cpu" if cpu else "cuda"), recipe.gpus
    gpu_count = 0 if cpu else visible_gpus()
    return ("cuda", gpu_count) if gpu_count else ("cpu", max(1, min(recipe.gpus, cores())))


def visible_gpus() -> int:
    """As the driver counts them, less those that CUDA_VISIBLE_DEVICES hides; without importing
    torch.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return len(gpus()[0])
    shown = [index for index in visible.split(",") if index.strip() not in ("", "-1")]
    return min(len(shown), len(gpus()[0])) if shown else 0


def measure(
    recipe: Recipe, bench: Bench, candidate: Candidate, progress: Progress
) -> tuple[Outcome, Measurement | None]:
    """Runs one layout. Refused when the runner cannot run it; InputError when the launcher can run
    nothing.
    """
    recipe = under(recipe, candidate.switches)
    runner: Any = import_module(RUNNERS[bench.runner])
    start: Run = import_module(LAUNCHERS[bench.launcher]).run
    words = [recipe, candidate.layout, bench.devices, STEPS, WARMUP, bench.device]
    if bench.runner == "megatron":
        words.append(bench.megatron)
    try:
        request: dict[str, Any] = runner.request(*words)
    except InputError as fault:
        raise Refused(str(fault)) from None
    ranks = int(request["ranks"])
    environment = threads(recipe, bench, ranks)
    if bench.device == "cuda":
        environment |= torch_support.allocator(recipe, candidate.layout)
    work = Work(runner.MODULE, request, ranks, bench.limit_s, bench.device, environment)
    if request.get("proxy"):
        progress = _never  # steps of a part of the plan say nothing against steps of another part
    outcome = start(work, progress)
    if outcome.state != "done" or outcome.result is None:
        return outcome, None
    try:
        return outcome, runner.measurement(outcome.result)
    except (InputError, KeyError, TypeError, ValueError) as fault:
        reason = f"the child's result cannot be read: {type(fault).__name__} {fault}"
        return replace(outcome, state="crashed", reason=reason), None


def threads(recipe: Recipe, bench: Bench, ranks: int) -> dict[str, str]:
    """On processors here a rank computes with the threads that its profile was measured with,
    however few ranks stand in for the plan.
    """
    measured = (
        bench.device == "cpu"
        and recipe.hardware.gpu.architecture == "cpu"
        and bench.launcher == "local"
    )
    if not measured or "OMP_NUM_THREADS" in os.environ:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, cores() // max(ranks, recipe.hardware.node.gpus)))}


def refused(recipe: Recipe, bench: Bench, layout: Layout) -> str:
    """Why the runner does not run a layout; empty when it does."""
    if bench.runner == "torch":
        return torch_support.refused(recipe, layout, bench.devices)
    runner: Any = import_module(RUNNERS[bench.runner])
    return str(runner.refused(recipe, layout, bench.devices))


def _never(line: dict[str, Any]) -> bool:
    return False
