"""The schedules by name. To add one: write a file like its neighbours and add it here.

A schedule's file holds NAME; CHUNKS, the least and most virtual stages a rank (None = no limit);
legal(p, m, v, ...), which raises InputError outside the limits of the implementation; order(p, m,
v, ...), an Order. Closed forms only where they exist: makespan, span, exact (where those hold),
peak_in_flight, messages, bubble_share, exposed_transfer; all but `order` and `legal` take numpy
columns.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from planner.action import Order
from planner.errors import unknown
from planner.schedules import (
    dualpipe,
    dualpipev,
    gpipe,
    interleaved,
    interleaved_torch,
    interleaved_zb,
    looped_bfs,
    naive,
    one_f_one_b,
    zb_h1,
    zb_h2,
    zbv,
)
from planner.schedules.automatic import v_half, v_min, zb_1p, zb_2p, zbv_auto

_MODULES: tuple[ModuleType, ...] = (
    naive,
    gpipe,
    one_f_one_b,
    interleaved,
    interleaved_torch,
    looped_bfs,
    zb_h1,
    zb_h2,
    zb_1p,
    zb_2p,
    zbv,
    zbv_auto,
    v_half,
    v_min,
    interleaved_zb,
    dualpipe,
    dualpipev,
)

SCHEDULES: dict[str, ModuleType] = {schedule.NAME: schedule for schedule in _MODULES}


def schedule(name: str) -> ModuleType:
    """The schedule of a name. Raises InputError with the nearest names."""
    if name not in SCHEDULES:
        raise unknown("schedule", name, SCHEDULES)
    return SCHEDULES[name]


def order(name: str, p: int, m: int, v: int, **knobs: Any) -> Order:
    """The order of a named schedule; of the knobs (group, durations, transfer, memory_limit) it
    takes those that it knows.
    """
    build = schedule(name).order
    taken = inspect.signature(build).parameters
    made: Order = build(p, m, v, **{knob: value for knob, value in knobs.items() if knob in taken})
    return made
