"""What each schedule would give for a layout, as a table and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from planner.report.text.parts import grid
from planner.schedule_options import ScheduleOption, verdict
from planner.units import GIB

HEAD = ("schedule", "v", "step s", "bubble", "in flight", "in flight GiB", "GiB", "fits", "run by")
NAMED = 2
"""Software named, at most, of what runs a schedule that the recipe's does not."""


def tabled(options: Sequence[ScheduleOption]) -> list[Any]:
    """The table, the layout's own schedule with a star, and what it comes to; nothing without a
    pipeline.
    """
    if not options:
        return []
    table = grid(*HEAD)
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for row in rows(options):
        table.add_row(*row)
    return [table, *(Text(sentence) for sentence in sentences(options))]


def rows(options: Sequence[ScheduleOption]) -> list[tuple[str, ...]]:
    """A row each, without those that the layout cannot have."""
    return [
        (
            f"{option.schedule}{' *' * option.own}",
            str(option.v),
            f"{option.step_s:.3f}",
            f"{option.bubble_share:z.1%}",
            f"{option.in_flight:.2f}",
            f"{option.activations_bytes / GIB:,.1f}",
            f"{option.memory_bytes / GIB:,.1f}",
            "yes" if option.fits else "no",
            _run_by(option),
        )
        for option in options
        if not option.refused
    ]


def _run_by(option: ScheduleOption) -> str:
    """Other software, where the plan's own does not run it."""
    if option.runs:
        return ""
    return ", ".join(option.run_by[:NAMED]) or "none that is known"


def sentences(options: Sequence[ScheduleOption]) -> list[str]:
    """Where more virtual stages stop paying, and why the layout cannot have a schedule."""
    whys: dict[str, list[str]] = {}
    for option in options:
        if option.refused:
            whys.setdefault(option.refused, []).append(option.schedule)
    refused = "; ".join(f"{', '.join(names)}: {why}" for why, names in whys.items())
    return [*filter(None, [verdict(options), refused and f"Not possible here: {refused}."])]
