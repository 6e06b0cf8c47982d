"""One rank of a plan on one GPU, by the framework's own code: `python prove.py`.

Collectives do nothing here: losses mean nothing, and times hold no communication. Switches of the
plan that need real ranks are replaced (the dispatchers deepep and hybridep by alltoall, overlap in
symmetric memory by none); a line says so. The last line, `ppplan proof {...}`, has peak memory,
times of steps, versions and the plan; send it back, or give it to `ppplan check` and
`ppplan validate`. Megatron-LM is looked for in $MEGATRON_PATH, torchtitan is imported.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import runpy
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

PLAN = {}
PACKAGES = ("torch", "megatron-core", "transformer-engine", "flash-attn", "torchtitan", "torchao")
TOKENS = 1000


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


def take_every_step(optimizer):
    """Gradients of fp16 overflow here, and a step that is skipped makes no optimizer states."""
    overflow = optimizer._unscale_main_grads_and_check_for_nan
    optimizer._unscale_main_grads_and_check_for_nan = lambda self: overflow(self) and False


def megatron(steps_s):
    """Its program under --fake-process-group, with the plan's flags."""
    folder = Path(os.environ.get("MEGATRON_PATH", "Megatron-LM")).expanduser().resolve()
    entry = folder / PLAN["entry"]
    if not entry.is_file():
        stop(f"MEGATRON_PATH must be a checkout of Megatron-LM, but {folder} has no {entry.name}")
    sys.path.insert(0, str(folder))
    try:
        training = importlib.import_module("megatron.training.training")
        arguments = importlib.import_module("megatron.training.arguments")
        from megatron.core import __version__ as version
        from megatron.core.datasets import utils
        from megatron.core.optimizer.optimizer import MixedPrecisionOptimizer
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
    take_every_step(MixedPrecisionOptimizer)
    training.train_step = timed(training.train_step, steps_s)
    sys.argv = [str(entry), *PLAN["flags"]]
    run(entry)
    return {"megatron-core": version}


def torchtitan(steps_s):
    """torchtitan's trainer under its fake backend, on random tokens."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "torchtitan_plan.py").write_text(PLAN["module"])
        sys.path.insert(0, folder)
        try:
            data = importlib.import_module("torchtitan.hf_datasets.text_datasets")
            from torchtitan import train, trainer
            from torchtitan.components.metrics import MetricsProcessor
        except ImportError as fault:
            stop(f"torchtitan 0.3 must be importable here, but: {fault}; run this where you train")
        trainer.HuggingFaceTokenizer.Config.build = lambda *_, **__: None
        data.HuggingFaceTextDataLoader.Config.build = RandomTokens
        MetricsProcessor.should_log = lambda *_: False  # of a loss that means nothing
        trainer.Trainer.train_step = timed(trainer.Trainer.train_step, steps_s)
        sys.argv = ["torchtitan.train", *PLAN["flags"]]
        os.chdir(folder)
        train.main()
    return {}


class RandomTokens:
    """In place of a data set: whole sequences of tokens that every vocabulary has."""

    def __init__(self, *, seq_len, local_batch_size, **_):
        self.shape = (local_batch_size, seq_len)

    def __iter__(self):
        import torch

        while True:
            tokens = torch.randint(0, TOKENS, self.shape)
            positions = torch.arange(self.shape[1]).repeat(self.shape[0], 1)
            yield {"input": tokens, "positions": positions}, tokens

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


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
        found = RUNS[PLAN["framework"]](steps_s)
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


RUNS = {"megatron": megatron, "torch": torchtitan}

if __name__ == "__main__":
    main()
