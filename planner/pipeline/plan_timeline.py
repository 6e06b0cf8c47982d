"""The timeline of a plan's own pipeline, for pictures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.cost.pipeline import order, refused
from planner.estimate import stage_times
from planner.layout import SCHEDULES, Layout
from planner.pipeline.timelines import SimulatedSchedule
from planner.simulator import simulate
from planner.specs.recipe import Recipe

BARS = 800
"""Actions that a picture can show one by one."""


def plan_timeline(recipe: Recipe, layout: Layout) -> SimulatedSchedule | None:
    """The layout's pipeline in seconds, of as many micro-batches as a picture can show; None
    without a pipeline, or where it cannot be ordered."""
    if layout.pp == 1 or refused(recipe, layout):
        return None
    turn = layout.group or layout.pp
    most = max(BARS // (2 * layout.pp * layout.v) // turn, 1) * turn
    shown = layout if layout.m <= most else replace(layout, m=most + layout.m % turn)
    spent, transfer, blocks = stage_times(recipe, shown)
    rows = order(shown, spent, transfer)
    timeline = simulate(
        rows, np.tile(spent, (rows.stages // len(spent), 1)), transfer=transfer, blocking=blocks
    )
    cut = (
        (f"The first {shown.m} of {layout.m} micro-batches are shown",)
        if shown.m < layout.m
        else ()
    )
    return SimulatedSchedule(
        SCHEDULES[layout.schedule], layout.pp, shown.m, layout.v, rows, timeline, "s", cut
    )
