"""Child process: DeepSpeed's own verdict on configurations. JSON lines in (config, ranks, dp,
pipeline), JSON lines out.

A configuration is handed over as deepspeed.initialize() does: to a pipeline with the groups of its
module, else with none. The mappings note which of their keys are read, so that a key that DeepSpeed
would ignore is found whatever its name.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")
logging.disable(logging.WARNING)

import deepspeed.comm as dist  # noqa: E402
from deepspeed.runtime.config import DeepSpeedConfig  # noqa: E402

FORBID = ("zero_optimization", "bf16", "fp16", "tensor_parallel", "params")
"""Sections whose unknown keys are refused, not ignored (the params by the optimizer): their insides
need no watching.
"""


class Watched(dict[str, Any]):
    """A mapping that remembers which keys were asked for."""

    def __init__(self, data: dict[str, Any], seen: set[str]) -> None:
        super().__init__(data)
        self.update(
            {
                key: Watched(value, set())
                for key, value in data.items()
                if isinstance(value, dict) and key not in FORBID
            }
        )
        self.seen = seen

    def __copy__(self) -> Watched:
        return self  # DeepSpeed reads a copy

    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.seen.add(str(key))
        return super().__contains__(key)

    def ignored(self) -> list[str]:
        inside = [
            f"{key}.{name}"
            for key, value in self.items()
            if isinstance(value, Watched)
            for name in value.ignored()
        ]
        return [key for key in self if key not in self.seen] + inside


def device(section: Any) -> str:
    """Where an offload section puts things."""
    place = getattr(section, "device", "none")
    return str(getattr(place, "value", place))


def verdict(case: dict[str, Any]) -> dict[str, Any]:
    dist.get_rank = lambda *_: 0
    dist.get_world_size = lambda *_: case["ranks"]
    groups = (
        SimpleNamespace(get_data_parallel_world_size=lambda: case["dp"])
        if case["pipeline"]
        else None
    )
    watched = Watched(case["config"], set())
    try:
        read = DeepSpeedConfig(watched, mpu=groups)
    except Exception as fault:
        return {"accepted": False, "message": f"{type(fault).__name__}: {fault}", "ignored": []}
    zero = read.zero_config
    return {
        "accepted": True,
        "message": "",
        "ignored": watched.ignored(),
        "batch": read.train_batch_size,
        "micro": read.train_micro_batch_size_per_gpu,
        "steps": read.gradient_accumulation_steps,
        "zero": int(zero.stage),
        "hpz": zero.zero_hpz_partition_size,
        "autotp": read.tensor_parallel_config.autotp_size,
        "optimizer": device(zero.offload_optimizer),
        "weights": device(zero.offload_param),
        "bf16": read.bfloat16_config.enabled,
        "fp16": read.float16_config.enabled,
        "sums": read.grad_accum_dtype,
        "zero_config": json.loads(zero.model_dump_json(by_alias=True)),
    }


for line in sys.stdin:
    print("verdict", json.dumps(verdict(json.loads(line))), flush=True)
