"""Measurement: what a trial found of one layout on real devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds and bytes of one layout; of the whole plan, or composed from the parts that this
    machine could run.
    """

    step_s: float
    """Median of the timed steps; where `composed`, the step of the whole plan as the simulator
    makes it of measured stage times.
    """
    steps_s: tuple[float, ...]
    """Each timed step as it ran here."""
    memory_bytes: float | None
    """Peak of the worst rank as the allocator reports it; None where the device does not tell.
    Where `composed`: the cost model's, with measured activations in its own's place."""
    forward_s: float | None = None
    """A step's time by part on the slowest rank; None where the runner cannot tell."""
    backward_s: float | None = None
    optimizer_s: float | None = None
    communication_s: float | None = None
    composed: bool = False
    proxy: str = ""
    """What ran in place of the whole plan, in words; empty when the plan itself ran."""
    stages: tuple[dict[str, float], ...] = ()
    """Measured seconds by stage: {"stage", "forward_s", "backward_s"}."""
    layers: tuple[dict[str, Any], ...] = ()
    """Where `composed`: of a dense layer, a layer with experts, embedding and head: {"name",
    "forward_s", "backward_s"} as measured a micro-batch, the same with predicted_ before, and where
    the device tells kept_bytes between the passes with its prediction."""
    losses: tuple[float, ...] = ()
    device: str = ""
    memory_kind: Literal["allocated", "resident"] = "allocated"
    """By the device's allocator; or, on a CPU, the process's peak resident memory, libraries
    included.
    """
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """In what the run differed from the plan, in words: a precision, a part of the model that was
    left out.
    """
