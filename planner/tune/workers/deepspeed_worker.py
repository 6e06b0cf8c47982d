"""One rank of a DeepSpeed trial: `python -m planner.tune.workers.deepspeed_worker REQUEST.json
RESULT.json`, with torchrun's variables.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from planner.launch.process_guard import watch_parent

KIB = 1024


def training_script() -> ModuleType:
    """The script that `emit` writes out, as a module; it is no part of the package that is
    imported.
    """
    path = Path(__file__).parents[2] / "emit" / "scripts" / "train.py"
    spec = importlib.util.spec_from_file_location("ppplan_train", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def arguments(train: ModuleType, request: dict[str, Any]) -> Any:
    """The script's own reading of its flags."""
    sys.argv = ["train.py", *request["flags"], "--deepspeed"]
    return train.options()


def report(result: Path, **line: Any) -> None:
    """A line of progress, by rank 0."""
    if os.environ["RANK"] == "0":
        with result.with_name(result.name + ".progress").open("a") as file:
            file.write(json.dumps(line) + "\n")


def worst(values: list[float]) -> list[float]:
    """Each value of the rank where it is largest."""
    import torch
    from deepspeed.accelerator import get_accelerator  # type: ignore[import-untyped, unused-ignore]

    # 32 bits, the most that every backend reduces; a step's time needs no more.
    largest = torch.tensor(
        values, dtype=torch.float32, device=get_accelerator().current_device_name()
    )
    torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX)
    return [float(value) for value in largest.cpu()]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call with the device idle before and after, and what it returned."""
    from deepspeed.accelerator import get_accelerator

    get_accelerator().synchronize()
    began = time.perf_counter()
    value = call()
    get_accelerator().synchronize()
    return time.perf_counter() - began, value


def parts(config: dict[str, Any], engine: Any, data: Any) -> dict[str, float | None]:
    """One more step with the device waited for after each part, which the timed steps are not. A
    pipeline's parts run beside each other, so they are not told."""
    seconds_of = {"forward_s": 0.0, "backward_s": 0.0, "optimizer_s": 0.0}
    for _ in range(config["gradient_accumulation_steps"]):
        tokens, labels = next(data)
        seconds, loss = timed(lambda: engine(tokens, labels))  # noqa: B023 - called at once
        seconds_of["forward_s"] += seconds
        share = loss / config.get("sequence_parallel_size", 1)
        seconds_of["backward_s"] += timed(lambda: engine.backward(share))[0]  # noqa: B023
        seconds_of["optimizer_s"] += timed(engine.step)[0]
    return dict(zip(seconds_of, worst(list(seconds_of.values())), strict=True))


def memory(device: str) -> tuple[float, str]:
    """Bytes at their peak on the worst rank, and of what kind."""
    if device == "cpu":
        return worst([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss])[0] * KIB, "resident"
    from deepspeed.accelerator import get_accelerator

    return worst([get_accelerator().max_memory_allocated()])[0], "allocated"


TAKEN = {
    "overlap_comm": "overlap_comm",
    "contiguous_gradients": "contiguous_gradients",
    "reduce_bucket_size": "reduce_bucket_size",
    "allgather_bucket_size": "allgather_bucket_size",
    "stage3_prefetch_bucket_size": "prefetch_elements",
}
"""What the engine's optimizer calls a word of its JSON; some of them only in some stages."""


def taken(engine: Any) -> dict[str, Any]:
    """The switches as the engine's optimizer holds them."""
    held = {word: getattr(engine.optimizer, name, None) for word, name in TAKEN.items()}
    return {word: value for word, value in held.items() if value is not None}


def steps(
    train: ModuleType, request: dict[str, Any], engine: Any, data: Any, args: Any, result: Path
) -> tuple[list[float], list[float]]:
    """Seconds on the slowest rank, and losses, of the steps after the warm-up."""
    import torch

    seconds: list[float] = []
    losses: list[float] = []
    for phase in ("warmup", "step"):
        seconds.clear()
        losses.clear()
        for number in range(request["warmup" if phase == "warmup" else "steps"]):
            torch.distributed.barrier()
            step_s, loss = timed(lambda: train.step(args, request["config"], engine, data))
            report(result, phase=phase, step=number, step_s=step_s)
            seconds.append(step_s)
            losses.append(loss)
    return worst(seconds), losses


def main() -> None:
    watch_parent()
    request, result = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    train = training_script()
    import deepspeed  # type: ignore[import-untyped, unused-ignore]
    import torch

    args, config = arguments(train, request), request["config"]
    if request["device"] == "cpu":
        train.for_cpu(config)
    deepspeed.init_distributed(verbose=False)
    torch.manual_seed(request["seed"])
    engine, data = train.engine_of(args, config), train.batches(args, config)
    steps_s, losses = steps(train, request, engine, data, args, result)
    held, kind = memory(request["device"])
    split: dict[str, float | None] = dict.fromkeys(("forward_s", "backward_s", "optimizer_s"))
    if args.pipeline_stages == 1:
        split = parts(config, engine, data)
    if os.environ["RANK"] == "0":
        answer = {
            "request": {"kind": request["kind"], "notes": request["notes"]},
            "steps_s": steps_s,
            "losses": losses,
            "switches": taken(engine),
            "memory_bytes": held,
            "memory_kind": kind,
            **split,
            "communication_s": None,
            "stages": [],
            "device": "cpu" if request["device"] == "cpu" else torch.cuda.get_device_name(),
            "versions": {
                "torch": torch.__version__,
                "deepspeed": version("deepspeed"),
                "python": platform.python_version(),
            },
        }
        result.write_text(json.dumps(answer))
    torch.distributed.barrier()
    engine.destroy()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
