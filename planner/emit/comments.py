"""The top of a launch file: the plan in words, and what it is expected to do."""

from __future__ import annotations

from typing import Any, Protocol

from planner.layout import Layout
from planner.specs.recipe import Recipe
from planner.specs.software_versions import TORCHTITANS
from planner.specs.switches.lossy import in_force, text
from planner.units import GIB


class Expected(Protocol):
    """What the comments read of an estimate of one layout; emit stands beside cost and does not
    import it.
    """

    @property
    def step_s(self) -> Any: ...
    @property
    def step_s_low(self) -> Any: ...
    @property
    def step_s_high(self) -> Any: ...
    @property
    def tokens_per_s_per_gpu(self) -> Any: ...
    @property
    def model_tflops_per_gpu(self) -> Any: ...
    @property
    def memory_bytes(self) -> Any: ...
    @property
    def memory_limit_bytes(self) -> Any: ...
    @property
    def oom_probability(self) -> Any: ...


def plan(recipe: Recipe, layout: Layout, framework: str) -> tuple[str, ...]:
    """What runs, on what, and the arithmetic of GPUs and batch."""
    return (
        (
            f"{recipe.model.name} on {recipe.gpus:,} GPUs of {recipe.hardware.name},"
            f" {recipe.precision}, {framework}; by ppplan"
        ),
        (
            f"{layout.gpus:,} GPUs = tp {layout.tp} x pp {layout.pp} x dp {layout.dp} x cp"
            f" {layout.cp}, v {layout.v}"
        ),
        (
            f"{layout.gbs:,} sequences of {recipe.seq_length:,} tokens = dp {layout.dp} x mbs"
            f" {layout.mbs} x m {layout.m}"
        ),
    )


def torch(recipe: Recipe) -> str:
    """torch's version; with torchtitan's where that is not the newest."""
    older = recipe.versions.torchtitan in TORCHTITANS[:-1]
    return f"torch {recipe.framework_version}{recipe.versions.with_torchtitan * older}"


def numerics(recipe: Recipe, layout: Layout) -> tuple[str, ...]:
    """A line where something changes the numbers that the run computes."""
    held = in_force(recipe, layout)
    return (f"changes the numbers: {text(held)}",) if held else ()


def expectation(estimate: Expected) -> tuple[str, ...]:
    """Step time with its range, throughput, memory of the worst stage."""
    memory = (
        f"{estimate.memory_bytes / GIB:.1f} of {estimate.memory_limit_bytes / GIB:.1f} GiB a GPU"
    )
    return (
        (
            f"expected: {estimate.step_s:.3f} s a step ({estimate.step_s_low:.3f} to"
            f" {estimate.step_s_high:.3f}), {estimate.model_tflops_per_gpu:.0f} TFLOP/s/GPU,"
            f" {estimate.tokens_per_s_per_gpu:,.0f} tokens/s/GPU"
        ),
        f"expected: {memory}, out of memory with probability {100 * estimate.oom_probability:.0f}%",
    )
