"""Recipe: model + hardware + GPU count + batch + limits of the search, every document resolved."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from planner.specs.hardware import HardwareProfile
from planner.specs.model import ModelSpec
from planner.specs.stack import Stack

Precision = Literal["bf16", "fp16", "fp32", "fp8-delayed", "fp8-tensorwise", "fp8-rowwise", "fp8-blockwise", "mxfp8", "nvfp4"]


class Bounds(BaseModel):
    """What a user fixed: a knob's allowed range, ends included."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    low: int
    high: int


class Recipe(BaseModel):
    """The question. What changes learning (batch, sequence length, precision) is here, never in the search."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelSpec
    hardware: HardwareProfile
    stack: Stack
    gpus: PositiveInt
    seq_length: PositiveInt
    global_batch_size: PositiveInt
    precision: Precision = "bf16"
    framework: Literal["megatron", "deepspeed", "torch"] = "megatron"
    framework_version: str = "0.19"
    attention: Literal["flash", "fused", "unfused"] = "flash"
    knobs: dict[str, Bounds] = {}
    """Limits of the search by layout field: tp, pp, dp, mbs, m, v, zero, sp, recompute, schedule (as codes), ..."""
    max_memory_gib: PositiveFloat | None = None
    assumed: tuple[str, ...] = ()
    """What was not stated and got a default, in words."""
    tokens_per_step_note: str = ""

    @property
    def element_bytes(self) -> float:
        """Bytes of an activation, and of a weight that is sent: 4 under fp32, else 2."""
        return 4.0 if self.precision == "fp32" else 2.0

    @property
    def tokens(self) -> int:
        return self.global_batch_size * self.seq_length
