"""Pipelines on the simulator: one schedule, all of them, the fewest micro-batches for a bubble, and
forward-only ones.
"""

from __future__ import annotations

from planner.pipeline.fewest_microbatches import FewestMicrobatches, smallest_m
from planner.pipeline.serving.serve import Served, simulate_forward_only
from planner.pipeline.timelines import (
    ScheduleComparison,
    SimulatedSchedule,
    StageWork,
    compare_schedules,
    simulate_schedule,
)

__all__ = [
    "FewestMicrobatches",
    "ScheduleComparison",
    "Served",
    "SimulatedSchedule",
    "StageWork",
    "compare_schedules",
    "simulate_forward_only",
    "simulate_schedule",
    "smallest_m",
]
