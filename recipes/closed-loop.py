"""The closed loop on processors, with gloo: calibrate, recommend, tune; then every layout of the
question in turns, to judge the choice.

    python recipes/closed-loop.py [FOLDER] [PROCESSES ...]

Under 10 minutes on 2 cores; needs `pip install '.[tune]'` and torch. Exits with 1 unless the chosen
layout is within the noise band of one layout of the best. Predictions are printed beside
measurements, not judged: how far they are depends on what else the machine does.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from planner.launch import local
from planner.launch.outcome import Work
from planner.launch.rank_environment import cores
from planner.layout import Layout
from planner.specs import plan as plans
from planner.specs import resolve
from planner.specs.recipe import Recipe
from planner.tune.runners import table, torch_runner
from planner.tune.study.space import Candidate, space
from planner.tune.workers import turns

MODEL = Path(__file__).with_name("closed-loop") / "small-gpt.yaml"
QUESTION = (
    "--model",
    str(MODEL),
    "--framework",
    "torch",
    "--precision",
    "fp32",
    "--seq-length",
    "128",
    "--gbs",
    "8",
    "--mbs",
    "2..4",
    "--v",
    "1",
    "--zero",
    "0..1",
    "--no-recompute",
)
TRIALS = {2: 5, 4: 10}
"""Layouts that `tune` measures, of 8 and some 14."""
TURNS, STEPS, WARMUP = 3, 3, 1
"""Of the exhaustive run: how often each layout is built and run again, and for how many steps."""
LIMIT_S = 300.0
KNOBS = ("tp", "pp", "dp", "mbs", "zero", "schedule")


@dataclass(frozen=True)
class Timed:
    """A layout of the exhaustive run: the median step of each turn."""

    candidate: Candidate
    turns_s: tuple[float, ...]

    @property
    def step_s(self) -> float:
        return statistics.median(self.turns_s)

    @property
    def band(self) -> float:
        """How far its turns are apart, as a share."""
        return (max(self.turns_s) - min(self.turns_s)) / self.step_s


def main() -> int:
    folder = (
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="closed-loop-"))
    )
    began, inside = time.monotonic(), True
    for ranks in (int(word) for word in sys.argv[2:] or ("2", "4")):
        inside &= loop(folder / f"{ranks}-processes", ranks)
    print(f"\n{time.monotonic() - began:.0f} s in all; files in {folder}")
    return 0 if inside else 1


def loop(folder: Path, ranks: int) -> bool:
    """One machine size, from its calibration to the judgement."""
    folder.mkdir(parents=True, exist_ok=True)
    print(f"\n== {ranks} processes ==", flush=True)
    here = str(folder / "here.yaml")
    fits = ppplan("calibrate", "--device", "cpu", "--devices", str(ranks), "--out", here)[
        "fit_error"
    ]
    if ranks > cores():
        print(
            f"{ranks} processes share {cores()} cores: a rank that waits lends its core, so"
            " pipelines beat their prediction"
        )
    print("fit errors: " + ", ".join(f"{name} {error:.0%}" for name, error in fits.items()))
    asked = ("--gpus", str(ranks), *QUESTION)
    first = ppplan("recommend", *asked, "--cluster", here, "--out", str(folder / "plan"))["plans"][
        0
    ]
    print(f"recommended: {words(first['layout'])}, {first['estimate']['step_s']:.3f} s predicted")
    study = (
        "--storage",
        f"journal:{folder / 'study.journal'}",
        "--study",
        f"loop-{time.time():.0f}",
    )
    tuned = ppplan(
        "tune",
        str(folder / "plan" / "plan.yaml"),
        "--devices",
        str(ranks),
        "--trials",
        str(TRIALS.get(ranks, 10)),
        "--repeats",
        "1",
        "--switches",
        "0",
        "--limit-s",
        "120",
        *study,
    )
    show(
        "tune",
        [
            (one["layout"], one["predicted_s"], one["measured_s"], one["state"])
            for one in tuned["trials"]
        ],
    )
    chosen = tuned["best"]["layout"]
    inside = judged(chosen, exhaustive(folder / "plan" / "plan.yaml", ranks))
    again(tuned, asked)
    return inside


def ppplan(*command: str) -> dict[str, Any]:
    """The answer of a command as its JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "planner", *command, "--json"], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(
            f"ppplan {' '.join(command)} ended with"
            f" {done.returncode}:\n{done.stderr[-2000:]}{done.stdout[-2000:]}"
        )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def words(layout: dict[str, Any]) -> str:
    return " ".join(f"{name}={layout[name]}" for name in KNOBS)


def show(title: str, rows: list[tuple[dict[str, Any], float, float | None, str]]) -> None:
    """Predicted beside measured, and the median error."""
    print(f"{title}:")
    for layout, predicted, measured, says in rows:
        told = (
            f"{measured:7.3f} s measured, prediction {predicted / measured - 1:+4.0%}"
            if measured
            else "      not measured"
        )
        print(f"  {words(layout):52} {predicted:7.3f} s predicted {told}  {says}")
    errors = [abs(predicted / measured - 1) for _, predicted, measured, _ in rows if measured]
    print(
        (
            f"  median error of {len(errors)}: {statistics.median(errors):.0%}"
            if errors
            else "  nothing was measured"
        ),
        flush=True,
    )


def exhaustive(plan: Path, ranks: int) -> list[Timed]:
    """Every layout of the question, in turns over one start of the ranks."""
    recipe, first = question(plan)
    bench = table.bench(recipe, "torch", "local", ranks, LIMIT_S)
    every = space(recipe, first, lambda layout: table.refused(recipe, bench, layout)).candidates
    asked = turns.request(
        [torch_runner.request(recipe, one.layout, ranks, STEPS, WARMUP) for one in every], TURNS
    )
    outcome = local.run(Work(turns.MODULE, asked, ranks, LIMIT_S))
    if outcome.result is None:
        raise SystemExit(
            f"the exhaustive run {outcome.state}: {outcome.reason}\n{outcome.stderr_tail}"
        )
    told = [
        [statistics.median(answer["steps_s"]) for answer in turn]
        for turn in outcome.result["turns"]
    ]
    return [Timed(one, tuple(turn[place] for turn in told)) for place, one in enumerate(every)]


def question(plan: Path) -> tuple[Recipe, Layout]:
    """What `tune` reads from a plan: the question with its limits, and the layout."""
    saved, asked = plans.read(plan), plans.read_question(plan)
    recipe, first = resolve.recipe_and_layout(plans.asked(saved, str(plan)))
    return (
        recipe.model_copy(update={"knobs": resolve.recipe(plans.stated(asked, recipe)).knobs}),
        first,
    )


def judged(chosen: dict[str, Any], every: list[Timed]) -> bool:
    """Whether the chosen layout is within the noise band of one layout of the best."""
    every = sorted(every, key=lambda one: one.step_s)
    show(
        f"all {len(every)} layouts, {TURNS} turns",
        [
            (
                one.candidate.layout.named(),
                one.candidate.predicted_s,
                one.step_s,
                f"band {one.band:.0%}",
            )
            for one in every
        ],
    )
    best, mine = every[0], next(one for one in every if one.candidate.layout.named() == chosen)
    band = max(best.band, mine.band)
    inside = mine.step_s <= best.step_s * (1 + band)
    print(
        f"chosen by tune: {words(chosen)}, {mine.step_s / best.step_s - 1:.1%} behind the best of"
        f" all; noise band of one layout {band:.1%}: {'inside' if inside else 'OUTSIDE'}"
    )
    return inside


def again(tuned: dict[str, Any], asked: tuple[str, ...]) -> None:
    """The question once more, with the profile that the trials corrected."""
    overlay = next((name for name in tuned["files"] if name.endswith("-tuned.yaml")), None)
    if overlay is None:
        print(f"no corrected profile: {tuned['overlay_reason']}")
        return
    error = yaml.safe_load(Path(overlay).read_text(encoding="utf-8"))["kernels"][
        "source"
    ].rpartition("median error ")[2]
    first = ppplan("recommend", *asked, "--cluster", overlay)["plans"][0]
    says = f"{words(first['layout'])}, {first['estimate']['step_s']:.3f} s predicted"
    print(f"with the corrected profile (error {error}): {says}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
