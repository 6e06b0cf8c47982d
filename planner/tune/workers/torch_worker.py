"""The torch benchmark: `python -m planner.tune.workers.torch_worker REQUEST.json RESULT.json` on
each rank, with torchrun's environment variables.

Runs training steps of the request's plan, or the stacks of layers that stand in for it; rank 0
writes the result, and while it runs one JSON line a step to RESULT.json.progress.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from planner.launch.process_guard import watch_parent
from planner.layout import Layout
from planner.specs.recipe import Recipe
from planner.tune.benchmark import layer_timing
from planner.tune.benchmark.parallel import place
from planner.tune.benchmark.timing import Spans, communication_s, settle, taken
from planner.tune.benchmark.training import Training, batch, mean_loss, training

PATIENCE = datetime.timedelta(minutes=10)
Report = Callable[[str, int, float], None]
"""Notes a step: phase, number, seconds."""
Parts = list[dict[tuple[str, int], float]]
"""Seconds by part and stage of each step."""


def main(request_path: str, result_path: str) -> None:
    """One rank, from joining the others to the result."""
    watch_parent()
    request = json.loads(Path(request_path).read_text())
    result = answer(request, joined(request["device"]), reporter(Path(result_path + ".progress")))
    if dist.get_rank() == 0:
        complete = Path(result_path + ".part")
        complete.write_text(json.dumps(result))
        complete.rename(result_path)
    dist.barrier()
    dist.destroy_process_group()


def answer(request: dict[str, Any], device: torch.device, report: Report) -> dict[str, Any]:
    """What the ranks of a process group find together; the same on each."""
    recipe, layout = Recipe.model_validate(request["recipe"]), Layout.from_named(request["layout"])
    run = steps if request["kind"] == "step" else layer_timing.measured
    measured = run(recipe, layout, request, device, report)
    return {
        **measured,
        **_memory(device),
        "request": request,
        "device": _name(device),
        "versions": _versions(device),
    }


def joined(kind: str) -> torch.device:
    """Joins the process group; the device of this rank."""
    if kind == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", timeout=PATIENCE, device_id=device)
        return device
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(
            max((os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)
        )
    dist.init_process_group("gloo", timeout=PATIENCE)
    return torch.device("cpu")


def reporter(path: Path) -> Report:
    """Writes a line of JSON a step, from rank 0."""

    def report(phase: str, step: int, step_s: float) -> None:
        if dist.get_rank() == 0:
            with path.open("a") as lines:
                lines.write(json.dumps({"phase": phase, "step": step, "step_s": step_s}) + "\n")

    return report


def steps(
    recipe: Recipe, layout: Layout, request: dict[str, Any], device: torch.device, report: Report
) -> dict[str, Any]:
    """Warm-up and timed training steps, then one more under the profiler."""
    here, spans = place(layout, device), Spans(device.type == "cuda")
    work = training(recipe, layout, request, here, spans)
    steps_s: list[float] = []
    losses: list[float] = []
    parts: Parts = []
    tokens = batch(recipe, layout, here, request["seed"])
    warmup = request["warmup"]
    for number in range(warmup + request["steps"]):
        if number == warmup:
            steps_s, parts = [], []
            if spans.cuda:
                torch.cuda.reset_peak_memory_stats()
        step_s, loss = _step(work, tokens, spans, device)
        parts.append(taken(spans))
        steps_s.append(step_s)
        losses.append(mean_loss(loss, here))
        report("step" if number >= warmup else "warmup", number, step_s)
    communication = None
    if request["profile"]:
        communication = communication_s(lambda: _step(work, tokens, spans, device), spans.cuda)
    return {"steps_s": steps_s, "losses": losses, **_by_part(parts, communication, layout)}


def _step(
    work: Training, tokens: tuple[Any, Any], spans: Spans, device: torch.device
) -> tuple[float, Any]:
    """Seconds of one step, the slowest rank's, and this rank's loss."""
    dist.barrier()
    settle(spans.cuda)
    began = time.perf_counter()
    loss = work.passes(*tokens)
    work.update()
    settle(spans.cuda)
    took = torch.tensor([time.perf_counter() - began], dtype=torch.float64, device=device)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return took.item(), loss


def _by_part(parts: Parts, communication: float | None, layout: Layout) -> dict[str, Any]:
    """Medians of a step's parts on the rank with most work, and of every stage's passes a
    micro-batch on its slowest rank.
    """
    mine = {key: median([seconds.get(key, 0.0) for seconds in parts]) for key in parts[0]}
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (mine, communication))
    stages: dict[int, dict[str, float]] = {}
    slowest: dict[str, Any] = {}
    longest_s = -1.0
    for theirs, their_communication in everyone:
        sums = {"forward_s": 0.0, "backward_s": 0.0, "optimizer_s": 0.0, "reduction_s": 0.0}
        for (part, stage), seconds in theirs.items():
            sums[f"{part}_s"] += seconds
            if part in ("forward", "backward"):
                start = {"stage": float(stage), "forward_s": 0.0, "backward_s": 0.0}
                passes = stages.setdefault(stage, start)
                passes[f"{part}_s"] = max(passes[f"{part}_s"], seconds / layout.m)
        if sums["forward_s"] + sums["backward_s"] > longest_s:
            longest_s = sums["forward_s"] + sums["backward_s"]
            slowest = sums | {"communication_s": their_communication}
    del slowest["reduction_s"]
    return slowest | {"stages": [stages[index] for index in sorted(stages)]}


def _memory(device: torch.device) -> dict[str, Any]:
    """Peak of the worst rank: what the allocator gave out, or on a CPU the memory that was
    resident.
    """
    if device.type == "cuda":
        kind, peak = "allocated", torch.cuda.max_memory_allocated()
    else:
        unit = 1 if sys.platform == "darwin" else 1024
        kind, peak = "resident", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    largest = torch.tensor([float(peak)], dtype=torch.float64, device=device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return {"memory_bytes": largest.item(), "memory_kind": kind}


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.machine()}, {os.cpu_count()} cores)"


def _versions(device: torch.device) -> dict[str, str]:
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    if device.type == "cuda":
        versions["cuda"] = str(torch.version.cuda)
    return versions


if __name__ == "__main__":
    main(*sys.argv[1:3])
