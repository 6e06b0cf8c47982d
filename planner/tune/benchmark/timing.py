"""Where the time of a step goes: spans of work by part and stage, and what communication takes.
Imported in child processes alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True, slots=True)
class Spans:
    """What ran, in order: (part, stage, begin, end); times are CUDA events, or seconds on a CPU."""

    cuda: bool
    seen: list[tuple[str, int, Any, Any]] = field(default_factory=list)


def now(cuda: bool) -> Any:
    """A point in time of the device's stream."""
    if not cuda:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def timed(spans: Spans, part: str, stage: int, run: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with each call's span noted."""

    def noted(*inputs: Any, **more: Any) -> Any:
        begin = now(spans.cuda)
        out = run(*inputs, **more)
        spans.seen.append((part, stage, begin, now(spans.cuda)))
        return out

    return noted


def taken(spans: Spans) -> dict[tuple[str, int], float]:
    """Seconds by part and stage since the last call; the device must be idle."""
    out: dict[tuple[str, int], float] = {}
    for part, stage, begin, end in spans.seen:
        seconds = begin.elapsed_time(end) * 1e-3 if spans.cuda else end - begin
        out[part, stage] = out.get((part, stage), 0.0) + seconds
    spans.seen.clear()
    return out


def settle(cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()


def communication_s(run: Callable[[], Any], cuda: bool) -> float:
    """Seconds of one run in which a collective or transfer is under way, as the profiler sees it:
    waiting for other ranks is in it, and what lies beside computation too."""
    watched, word, kind = [ProfilerActivity.CPU], "gloo:", "CPU"
    if cuda:
        watched, word, kind = [*watched, ProfilerActivity.CUDA], "nccl", "CUDA"
    with profile(activities=watched) as profiled:
        run()
        settle(cuda)
    intervals = []
    for event in profiled.events():
        if event.name.startswith(word) and event.device_type.name == kind:
            intervals.append((event.time_range.start, event.time_range.end))
    return covered(sorted(intervals)) * 1e-6


def covered(spans: list[tuple[float, float]]) -> float:
    """Length of the union of intervals that are sorted by their begin."""
    total, until = 0.0, float("-inf")
    for begin, end in spans:
        total += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return total
