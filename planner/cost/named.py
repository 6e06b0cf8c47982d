"""An estimate at the edge: names with human units, as JSON and plan.yaml hold it."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import Any

from planner.cost.terms import Estimate, Stage
from planner.units import GIB


def named(estimate: Estimate) -> dict[str, Any]:
    """The estimate of one layout: terms of `time` add up to step_s, those of `memory` to
    memory_gib; what is not finite is None.
    """
    figures = {
        **{
            name: getattr(estimate, name)
            for name in (
                "step_s",
                "step_s_low",
                "step_s_high",
                "tokens_per_s_per_gpu",
                "model_tflops_per_gpu",
                "mfu",
                "mfu_full_attention",
                "bubble_share",
            )
        },
        "memory_gib": estimate.memory_bytes / GIB,
        "memory_allocated_gib": estimate.memory.allocated_bytes / GIB,
        "memory_reserved_gib": estimate.memory.reserved_bytes / GIB,
        "memory_limit_gib": estimate.memory_limit_bytes / GIB,
    }
    figures |= {
        "host_memory_gib": estimate.host_bytes / GIB,
        "host_memory_limit_gib": estimate.host_limit_bytes / GIB,
    }
    figures |= {"used_tokens_per_s_per_gpu": estimate.tokens_per_s_per_gpu * estimate.used_share}
    return {
        **{name: number(value) for name, value in figures.items()},
        "fits": bool(estimate.fits),
        "oom_probability": number(estimate.oom_probability),
        "time": {f.name: number(getattr(estimate.time, f.name)) for f in fields(estimate.time)},
        "memory": {
            f.name.removesuffix("_bytes") + "_gib": number(getattr(estimate.memory, f.name) / GIB)
            for f in fields(estimate.memory)
        },
        "p2p": {name: number(value) for name, value in asdict(estimate.p2p).items()},
        "stages": [_stage(stage) for stage in estimate.stages],
        "assumed": list(estimate.assumed),
    }


def number(value: Any) -> float | int | None:
    """A plain number; None for one that JSON cannot hold."""
    plain = value.item() if hasattr(value, "item") else value
    return plain if isinstance(plain, int) or math.isfinite(plain) else None


def _stage(stage: Stage) -> dict[str, Any]:
    document = {f.name: number(getattr(stage, f.name)) for f in fields(stage)}
    memory = document.pop("memory_bytes")
    return {**document, "memory_gib": None if memory is None else memory / GIB}
