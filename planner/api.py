"""The verbs: what `ppplan` does, for programs. Words and paths in, answers out; nothing is printed.

>>> import ppplan
>>> answer = ppplan.recommend(model="llama3-70b", gpus=32, cluster="h100-sxm")
>>> print(answer.best.layout)

The words are those of the command line. A question may also be made first, with `question()`, or
be the path of a recipe or of a saved plan; words beside it restate it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from planner.errors import InputError, check_installed
from planner.specs import plan as plan_file
from planner.specs import resolve
from planner.specs.question import changed, from_words
from planner.specs.sweep import MAX_ROWS, at, check_names, check_once
from planner.specs.switches.table import under
from planner.specs.word_types import checked
from planner.specs.words import (
    CalibrateWords,
    Question,
    QuestionWords,
    SimulateWords,
    TuneWords,
)

if TYPE_CHECKING:
    from planner.accuracy.validate import Validation
    from planner.advice.comparison import Comparison
    from planner.advice.findings import Checked
    from planner.answers import (
        Emitted,
        Explanation,
        Known,
        Recommendation,
        Sweep,
        SweepRow,
    )
    from planner.calibrate.calibrate import Calibration
    from planner.launch.capabilities import Diagnosis
    from planner.pipeline.answer import Answer
    from planner.search import Plan
    from planner.specs.recipe import Recipe
    from planner.tune.study.study import Tell
    from planner.tune.tune import Tuned
else:
    Tell = Callable

__all__ = [
    "InputError",
    "Question",
    "calibrate",
    "check",
    "clusters",
    "compare",
    "doctor",
    "emit",
    "explain",
    "models",
    "question",
    "recommend",
    "schedules",
    "simulate",
    "stacks",
    "sweep",
    "switches",
    "tune",
    "validate",
]


@checked
def question(**words: Unpack[QuestionWords]) -> Question:
    """A question in the words of the command line (`tp=8`, `pp="1..8"`, `sp=False`). InputError
    names every faulty word.
    """
    return from_words(words)


@checked
def recommend(
    question: Question | str | Path | None = None,
    top: int | None = None,
    min_gpus: bool = False,
    out: str | Path | None = None,
    launcher: str = "torchrun",
    script: str | Path | None = None,
    format: str | None = None,
    **words: Unpack[QuestionWords],
) -> Recommendation:
    """The best layout that fits and those that differ from it, each for a reason (`Plan.roles`), or
    with `top` so many of the fastest; and the files to launch the first when `out` names a folder.

    `format` ("accelerate", "bridge") names other software that reads the files than the framework's
    own. With `min_gpus` and no GPU count the answer is for the smallest count on which a layout
    fits.
    """
    from planner import numerics, search
    from planner.advice.best_plans import best_plans
    from planner.advice.goodput import of_plan
    from planner.answers import Recommendation
    from planner.plan_files import out_folder, training_script, write_plan
    from planner.schedule_options import schedule_options
    from planner.switch_gains import other_values

    if top is not None and not 1 <= top <= 1000:
        raise InputError(f"top must be from 1 to 1,000 plans, but got {top}")
    folder = out_folder(out, launcher, format)
    own = training_script(script)
    if folder is None and (own or format or launcher != "torchrun"):
        raise InputError(
            "launcher, format and script say what the launch files hold, but no files are asked"
            " for; add --out DIR"
        )
    question = plan_file.restated(question, words)
    if question.stage_layout:
        raise InputError(
            "stage_layout must be stated with a whole layout, but recommend searches layouts; give"
            " it to explain"
        )
    fewest = None
    if min_gpus:
        sized = question if question.gpus else replace(question, gpus=1)
        recipe = resolve.recipe(sized)
        if question.allow_numerics:
            recipe = resolve.recipe(numerics.all_taken(sized, recipe))
        fewest = search.min_gpus(recipe)
        if fewest is None and question.gpus is None:
            return Recommendation(question, recipe, None)
        question = question if question.gpus else replace(question, gpus=fewest)
    answered = best_plans(question, top, format or "")
    question, recipe, result = answered.question, answered.recipe, answered.result
    _check_searched(recipe, result.plans)
    fewest = fewest or result.min_gpus
    complete = plan_file.with_defaults(question, recipe)
    if not result.plans:
        return Recommendation(complete, recipe, result, fewest, offers=answered.offers)
    best = result.plans[0]
    files: tuple[tuple[str, ...], str] = ((), "")
    if folder is not None:
        files = write_plan(
            folder, complete, recipe, best.layout, best.estimate, launcher, own, format
        )
    goodput = of_plan(question, recipe, best.estimate)
    gains = tuple(other_values(recipe, best.layout, step_s=float(best.estimate.step_s)))
    return Recommendation(
        complete,
        recipe,
        result,
        fewest,
        *files,
        switches=gains,
        offers=answered.offers,
        held=numerics.held(question, recipe, best.layout, answered.taken),
        goodput=goodput,
        schedules=schedule_options(recipe, best.layout, best.estimate),
    )


@checked
def explain(
    question: Question | str | Path | None = None, **words: Unpack[QuestionWords]
) -> Explanation:
    """Every term of one layout. The question states it, or a saved plan does; degrees not stated
    are 1, dp follows from the GPUs, m from the batch.
    """
    from planner.advice.goodput import of_plan
    from planner.answers import Explanation
    from planner.cost.terms import ACCEPTED_OOM_PROBABILITY
    from planner.estimate import estimate, kinds_of_layers
    from planner.numerics import held
    from planner.rules.table import breaches
    from planner.schedule_options import schedule_options
    from planner.switch_gains import other_values

    question = plan_file.restated(question, words, layout=True)
    recipe, layout = resolve.recipe_and_layout(question)
    broken = breaches(recipe, layout)
    try:
        exact = estimate(recipe, layout, exact=True)
    except InputError as fault:
        # A layout may be too far from legal to be timed; then the rules say it better.
        raise InputError("; ".join(breach.message for breach in broken) or str(fault)) from None
    # where it does not fit, what switches are worth is told all the same
    accepted = ACCEPTED_OOM_PROBABILITY if exact.fits else math.inf
    return Explanation(
        plan_file.with_defaults(question, recipe),
        recipe,
        layout,
        exact,
        broken,
        schedule_options(recipe, layout, exact),
        held(question, recipe, layout),
        of_plan(question, recipe, exact),
        tuple(other_values(recipe, layout, accepted, float(exact.step_s))),
        kinds_of_layers(recipe, layout),
    )


@checked
def sweep(
    question: Question | str | Path | None = None,
    over: Mapping[str, Sequence[Any]] | None = None,
    **words: Unpack[QuestionWords],
) -> Sweep:
    """The table of one layout over the values of swept words, all combinations:
    `over={"v": [1, 2, 4]}`, `over={"cuda_graph": ["none", "attn"]}`. m swept at fixed tp and pp
    changes the batch.
    """
    from planner.answers import Sweep

    over = over or {}
    count = math.prod(len(values) for values in over.values())
    if not over or not 1 <= count <= MAX_ROWS:
        raise InputError(
            f"a sweep must have from 1 to {MAX_ROWS:,} rows, but got {count:,}; name fewer values"
        )
    check_once(over, words)
    check_names(over)
    question = plan_file.restated(question, words, layout=True)
    points = [dict(zip(over, values, strict=True)) for values in product(*over.values())]
    rows = tuple(_sweep_row(question, point) for point in points)
    recipe = next((row_recipe for row_recipe, _ in rows if row_recipe), None)
    if recipe is None:
        raise InputError(
            "a sweep must hold a layout that can be stated, but none is:"
            f" {rows[0][1].breaches[0].message}"
        )
    return Sweep(question, recipe, tuple(row for _, row in rows))


@checked
def emit(
    plan: str | Path,
    framework: str | None = None,
    launcher: str = "torchrun",
    out: str | Path | None = None,
    script: str | Path | None = None,
    format: str | None = None,
    prove: bool = False,
) -> Emitted:
    """The launch files of a saved plan; written when `out` names a folder. InputError when the plan
    breaks a rule.

    With `prove` a script instead, which runs the fullest rank on one GPU and prints a line that
    `check` and `validate` read.

    `script` is a training script of your own, in place of the one that is written (DeepSpeed) or
    named (Megatron-LM); `format` as in `recommend`.
    """
    from planner.answers import Emitted
    from planner.files import write_folder
    from planner.plan_files import launch_texts, out_folder, prove_text, training_script

    if prove and (script or format or launcher != "torchrun"):
        raise InputError(
            "--prove runs one rank by itself, but got a launcher, format or script; leave them out"
        )
    folder = out_folder(out, launcher, format)
    own = training_script(script)
    saved = plan_file.read(plan)
    question = plan_file.layout_question(saved, str(plan))
    if framework and framework != question.framework:
        question = changed(question, {"framework": framework})
    recipe, layout = resolve.recipe_and_layout(question)
    recipe = under(recipe, saved.switches)
    if prove:
        measured = plan_file.restated(plan, {}, layout=True)  # with what tune found
        asked = question if framework else measured
        texts = {"prove.py": prove_text(asked, recipe, layout)}
    else:
        texts = launch_texts(recipe, layout, launcher, own, form=format)
    return Emitted(texts, write_folder(folder, texts) if folder is not None else ())


@checked
def simulate(**words: Unpack[SimulateWords]) -> Answer:
    """The exact timeline of a pipeline schedule in the words of the command line:
    `simulate(schedule="1f1b", pp=4, m=8)`.

    schedule="all" compares the legal ones, bubble=0.1 looks for m, forward_only=PATH serves a
    scenario. InputError as the command's.
    """
    from planner.pipeline.answer import all_words, answer

    return answer(all_words(words))


@checked
def validate(
    files: Sequence[str | Path] | None = None, source: str | None = None, where: str | None = None
) -> Validation:
    """Predictions against measured runs: the published ones, or CSV files; `where` is a pandas
    query over their columns.
    """
    from planner.accuracy import validate

    return validate.validate(files, source, where)


@checked
def tune(plan: str | Path, *, tell: Tell | None = None, **words: Unpack[TuneWords]) -> Tuned:
    """Measures layouts around a saved plan and refines it: `tune("plan.yaml", trials=10)`.

    The words are those of the command line; `tell` hears of every trial. InputError for a plan, a
    runner, a storage or a study that cannot be.
    """
    check_installed("tune", "optuna")
    from planner.tune import tune

    return tune.tune(plan, tell=tell, **words)


@checked
def calibrate(
    out: str | Path = "profile.yaml",
    *,
    tell: Callable[[str], None] = lambda line: None,
    **words: Unpack[CalibrateWords],
) -> Calibration:
    """Measures this machine in child processes and writes a profile to `out`.

    `device` is "cpu" or "cuda", `measured` the result of a worker that torchrun started over nodes.
    `tell` gets progress, line by line. A failed run is a Calibration without a profile.
    """
    from planner.calibrate import calibrate

    return calibrate.calibrate(out, tell=tell, **words)


@checked
def check(
    file: str | Path,
    cluster: str | None = None,
    gpus: int | None = None,
    model: str | None = None,
    set: Sequence[str] = (),
    oom: str | None = None,
    fix: str | Path | None = None,
    software: str | None = None,
    framework_version: str | None = None,
    stack: str | None = None,
    container: str | None = None,
) -> Checked:
    """A launch script, configuration or log that exists: what is illegal, does not fit, is slow, or
    is not what it seems.

    `set` (NAME=VALUE) supplies what the file does not tell, `oom` is an out-of-memory message,
    `fix` where to write the file again. `software`, `framework_version`, `stack` and `container`
    say what it runs in, as in `recommend`.
    """
    from planner.advice.check import check_file

    runs_in = {
        "software": software,
        "framework_version": framework_version,
        "stack": stack,
        "container": container,
    }
    stated = [f"{name}={value}" for name, value in runs_in.items() if value]
    return check_file(file, cluster, gpus, model, (*set, *stated), oom, fix)


@checked
def compare(
    question: Question | str | Path | None = None,
    over: Mapping[str, Sequence[Any]] | None = None,
    plans: Sequence[str | Path] = (),
    price: float | None = None,
    **words: Unpack[QuestionWords],
) -> Comparison:
    """The best plan of one question over clusters, GPU counts, sequence lengths, precisions,
    software, its versions and switches (`over={"cluster": [...], "cuda_graph": ["none", "attn"]}`),
    or of saved plans; `price` is dollars a GPU hour.
    """
    from planner.advice.comparison import compare_best_plans

    check_once(over or {}, words)
    check_names(over or {})
    if question is not None or words or not plans:
        question = plan_file.restated(question, words)
    return compare_best_plans(question, over or {}, plans, price)


def _sweep_row(question: Question, words: dict[str, Any]) -> tuple[Recipe | None, SweepRow]:
    from planner.answers import SweepRow
    from planner.estimate import estimate
    from planner.rules.rule import Breach
    from planner.rules.table import breaches

    try:
        recipe, layout = resolve.recipe_and_layout(at(question, words))
    except InputError as fault:
        return None, SweepRow(words, None, None, (Breach("the words state no layout", str(fault)),))
    broken = breaches(recipe, layout)
    try:
        exact = estimate(recipe, layout, exact=True)
    except InputError as fault:
        return recipe, SweepRow(
            words, layout, None, broken or (Breach("the layout cannot be timed", str(fault)),)
        )
    return recipe, SweepRow(words, layout, exact, broken)


@checked
def models(name: str | None = None) -> Known:
    """Model presets with sizes and sources; with a name (or a path) that one in full."""
    from planner import known
    from planner.answers import Known

    return Known("models", known.models(name), name is not None)


@checked
def clusters(name: str | None = None) -> Known:
    """Hardware profiles with the source of every group of figures; with a name (or a path) that one
    in full.
    """
    from planner import known
    from planner.answers import Known

    return Known("clusters", known.clusters(name), name is not None)


@checked
def doctor(megatron: str | Path | None = None) -> Diagnosis:
    """What this machine has, which runners and launchers of tune would work on it, and why not;
    megatron: a clone of Megatron-LM.
    """
    from planner.launch import capabilities, machine

    return capabilities.diagnosis(machine.look(), None if megatron is None else str(megatron))


@checked
def schedules(name: str | None = None) -> Known:
    """Pipeline schedules and the stacks that run them; with a name that one in full."""
    from planner import known
    from planner.answers import Known

    return Known("schedules", known.schedules(name), name is not None)


@checked
def stacks(name: str | None = None, every: bool = False) -> Known:
    """Training software as the cost model sees it, and its distributions; every: those too that
    are there for published runs alone. With a name (or a path) that one in full.
    """
    from planner import known
    from planner.answers import Known

    return Known("stacks", known.stacks(name, every), name is not None)


@checked
def switches(name: str | None = None, framework: str | None = None) -> Known:
    """Switches of every framework, or of one: what they do, how they are written; with a name that
    one.
    """
    from planner import known
    from planner.answers import Known

    return Known("switches", known.switches(name, framework), name is not None)


def _check_searched(recipe: Recipe, plans: tuple[Plan, ...]) -> None:
    """A knob that was fixed or bounded but is not searched must not pass in silence."""
    for name, bound in recipe.knobs.items():
        if any(not bound.low <= getattr(plan.layout, name) <= bound.high for plan in plans):
            way_out = "leave it out, or state the whole layout to explain"
            raise InputError(
                f"knobs must be ones that recommend searches, but got {name}; {way_out}"
            )
