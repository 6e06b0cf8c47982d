"""What a child process is asked to do on devices, and what became of it. A failed child is an
outcome, never an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from planner.errors import InputError

State = Literal["done", "pruned", "oom", "crashed", "timeout", "interrupted"]
"""Finished with a result; stopped by us as clearly behind; out of memory (device or host); exit,
signal, NCCL or gloo error; the time limit (a hang looks like this); stopped by the user."""

MAX_LIMIT_S = 7 * 86400.0

Progress = Callable[[dict[str, Any]], bool]
"""Gets each line that the child reports while it runs ({"step": 3, "step_s": 0.41}); True stops the
child as pruned.
"""


@dataclass(frozen=True, slots=True)
class Work:
    """One run: `python -m module REQUEST.json RESULT.json` on each rank, with torchrun's
    environment variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT)
    and PPPLAN_PARENT, the pid that a rank watches: when that process is gone the rank ends itself.
    Rank 0 writes RESULT.json and appends JSON lines to RESULT.json.progress.
    """

    module: str
    """planner.tune.workers.torch_worker, planner.tune.workers.deepspeed_worker,
    planner.calibrate.worker, ...
    """
    request: dict[str, Any]
    """Plain JSON; written to REQUEST.json."""
    ranks: int
    limit_s: float
    """From the start of the child to its end; then the whole process group is killed."""
    device: Literal["cpu", "cuda"] = "cpu"
    environment: dict[str, str] = field(default_factory=dict)
    silence_s: float | None = None
    """Longest time between two lines of progress (and to the first); None: only limit_s counts."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of it."""

    state: State
    result: dict[str, Any] | None
    """RESULT.json when done."""
    reason: str = ""
    """One sentence: which rank, which error, how much memory was asked for."""
    stderr_tail: str = ""
    seconds: float = 0.0


def check_limit(limit_s: float) -> None:
    """Raises InputError for a time in which nothing can run, or that never ends."""
    if not 0 < limit_s <= MAX_LIMIT_S:
        raise InputError(f"limit-s must be above 0 s and at most a week, but got {limit_s:g}")
