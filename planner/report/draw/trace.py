"""Timelines in Chrome's trace format, which Perfetto opens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from planner.action import KIND, KINDS, F, I
from planner.pipeline.serving.serve import Served
from planner.pipeline.timelines import SimulatedSchedule
from planner.report.draw.gantt_chart import KIND_NAMES

MICROSECONDS = {"s": 1e6, "ms": 1e3, "": 1e3}
"""Of one unit of time; durations without a unit are shown as milliseconds."""


def trace(simulated: SimulatedSchedule) -> str:
    """Chrome trace JSON: a thread a rank, a slice an action, a counter of the activations that each
    rank holds.
    """
    scale = MICROSECONDS[simulated.unit]
    events = [
        _named(
            "process_name",
            f"{simulated.schedule}, {simulated.pp} ranks, {simulated.m} micro-batches",
        )
    ]
    for rank, rows in enumerate(simulated.order.actions):
        events.append(_named("thread_name", f"rank {rank}", rank))
        times = zip(
            rows.tolist(),
            simulated.timeline.start[rank].tolist(),
            simulated.timeline.end[rank].tolist(),
            strict=True,
        )
        events += [_slice(rank, row, start * scale, end * scale) for row, start, end in times]
        events += _counts(
            rank, rows, simulated.timeline.start[rank] * scale, simulated.timeline.end[rank] * scale
        )
    return (
        json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, separators=(",", ":")) + "\n"
    )


def passage_trace(served: Served) -> str:
    """Chrome trace JSON of a forward-only pipeline: a thread a stage, a slice a batch."""
    passed, returns = served.passed, served.returns
    assert passed is not None
    scale = MICROSECONDS["ms"]
    batches, stages = passed.starts.shape
    events = [_named("process_name", f"{stages} stages, {batches} batches")]
    events += [_named("thread_name", f"stage {stage}", stage) for stage in range(stages)]
    for k, (starts, ends) in enumerate(
        zip(passed.starts.tolist(), passed.ends.tolist(), strict=True)
    ):
        for stage, (start, end) in enumerate(zip(starts, ends, strict=True)):
            about = {"batch": k, "returns": returns[k]}
            category = "decode" if returns[k] >= 0 else "forward"
            events.append(
                {
                    "ph": "X",
                    "name": f"batch {k}",
                    "cat": category,
                    "pid": 0,
                    "tid": stage,
                    "ts": start * scale,
                    "dur": (end - start) * scale,
                    "args": about,
                }
            )
    return (
        json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, separators=(",", ":")) + "\n"
    )


def _named(what: str, name: str, thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": 0, "tid": thread, "args": {"name": name}}


def _slice(rank: int, row: list[int], start: float, end: float) -> dict[str, Any]:
    stage, kind, microbatch, pair = row
    about = {"stage": stage, "microbatch": microbatch, "pair": bool(pair)}
    return {
        "ph": "X",
        "name": f"{stage}{KINDS[kind]}{microbatch}",
        "cat": KIND_NAMES[KINDS[kind]],
        "pid": 0,
        "tid": rank,
        "ts": start,
        "dur": end - start,
        "args": about,
    }


def _counts(
    rank: int, rows: np.ndarray, start: np.ndarray, end: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Chunks in flight after each forward's start and each backward's end."""
    kind = rows[:, KIND]
    forward, release = kind == F, (kind != F) & (kind != I)
    at = np.concatenate((start[forward], end[release]))
    step = np.concatenate((np.ones(int(forward.sum())), -np.ones(int(release.sum()))))
    order = np.lexsort((step, at))
    held = np.cumsum(step[order]).astype(int)
    for time, count in zip(at[order].tolist(), held.tolist(), strict=True):
        yield {
            "ph": "C",
            "name": f"in flight, rank {rank}",
            "pid": 0,
            "ts": time,
            "args": {"chunks": count},
        }
