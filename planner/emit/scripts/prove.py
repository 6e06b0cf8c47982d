"""One rank of a plan on one GPU, by the framework's own code: `python prove.py`.

Collectives do nothing here: losses mean nothing, and times hold no communication. Where the plan
has the dispatcher deepep or hybridep, alltoall stands in, and tp_comm_overlap is off: neither runs
here; a line says so. The last line,
`ppplan proof {...}`, has peak memory, times of steps, versions and the plan; send it back, or give
it to `ppplan check` and `ppplan validate`. Megatron-LM is looked for in $MEGATRON_PATH.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import runpy
import sys
import time
from importlib import metadata
from pathlib import Path

PLAN = {}
PACKAGES = ("torch", "megatron-core", "transformer-engine", "flash-attn")


def stop(message):
    print(message, file=sys.stderr)
    raise SystemExit(2)


def timed(step, steps_s):
    """The framework's training step, each call timed with the GPU idle before and after it."""
    import torch

    def call(*words, **named):
        torch.cuda.synchronize()
        began = time.perf_counter()
        answer = step(*words, **named)
        torch.cuda.synchronize()
        steps_s.append(time.perf_counter() - began)
        return answer

    return call


def run(path):
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as left:
        if left.code not in (None, 0):
            raise


def megatron(steps_s):
    """pretrain_gpt.py under --fake-process-group, with the plan's flags."""
    folder = Path(os.environ.get("MEGATRON_PATH", "Megatron-LM")).expanduser().resolve()
    entry = folder / "pretrain_gpt.py"
    if not entry.is_file():
        stop(f"MEGATRON_PATH must be a checkout of Megatron-LM, but {folder} has no {entry.name}")
    sys.path.insert(0, str(folder))
    try:
        training = importlib.import_module("megatron.training.training")
        arguments = importlib.import_module("megatron.training.arguments")
        from megatron.core import __version__ as version
        from megatron.core.datasets import utils
    except ImportError as fault:
        stop(f"Megatron-LM must be importable here, but: {fault}; run this in its container")
    if "fake_process_group" not in Path(arguments.__file__).read_text():
        stop(
            "Megatron-LM must have --fake-process-group (core 0.17 and later), but"
            f" {folder} is core {version}; check out core_v0.17.0 or later"
        )
    try:
        importlib.import_module("megatron.core.datasets.helpers_cpp")
    except ImportError:  # which rank 0 alone compiles
        utils.compile_helpers()
    training.train_step = timed(training.train_step, steps_s)
    sys.argv = [str(entry), *PLAN["flags"]]
    run(entry)
    return {"megatron-core": version}


def versions():
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def main():
    try:
        import torch
    except ImportError:
        stop("prove.py must find torch, but this Python has none; run it where you train")
    if not torch.cuda.is_available():
        stop("prove.py must have a GPU, but torch finds none here")
    os.environ.update(PLAN["environment"])
    for name, (planned, runs) in PLAN["stand_ins"].items():
        print(f"ppplan: {name} {runs} stands in for the plan's {planned}", flush=True)
    torch.cuda.set_device(0)
    steps_s, found, ran_out = [], {}, ""
    try:
        found = megatron(steps_s)
    except torch.cuda.OutOfMemoryError as fault:
        ran_out = str(fault).split("\n")[0][:300]
    if not steps_s and not ran_out:
        stop("no training step ran, so nothing is proved; what the framework printed says why")
    line = {
        **PLAN["proof"],
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "steps_s": [round(step_s, 6) for step_s in steps_s],
        "out_of_memory": ran_out,
        "gpu": torch.cuda.get_device_name(),
        "versions": {**versions(), **found, "cuda": torch.version.cuda or ""},
    }
    print("ppplan proof " + json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
