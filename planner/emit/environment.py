"""Environment variables that a Megatron-LM run needs."""

from __future__ import annotations

from planner.emit import switches
from planner.layout import Layout
from planner.specs.megatron import exchange_overlaps
from planner.specs.recipe import Recipe

BLACKWELL = 10.0
"""Compute capability from which launch order no longer depends on the number of connections."""
CUDA_DEFAULT_CONNECTIONS = "8"


EXCHANGE_CONNECTIONS = "32"
"""Streams of an overlapped exchange must not wait for one another."""


def megatron(recipe: Recipe, layout: Layout) -> tuple[tuple[str, str], ...]:
    """Name and value, in the order to export.

    CUDA_DEVICE_MAX_CONNECTIONS=1 keeps NCCL's launches in order with the GEMMs that they overlap:
    Megatron asserts it for tp > 1 or cp > 1 before Blackwell; both FSDPs (zero 2, 3) assert that it
    is not 1. An overlapped exchange of experts wants many. ROCm's Transformer Engine has mxfp8 off
    until its variable turns it on.
    Source: [megatron-core] training/arguments.py; Transformer Engine pytorch/softmax.py;
            ROCm/TransformerEngine pytorch/fp8.py.
    """
    out = [*switches.environment(recipe, layout), ("TORCH_NCCL_AVOID_RECORD_STREAMS", "1")]
    if recipe.precision == "mxfp8" and recipe.hardware.gpu.vendor == "AMD":
        out.append(("NVTE_ROCM_ENABLE_MXFP8", "1"))
    split = layout.tp > 1 or layout.cp > 1
    if layout.zero >= 2:
        out.append(("CUDA_DEVICE_MAX_CONNECTIONS", CUDA_DEFAULT_CONNECTIONS))
    elif split and recipe.hardware.gpu.compute_capability < BLACKWELL:
        out.append(("CUDA_DEVICE_MAX_CONNECTIONS", "1"))
    elif exchange_overlaps(recipe, layout):
        out.append(("CUDA_DEVICE_MAX_CONNECTIONS", EXCHANGE_CONNECTIONS))
    return tuple(out)
