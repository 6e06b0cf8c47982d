"""The answers of `simulate` as JSON. Missing values are null; nothing here is computed."""

from __future__ import annotations

from typing import Any

from planner.action import to_text
from planner.pipeline.answer import Answer, ServedAnswer
from planner.pipeline.fewest_microbatches import FewestMicrobatches
from planner.pipeline.serving.serve import Served
from planner.pipeline.timelines import ScheduleComparison, SimulatedSchedule


def document(answer: Answer, order: bool = False) -> dict[str, Any]:
    """Whichever of its answers `simulate` gives; with `order` the text of the order too."""
    if isinstance(answer, ScheduleComparison):
        return _comparison(answer)
    if isinstance(answer, ServedAnswer):
        others = [{"name": name, **_served(served)} for name, served in answer.others]
        return _served(answer.served) | {"others": others, "assumed": list(answer.assumed)}
    if isinstance(answer, FewestMicrobatches):
        simulated, figures = answer.simulated, _fewest(answer)
    else:
        simulated, figures = answer, _simulated(answer)
    if order and simulated is not None:
        figures["order"] = to_text(simulated.order).splitlines()
    return figures


def _simulated(simulated: SimulatedSchedule) -> dict[str, Any]:
    """One schedule. Times have the unit of the durations: `unit` is s with a model and cluster,
    else empty.
    """
    timeline = simulated.timeline
    ranks = zip(
        timeline.busy.tolist(),
        timeline.idle.tolist(),
        timeline.peak_in_flight.tolist(),
        strict=True,
    )
    return {
        "schedule": simulated.schedule,
        "pp": simulated.pp,
        "m": simulated.m,
        "v": simulated.v,
        "unit": simulated.unit,
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
                "peak_in_flight": int(peak) if float(peak).is_integer() else peak,
                "peak_in_flight_stages": float(peak) / simulated.v,
            }
            for rank, (busy, idle, peak) in enumerate(ranks)
        ],
        "assumed": list(simulated.assumed),
    }


def _comparison(comparison: ScheduleComparison) -> dict[str, Any]:
    """All schedules, fastest first; what is not legal here stands apart with the reason."""
    refused = [{"schedule": name, "reason": reason} for name, reason in comparison.refused]
    return {
        "schedules": [_simulated(simulated) for simulated in comparison.schedules],
        "not_legal": refused,
    }


def _fewest(fewest: FewestMicrobatches) -> dict[str, Any]:
    """One schedule with the smallest m for a bubble; every figure null where no m gives it."""
    bubble = {"bubble_asked": fewest.bubble, "reason": fewest.reason}
    if fewest.simulated is not None:
        return _simulated(fewest.simulated) | bubble
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
        "schedule": fewest.schedule,
        "pp": fewest.pp,
        "m": None,
        "v": fewest.v,
        **dict.fromkeys(figures),
        **bubble,
    }


def _served(served: Served) -> dict[str, Any]:
    """A forward-only pipeline. Times in milliseconds."""
    figures: dict[str, Any] = {
        "makespan_ms": served.makespan_ms,
        "bubble_ratio": served.bubble_ratio,
        "max_over_mean": served.max_over_mean,
        "ttft_ms": served.ttft_ms,
        "tpot_ms": served.tpot_ms,
        "tpot_max_ms": served.tpot_max_ms,
        "tokens_per_s": served.tokens_per_s,
        "chunks": None if served.chunks is None else list(served.chunks),
    }
    if served.pools:
        figures["pools"] = {name: _served(pool) for name, pool in served.pools}
    return figures
