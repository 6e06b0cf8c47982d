"""What libraries of other vendors' kernels need of the hardware, under any framework."""

from __future__ import annotations

import numpy as np

from planner.layout import Layouts, Mask
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Need


def has_nvlink(recipe: Recipe) -> bool:
    """NVIDIA's GPUs, of which several reach each other over NVLink."""
    return recipe.hardware.gpu.vendor == "NVIDIA" and recipe.hardware.node.domain_gpus > 1


def _sends_tokens(recipe: Recipe, layout: Layouts) -> Mask:
    capable = 8 <= recipe.hardware.gpu.compute_capability < 11
    return np.asarray(has_nvlink(recipe) and capable)


SEND_TOKENS = Need(
    "libraries that send tokens have their kernels",
    _sends_tokens,
    "DeepEP and HybridEP run on NVIDIA's Ampere, Hopper and Blackwell with NVLink, but got"
    " {recipe.hardware.name}",
    "try moe_dispatcher alltoall",
    values=("deepep", "hybridep"),
)
"""Source: [megatron-bridge] training/flex_dispatcher_backend.py, by compute capability; a run of
DeepSeek-V3 on GB200 had DeepEP (Megatron MoE ModelZoo).
"""
