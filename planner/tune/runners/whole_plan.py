"""What the runners of Megatron-LM and DeepSpeed share: they run a plan whole, or not at all."""

from __future__ import annotations

from planner.errors import InputError
from planner.layout import Layout


def check(reason: str, steps: int, warmup: int) -> None:
    """InputError with the reason why a runner does not run a plan, where there is one, and for
    counts of steps that cannot be.
    """
    if reason:
        raise InputError(reason)
    if steps < 1 or warmup < 0:
        raise InputError(
            f"steps must be at least 1 and warmup at least 0, but got {steps} and {warmup}"
        )


def too_large(runner: str, layout: Layout, devices: int) -> str:
    """Why a plan does not run on so few devices; empty when it does."""
    if layout.gpus <= devices:
        return ""
    return (
        f"--runner {runner} runs the whole plan, which needs {layout.gpus} devices, but"
        f" {devices} are here; use --runner torch, which measures the parts that fit"
    )
