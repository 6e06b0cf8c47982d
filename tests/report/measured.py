"""What `tune` and `calibrate` find, on devices that are simulated: for the tests of their
reports.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest import mock

from planner import api
from planner.calibrate.calibrate import Calibration
from planner.launch.outcome import Outcome, Progress
from planner.specs.recipe import Recipe
from planner.tune.measurement import Measurement
from planner.tune.runners import table
from planner.tune.runners.table import Bench
from planner.tune.study.space import Candidate
from planner.tune.tune import Tuned
from tests.calibrate.test_profile import made
from tests.tune.simulated import simulated

FAILURES = {
    1: Outcome(
        "oom",
        None,
        "rank 3 ran out of memory",
        "torch.OutOfMemoryError: <b>tried</b> to allocate 2 GiB",
    ),
    3: Outcome("crashed", None, "rank 1 exited with code 3", "its last words"),
}
SWITCHED = 0.9
"""Of a step, with buckets that are not the usual ones."""


def tuned(folder: Path) -> Tuned:
    """Eight layouts of llama3-8b on 8 devices; the second runs out of memory, the fourth crashes.
    Then three settings of switches.
    """
    asked = api.question(
        model="llama3-8b", gpus=8, cluster="a100-80g-sxm", seq_length=4096, global_batch_size=64
    )
    api.recommend(asked, top=1, out=folder / "plan")
    calls: list[str] = []

    def measure(
        recipe: Recipe, bench: Bench, candidate: Candidate, progress: Progress
    ) -> tuple[Outcome, Measurement | None]:
        calls.append(candidate.key)
        if failed := FAILURES.get(len(calls) - 1):
            return failed, None
        done, found = simulated(candidate, progress)
        if (
            found is None
            or not {"bucket_cap_mb", "reduce_bucket_numel"} & candidate.switches.keys()
        ):
            return done, found
        return done, replace(
            found,
            step_s=found.step_s * SWITCHED,
            steps_s=tuple(step * SWITCHED for step in found.steps_s),
        )

    with mock.patch.object(table, "measure", measure):
        return api.tune(
            folder / "plan" / "plan.yaml",
            trials=8,
            devices=8,
            switches=3,
            repeats=1,
            storage=f"journal:{folder}/j",
        )


def failed(folder: Path) -> Tuned:
    """A study whose only trial crashed."""
    plan = folder / "plan" / "plan.yaml"

    def measure(
        recipe: Recipe, bench: Bench, candidate: Candidate, progress: Progress
    ) -> tuple[Outcome, Measurement | None]:
        return FAILURES[3], None

    with mock.patch.object(table, "measure", measure):
        return api.tune(plan, trials=1, storage=f"journal:{folder}/k", out=folder / "failed")


def calibrated(folder: Path) -> Calibration:
    """Of measurements that were written out from the forms of the cost model."""
    (folder / "result.json").write_text(json.dumps(made()))
    return api.calibrate(out=folder / "here.yaml", measured=folder / "result.json")
