"""The JSON of `simulate`: what other programs read. Missing values are null; nothing here is
computed.
"""

from __future__ import annotations

from typing import Any

from planner.pipeline.inverse import Fewest
from planner.pipeline.serving.serve import Served
from planner.pipeline.timelines import Comparison, Simulated


def simulated(done: Simulated) -> dict[str, Any]:
    """One schedule. Times have the unit of the durations: `unit` is s with a model and cluster,
    else empty.
    """
    timeline = done.timeline
    return {
        "schedule": done.schedule,
        "pp": done.pp,
        "m": done.m,
        "v": done.v,
        "unit": done.unit,
        "makespan": timeline.makespan,
        "span": timeline.span,
        "bubble_share": timeline.bubble_share,
        "span_bubble_share": timeline.span_bubble_share,
        "messages": timeline.messages,
        "ranks": [
            {
                "rank": rank,
                "busy": busy,
                "idle": idle,
                "peak_in_flight": peak,
                "peak_in_flight_stages": peak / done.v,
            }
            for rank, (busy, idle, peak) in enumerate(
                zip(timeline.busy.tolist(), timeline.idle.tolist(), _whole(done), strict=True)
            )
        ],
        "assumed": list(done.assumed),
    }


def compared(found: Comparison) -> dict[str, Any]:
    """All schedules, fastest first; what is not legal here stands apart with the reason."""
    refused = [{"schedule": name, "reason": reason} for name, reason in found.refused]
    return {"schedules": [simulated(done) for done in found.schedules], "not_legal": refused}


def fewest(found: Fewest) -> dict[str, Any]:
    """The inverse: one schedule with the smallest m for a bubble; every figure null where no m
    gives it.
    """
    asked = {"bubble_asked": found.bubble, "reason": found.reason}
    if found.simulated is not None:
        return simulated(found.simulated) | asked
    figures = (
        "unit",
        "makespan",
        "span",
        "bubble_share",
        "span_bubble_share",
        "messages",
        "ranks",
        "assumed",
    )
    return {
        "schedule": found.schedule,
        "pp": found.pp,
        "m": None,
        "v": found.v,
        **dict.fromkeys(figures),
        **asked,
    }


def served(done: Served) -> dict[str, Any]:
    """A forward-only pipeline. Times in milliseconds."""
    answer = {
        "makespan_ms": done.makespan_ms,
        "bubble_ratio": done.bubble_ratio,
        "max_over_mean": done.max_over_mean,
        "ttft_ms": done.ttft_ms,
        "tpot_ms": done.tpot_ms,
        "tpot_max_ms": done.tpot_max_ms,
        "tokens_per_s": done.tokens_per_s,
        "chunks": None if done.chunks is None else list(done.chunks),
    }
    return answer | (
        {"pools": {name: served(pool) for name, pool in done.pools}} if done.pools else {}
    )


def _whole(done: Simulated) -> list[float]:
    """Peaks; counts of chunks as integers where they are whole."""
    return [
        int(peak) if float(peak).is_integer() else peak
        for peak in done.timeline.peak_in_flight.tolist()
    ]
