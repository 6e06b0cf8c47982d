"""A study over simulated devices, as a program: what a tuner process is in the tests that start
several, or kill them.

python -m tests.tune.simulated STORAGE TRIALS SECONDS LOG [children]

Every launch and every end is a line of LOG: {"event", "pid", "key", "number", "time"}.
With `children` the time is spent by a child of planner.launch.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from functools import cache
from typing import Any

from planner import api
from planner.estimate import estimate
from planner.launch.local import run
from planner.launch.outcome import Outcome, Progress, Work
from planner.specs import resolve
from planner.specs.recipe import Recipe
from planner.tune.measurement import Measurement
from planner.tune.study import study as studies
from planner.tune.study.space import Candidate, Space, space
from planner.tune.study.storage import opened
from planner.tune.study.study import Size


@cache
def question() -> tuple[Recipe, Space]:
    words: dict[str, Any] = {
        "model": "llama3-8b",
        "gpus": 8,
        "cluster": "a100-80g-sxm",
        "seq_length": 4096,
        "global_batch_size": 64,
    }
    recipe = resolve.recipe(api.question(**words))
    _, plan = resolve.recipe_and_layout(api.question(**words, tp=8, pp=1))
    return recipe, space(recipe, plan, most=40)


@cache
def other_machine() -> Recipe:
    """What the layouts "run" on: kernels a fifth slower, links half as fast as the cost model
    believes.
    """
    recipe, _ = question()
    hardware = recipe.hardware
    domain = hardware.node.domain
    slower = domain.model_copy(
        update={"efficiency": {members: share / 2 for members, share in domain.efficiency.items()}}
    )
    kernels = hardware.kernels.model_copy(
        update={"sustained_share": hardware.kernels.sustained_share * 0.8}
    )
    node = hardware.node.model_copy(update={"domain": slower})
    return recipe.model_copy(
        update={"hardware": hardware.model_copy(update={"node": node, "kernels": kernels})}
    )


def real_s(candidate: Candidate) -> float:
    return float(estimate(other_machine(), candidate.layout).step_s)


def measured(step_s: float) -> Measurement:
    return Measurement(
        step_s=step_s,
        steps_s=(step_s, step_s * 1.01, step_s * 0.99),
        memory_bytes=2.0**30,
        device="simulated",
    )


def simulated(candidate: Candidate, progress: Progress) -> tuple[Outcome, Measurement | None]:
    """At once, with the steps reported as they would be."""
    step_s = real_s(candidate)
    for step in range(3):
        if progress({"phase": "steps", "step": step, "step_s": step_s}):
            return Outcome("pruned", None, "behind", seconds=2.0), None
    return Outcome("done", {}, seconds=4.0), measured(step_s)


def main() -> None:
    storage, trials, seconds, log, *children = sys.argv[1:]

    def note(event: str, key: str, number: int = -1) -> None:
        line = (
            json.dumps(
                {
                    "event": event,
                    "pid": os.getpid(),
                    "key": key,
                    "number": number,
                    "time": time.time(),
                }
            )
            + "\n"
        )
        handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, line.encode())
        os.close(handle)

    def measure(candidate: Candidate, progress: Progress) -> tuple[Outcome, Measurement | None]:
        note("launched", candidate.key)
        if children:
            work = Work("tests.tune.sleeper", {"seconds": float(seconds)}, ranks=2, limit_s=60)
            outcome = run(work, progress)
            if outcome.state != "done":
                return replace(outcome, result=None), None
        else:
            time.sleep(float(seconds))
        return Outcome("done", {}), measured(real_s(candidate))

    _, candidates = question()
    size = Size(int(trials), 3)
    study = studies.create(
        opened(storage), "simulated", {"model": "llama3-8b"}, True, candidates, size
    )
    studies.refine(
        study,
        candidates,
        measure,
        size,
        lambda row, rows: note(f"told {row.state}", row.key, row.number),
    )


if __name__ == "__main__":
    main()
