"""One rank of a Megatron-LM trial: `python -m planner.tune.workers.megatron_worker REQUEST.json
RESULT.json`, with torchrun's variables.

Runs pretrain_gpt.py in this process and reads what it prints. The last rank is the one that prints
steps, so it writes the result.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import runpy
import sys
import threading
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from planner.intake.logs import Memory, Step, parse
from planner.launch.process_guard import watch_parent

KIB = 1024
GATHER_S = 20.0
"""That the last rank waits for what the others know of their memory."""
_PACKAGES = ("torch", "megatron-core", "transformer-engine", "flash-attn")


def listening(hear: Callable[[str], None]) -> Callable[[], None]:
    """Passes each line that this process prints from now on to `hear`, and on to where it went;
    call what returns at the end.
    """
    sys.stdout.flush()
    into, real = os.pipe(), os.dup(1)
    os.dup2(into[1], 1)
    os.close(into[1])

    def tee() -> None:
        with os.fdopen(into[0], "rb") as lines, os.fdopen(real, "wb", buffering=0) as out:
            for line in lines:
                out.write(line)
                hear(line.decode(errors="replace"))

    thread = threading.Thread(target=tee, daemon=True)
    thread.start()

    def stop() -> None:
        sys.stdout.flush()
        os.dup2(2, 1)  # the pipe's last writing end closes, which ends the thread
        thread.join(timeout=10)

    return stop


def collected(line: str, warmup: int, steps: list[Step], peaks: list[Memory], result: Path) -> None:
    """What one printed line tells; a step becomes a line of progress."""
    parsed = parse(line)
    if isinstance(parsed, Memory):
        peaks.append(parsed)
    elif isinstance(parsed, Step) and parsed.number is not None and parsed.step_s is not None:
        steps.append(parsed)
        phase, number = "warmup", parsed.number - 1
        if number >= warmup:
            phase, number = "step", number - warmup
        with result.with_name(result.name + ".progress").open("a") as file:
            file.write(json.dumps({"phase": phase, "step": number, "step_s": parsed.step_s}) + "\n")


def memory(peaks: list[Memory]) -> tuple[float, str]:
    """Bytes at the peak of this process: of the allocator; on a CPU those resident."""
    import torch

    if not torch.cuda.is_available():
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB), "resident"
    held = float(torch.cuda.max_memory_allocated())
    for peak in peaks:
        held = max(held, peak.allocated_bytes or 0.0)
    return held, "allocated"


def versions() -> dict[str, str]:
    out = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            out[name] = metadata.version(name)
    core = sys.modules.get("megatron.core")
    if core is not None:
        out["megatron-core"] = core.__version__
    return out


def worst(result: Path, world: int) -> float:
    """The largest peak of the ranks that have told theirs in time."""
    until = time.monotonic() + GATHER_S
    largest = 0.0
    for rank in range(world):
        path = _own(result, rank)
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.05)
        if path.exists():
            largest = max(largest, float(path.read_text()))
    return largest


def _own(result: Path, rank: int) -> Path:
    return result.with_name(f"{result.name}.memory-{rank}")


def run_script(request: dict[str, Any]) -> None:
    """Its program as `python pretrain_gpt.py FLAGS` would run it."""
    entry = Path(request["checkout"]) / request["entry"]
    sys.argv = [str(entry), *request["flags"]]
    sys.path.insert(0, str(entry.parent))
    try:
        runpy.run_path(str(entry), run_name="__main__")
    except SystemExit as done:
        if done.code not in (None, 0):
            raise


def main() -> None:
    watch_parent()
    request, result = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ.update(request["environment"])
    steps: list[Step] = []
    peaks: list[Memory] = []
    stop = listening(lambda line: collected(line, request["warmup"], steps, peaks, result))
    try:
        run_script(request)
    finally:
        stop()  # what it printed is out before the words of a failure
    held, kind = memory(peaks)
    new = result.with_name(f"{result.name}.new-{rank}")
    new.write_text(repr(held))
    new.rename(_own(result, rank))  # whole, for the last rank that looks for it
    if rank == world - 1:
        write(result, request, steps, worst(result, world), kind)


def write(result: Path, request: dict[str, Any], steps: list[Step], held: float, kind: str) -> None:
    import torch

    rows = []
    for step in steps:
        row = {"number": step.number, "step_s": step.step_s, "loss": step.loss}
        rows.append(row | {"tflops_per_gpu": step.tflops_per_gpu})
    answer = {
        "request": {
            "kind": request["kind"],
            "warmup": request["warmup"],
            "notes": request["notes"],
        },
        "steps": rows,
        "memory_bytes": held,
        "memory_kind": kind,
        "versions": versions(),
        "device": torch.cuda.get_device_name() if kind == "allocated" else "cpu",
    }
    result.write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
