"""The schedules by name. To add one: write a file like its neighbours; it is found here.

Every Schedule that a file of this package (or of automatic/) holds is in the table, in the order of
publication.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

import planner.schedules
from planner.action import Order
from planner.errors import unknown
from planner.schedules.schedule import Schedule


def _discover() -> dict[str, Schedule]:
    """Every Schedule of the package's files by name; a name stated twice is an error."""
    schedules: dict[str, Schedule] = {}
    for info in pkgutil.walk_packages(planner.schedules.__path__, "planner.schedules."):
        if info.name == __name__:
            continue
        for value in vars(import_module(info.name)).values():
            if not isinstance(value, Schedule):
                continue
            if schedules.setdefault(value.name, value) is not value:
                raise ValueError(f"two schedules have the name {value.name}: see {info.name}")
    listed = sorted(schedules.values(), key=lambda schedule: (schedule.year, schedule.name))
    return {schedule.name: schedule for schedule in listed}


SCHEDULES = _discover()


def schedule(name: str) -> Schedule:
    """The schedule of a name. Raises InputError with the nearest names."""
    if name not in SCHEDULES:
        raise unknown("schedule", name, SCHEDULES)
    return SCHEDULES[name]


def order(name: str, p: int, m: int, v: int, **knobs: Any) -> Order:
    """The order of a named schedule; of the knobs (group, durations, transfer, memory_limit,
    weight_retained) it takes those that it knows.
    """
    chosen = schedule(name)
    known = {knob: value for knob, value in knobs.items() if knob in chosen.knobs}
    return chosen.order(p, m, v, **known)
