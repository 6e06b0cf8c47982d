"""The verbs: what `ppplan` does, for programs. Questions and paths in, answers out; nothing is
printed.

>>> from planner import api
>>> answer = api.recommend(api.question(model="llama3-70b", gpus=32, cluster="h100-sxm"))
>>> answer.search.plans[0].layout.named()
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InputError, check_installed
from planner.layout import SCHEDULE_CODE
from planner.specs import plan as plans
from planner.specs import resolve
from planner.specs.question import changed, from_words
from planner.specs.sweep import MOST
from planner.specs.words import Question

if TYPE_CHECKING:
    from planner.accuracy.validate import Validation
    from planner.advice.comparison import Comparison
    from planner.advice.findings import Checked
    from planner.answers import Beside, Emitted, Explanation, Known, Recommendation, Sweep, SweepRow
    from planner.calibrate.calibrate import Calibration
    from planner.launch.capabilities import Diagnosis
    from planner.layout import Layout
    from planner.pipeline.answer import Answer
    from planner.search import Plan
    from planner.specs.recipe import Recipe
    from planner.tune.tune import Tuned

BESIDE = ("1f1b", "gpipe")
"""Plain schedules whose activations in flight are set beside those of a plan."""
SIMULATED = 16_384
"""Micro-batches times ranks up to which their pipelines are simulated as the plan's is; of larger
ones the closed form is as close.
"""


def question(**words: Any) -> Question:
    """A question in the words of the command line (`tp=8`, `pp="1..8"`, `sp=False`). InputError
    names every faulty word.
    """
    return from_words(words)


def recommend(
    asked: Question,
    top: int = 5,
    min_gpus: bool = False,
    out: str | Path | None = None,
    launcher: str = "torchrun",
    script: str | Path | None = None,
    format: str | None = None,
) -> Recommendation:
    """The best layouts that fit, and the files to launch the first of them when `out` names a
    folder.

    `format` ("accelerate", "bridge") names other software that reads the files than the framework's
    own. With `min_gpus` and no GPU count the answer is for the smallest count on which a layout
    fits.
    """
    from planner import search
    from planner.advice.goodput import of_plan
    from planner.answers import Recommendation
    from planner.plan_files import out_folder, training_script, write_plan

    if not 1 <= top <= 1000:
        raise InputError(f"top must be from 1 to 1,000 plans, but got {top}")
    folder = out_folder(out, launcher, format)
    own = training_script(script)
    if folder is None and (own or format or launcher != "torchrun"):
        raise InputError(
            "launcher, format and script say what the launch files hold, but no files are asked"
            " for; add --out DIR"
        )
    if asked.stage_layout:
        raise InputError(
            "stage_layout must be stated with a whole layout, but recommend searches layouts; give"
            " it to explain"
        )
    fewest = None
    if min_gpus:
        recipe = resolve.recipe(asked if asked.gpus else replace(asked, gpus=1))
        fewest = search.min_gpus(recipe)
        if fewest is None and asked.gpus is None:
            return Recommendation(asked, recipe, None)
        asked = asked if asked.gpus else replace(asked, gpus=fewest)
    recipe = resolve.recipe(asked)
    found = search.search(recipe, top=top)
    _check_searched(recipe, found.plans)
    fewest = fewest or found.min_gpus
    stated = plans.stated(asked, recipe)
    if not found.plans:
        return Recommendation(stated, recipe, found, fewest)
    best = found.plans[0]
    written = (
        ((), "")
        if folder is None
        else write_plan(folder, stated, recipe, best.layout, best.estimate, launcher, own, format)
    )
    return Recommendation(
        stated, recipe, found, fewest, *written, goodput=of_plan(asked, recipe, best.estimate)
    )


def explain(asked: Question) -> Explanation:
    """Every term of one layout. The question states it; degrees not stated are 1, dp follows from
    the GPUs, m from the batch.
    """
    from planner.advice.goodput import of_plan
    from planner.answers import Explanation
    from planner.estimate import estimate
    from planner.rules.table import breaches

    recipe, layout = resolve.recipe_and_layout(asked)
    broken = breaches(recipe, layout)
    try:
        said = estimate(recipe, layout, exact=True)
    except InputError as fault:
        # A layout may be too far from legal to be timed; then the rules say it better.
        raise InputError("; ".join(one.message for one in broken) or str(fault)) from None
    return Explanation(
        plans.stated(asked, recipe),
        recipe,
        layout,
        said,
        broken,
        _beside(recipe, layout),
        of_plan(asked, recipe, said),
    )


def sweep(asked: Question, over: Mapping[str, Sequence[Any]]) -> Sweep:
    """The table of one layout over the values of swept words, all combinations; m swept at fixed tp
    and pp changes the batch.
    """
    from planner.answers import Sweep

    rows = math.prod(len(values) for values in over.values())
    if not over or not 1 <= rows <= MOST:
        raise InputError(
            f"a sweep must have from 1 to {MOST:,} rows, but got {rows:,}; name fewer values"
        )
    points = [dict(zip(over, values, strict=True)) for values in product(*over.values())]
    found = tuple(_sweep_row(asked, words) for words in points)
    recipe = next((row_recipe for row_recipe, _ in found if row_recipe), None)
    if recipe is None:
        raise InputError(
            "a sweep must hold a layout that can be stated, but none is:"
            f" {found[0][1].breaches[0].message}"
        )
    return Sweep(asked, recipe, tuple(row for _, row in found))


def emit(
    path: str | Path,
    framework: str | None = None,
    launcher: str = "torchrun",
    out: str | Path | None = None,
    script: str | Path | None = None,
    format: str | None = None,
) -> Emitted:
    """The launch files of a saved plan; written when `out` names a folder. InputError when the plan
    breaks a rule.

    `script` is a training script of your own, in place of the one that is written (DeepSpeed) or
    named (Megatron-LM); `format` as in `recommend`.
    """
    from planner.answers import Emitted
    from planner.files import write_folder
    from planner.plan_files import launch_texts, out_folder, training_script

    folder = out_folder(out, launcher, format)
    own = training_script(script)
    saved = plans.read(path)
    asked = plans.asked(saved, str(path))
    if framework and framework != asked.framework:
        asked = changed(asked, {"framework": framework})
    recipe, layout = resolve.recipe_and_layout(asked)
    recipe = recipe.model_copy(update={"switches": saved.switches})
    texts = launch_texts(recipe, layout, launcher, own, form=format)
    return Emitted(texts, write_folder(folder, texts) if folder is not None else ())


def simulate(**words: Any) -> Answer:
    """The exact timeline of a pipeline schedule in the words of the command line:
    `simulate(schedule="1f1b", pp=4, m=8)`.

    schedule="all" compares the legal ones, bubble=0.1 looks for m, forward_only=PATH serves a
    scenario. InputError as the command's.
    """
    from planner.pipeline.answer import answer, stated

    return answer(stated(words))


def validate(
    files: Sequence[str | Path] | None = None, source: str | None = None, where: str | None = None
) -> Validation:
    """Predictions against measured runs: the published ones, or CSV files; `where` is a pandas
    query over their columns.
    """
    from planner.accuracy.validate import validate as compared

    return compared(files, source, where)


def tune(path: str | Path, **words: Any) -> Tuned:
    """Measures layouts around a saved plan and refines it, in the words of the command line:
    `tune("plan.yaml", trials=10)`.

    `tell` hears of every trial. InputError for a plan, a runner, a storage or a study that cannot
    be.
    """
    check_installed("tune", "optuna")
    from planner.tune.tune import tune as tuned

    return tuned(path, **words)


def check(
    file: str | Path,
    cluster: str | None = None,
    gpus: int | None = None,
    model: str | None = None,
    set: Sequence[str] = (),
    oom: str | None = None,
    fix: str | Path | None = None,
) -> Checked:
    """A launch script, configuration or log that exists: what is illegal, does not fit, is slow, or
    is not what it seems.

    `set` (NAME=VALUE) supplies what the file does not tell, `oom` is an out-of-memory message,
    `fix` where to write the file again.
    """
    from planner.advice.check import check_file

    return check_file(file, cluster, gpus, model, set, oom, fix)


def _sweep_row(asked: Question, words: dict[str, Any]) -> tuple[Recipe | None, SweepRow]:
    from planner.answers import SweepRow
    from planner.estimate import estimate
    from planner.rules.rule import Breach
    from planner.rules.table import breaches

    try:
        recipe, layout = resolve.recipe_and_layout(changed(asked, words))
    except InputError as fault:
        return None, SweepRow(words, None, None, (Breach("the words state no layout", str(fault)),))
    broken = breaches(recipe, layout)
    try:
        said = estimate(recipe, layout, exact=True)
    except InputError as fault:
        return recipe, SweepRow(
            words, layout, None, broken or (Breach("the layout cannot be timed", str(fault)),)
        )
    return recipe, SweepRow(words, layout, said, broken)


def _beside(recipe: Recipe, layout: Layout) -> tuple[Beside, ...]:
    from planner.answers import Beside
    from planner.cost.memory.rank_memory import in_flight
    from planner.estimate import estimate

    plain = {
        name: replace(layout, schedule=SCHEDULE_CODE[name], v=1, group=0, stage_layout="")
        for name in BESIDE
    }
    exact = layout.pp * layout.m <= SIMULATED
    return tuple(
        Beside(name, float(in_flight(one, 0)), estimate(recipe, one, exact=exact))
        for name, one in plain.items()
    )


def _check_searched(recipe: Recipe, found: tuple[Plan, ...]) -> None:
    """A knob that was fixed or bounded but is not searched must not pass in silence."""
    for name, bound in recipe.knobs.items():
        if any(not bound.low <= getattr(one.layout, name) <= bound.high for one in found):
            way_out = "leave it out, or state the whole layout to explain"
            raise InputError(
                f"knobs must be ones that recommend searches, but got {name}; {way_out}"
            )


def calibrate(**words: Any) -> Calibration:
    """Measures this machine in child processes and writes a profile: the words of
    planner.calibrate.calibrate.
    """
    from planner.calibrate.calibrate import calibrate as measured

    return measured(**words)


def compare(
    asked: Question | None,
    over: Mapping[str, Sequence[Any]],
    plans: Sequence[str | Path] = (),
    price: float | None = None,
) -> Comparison:
    """The best plan of one question over clusters, GPU counts, sequence lengths and precisions
    (`over={"cluster": [...]}`), or of saved plans; `price` is dollars a GPU hour."""
    from planner.advice.comparison import compare_best_plans

    return compare_best_plans(asked, over, plans, price)


def models(name: str | None = None) -> Known:
    """Model presets with sizes and sources; with a name (or a path) that one in full."""
    from planner import known
    from planner.answers import Known

    return Known("models", known.models(name), name is not None)


def clusters(name: str | None = None) -> Known:
    """Hardware profiles with the source of every group of figures; with a name (or a path) that one
    in full.
    """
    from planner import known
    from planner.answers import Known

    return Known("clusters", known.clusters(name), name is not None)


def doctor(megatron: str | Path | None = None) -> Diagnosis:
    """What this machine has, which runners and launchers of tune would work on it, and why not;
    megatron: a clone of Megatron-LM.
    """
    from planner.launch import capabilities, machine

    return capabilities.diagnosis(machine.look(), None if megatron is None else str(megatron))


def schedules(name: str | None = None) -> Known:
    """Pipeline schedules and the stacks that run them; with a name that one in full."""
    from planner import known
    from planner.answers import Known

    return Known("schedules", known.schedules(name), name is not None)


def stacks(name: str | None = None) -> Known:
    """Training software as the cost model sees it; with a name (or a path) that one in full."""
    from planner import known
    from planner.answers import Known

    return Known("stacks", known.stacks(name), name is not None)
