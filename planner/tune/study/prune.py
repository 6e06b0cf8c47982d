"""When a trial is clearly behind: by more than the noise that was measured, and by more than a
tenth.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

MIN_STEPS = 3
"""Timed steps before anything is said."""
MIN_SHARE_BEHIND = 0.1
"""A trial no more than this behind the best runs to its end."""
SPREADS = 3.0
"""Standard deviations of one layout's steps that a trial must be behind."""
UNTIMED = ("warmup", "warm-up", "setup", "start", "compile")


def noise_share(steps_s: Sequence[float]) -> float:
    """Standard deviation of one step over the median, robust: 1.4826 times the median deviation; 0
    for fewer than 3 steps.
    """
    if len(steps_s) < 3:
        return 0.0
    middle = statistics.median(steps_s)
    if middle <= 0:
        return 0.0
    return 1.4826 * statistics.median(abs(step - middle) for step in steps_s) / middle


def behind(steps_s: Sequence[float], best_s: float | None, noise: float) -> bool:
    """Whether even the fastest of the steps is behind the best median by more than noise explains.

    noise: the largest noise_share of the finished trials; what this trial shows of its own counts
    too.
    """
    if best_s is None or len(steps_s) < MIN_STEPS:
        return False
    margin = max(MIN_SHARE_BEHIND, SPREADS * max(noise, noise_share(steps_s)))
    return min(steps_s) > best_s * (1 + margin)


def timed(line: dict[str, Any]) -> float | None:
    """The seconds of a step that a child reports, None for a line of its warm-up or of something
    else.
    """
    step_s = line.get("step_s")
    if not isinstance(step_s, (int, float)) or isinstance(step_s, bool):
        return None
    if step_s <= 0 or line.get("phase") in UNTIMED:
        return None
    return float(step_s)
