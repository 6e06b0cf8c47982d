"""`tune`: a saved plan in; trials on real devices; the refined plan, the table of trials and an
overlay profile out.
"""

from __future__ import annotations

import json
import platform
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.files import check_folder, folder, write_folder
from planner.launch.outcome import Outcome, Progress
from planner.layout import Layout
from planner.specs import plan as plans
from planner.specs import resolve
from planner.specs.recipe import Recipe
from planner.specs.switches import table as switch_table
from planner.specs.words import Question
from planner.tune.answer import refined_plan
from planner.tune.answer.overlay import Overlay, corrected
from planner.tune.measurement import Measurement
from planner.tune.runners import table
from planner.tune.runners.table import Bench
from planner.tune.study import storage as storages
from planner.tune.study import study as studies
from planner.tune.study.space import Candidate, Space, key, space
from planner.tune.study.study import Size, Tell
from planner.tune.study.switches import effective, offers, unsupported
from planner.tune.study.trials import Row, best, combined
from planner.views import Views

MAX_TRIALS = 10_000
NAME = re.compile(r"[\w.+ -]{1,100}")


@dataclass(frozen=True, slots=True, repr=False)
class Tuned(Views):
    """What a study found."""

    plan: str
    recipe: Recipe
    first: Layout
    """The layout of the plan that came in."""
    rows: tuple[Row, ...]
    best: Row | None
    """The fastest that ran to its end; None when all failed."""
    speedup_over_first: float | None
    error: float | None
    """Median of |predicted / measured - 1|."""
    storage: str
    study: str
    bench: Bench
    candidates: int
    certain_oom: int
    """Legal layouts that were never launched since they would run out of memory for certain."""
    overlay: Overlay | None
    """None where it would predict no better than the plan's profile."""
    files: tuple[str, ...]
    interrupted: bool = False
    plots: dict[str, Any] = field(default_factory=dict)
    """What Optuna's plots draw: history, slices, intermediate values, importances (study.json)."""
    unsupported: tuple[str, ...] = ()
    """Switches of the plan's software that the runner does not turn, and so did not measure."""
    overlay_reason: str = ""
    """Why there is no overlay; empty when there is one, and when no trial ran to its end."""


def tune(
    path: str | Path,
    trials: int = 10,
    runner: str = "torch",
    launcher: str = "local",
    storage: str | None = None,
    study: str | None = None,
    resume: bool = False,
    limit_s: float = 600.0,
    devices: int | None = None,
    out: str | Path | None = None,
    megatron_path: str | Path | None = None,
    repeats: int = 2,
    switches: int = 4,
    tell: Tell | None = None,
) -> Tuned:
    """Refines a saved plan by measuring layouts around it; the trials of a study add up to
    `trials`, over all its workers.

    Errors: InputError for a plan that cannot be read or run, a storage that cannot be opened, a
    study of another plan.
    """
    if not 1 <= trials <= MAX_TRIALS:
        raise InputError(f"trials must be from 1 to {MAX_TRIALS:,}, but got {trials:,}")
    if not 0 <= switches <= MAX_TRIALS:
        raise InputError(f"switches must be from 0 to {MAX_TRIALS:,} runs, but got {switches:,}")
    if not 0 <= repeats <= 100:
        raise InputError(f"repeats must be from 0 to 100, but got {repeats:,}")
    plan = Path(path)
    saved = plans.read(plan)
    question, (recipe, first) = (
        plans.read_question(plan),
        resolve.recipe_and_layout(plans.layout_question(saved, str(plan))),
    )
    recipe = recipe.model_copy(
        update={"knobs": resolve.recipe(plans.with_defaults(question, recipe)).knobs}
    )
    bench = table.bench(recipe, runner, launcher, devices, limit_s, megatron_path)
    target = folder(out) if out is not None else plan.parent / f"{plan.stem}-tuned"
    check_folder(target)
    where, name = storage or storages.default(plan), _named(study, plan, runner)
    fixed = switch_table.parse(question.switch, recipe.framework)
    lossy = bool(question.allow_numerics)
    offered = offers(recipe, runner, bench.devices, bench.device, fixed, lossy)
    candidates = space(recipe, first, lambda layout: table.refused(recipe, bench, layout))
    candidates = replace(candidates, switches=effective(first, saved.switches, offered))
    size = Size(trials, max(trials // 2, 1), repeats, switches)
    opened = studies.create(
        storages.opened(where), name, _fingerprint(recipe, first, bench), resume, candidates, size
    )

    def measured(candidate: Candidate, progress: Progress) -> tuple[Outcome, Measurement | None]:
        return table.measure(recipe, bench, candidate, progress)

    with _ends_softly():
        interrupted = studies.refine(opened, candidates, measured, size, tell or _silent, offered)
    return _answer(
        plan, saved, question, recipe, first, bench, candidates, opened, where, target, interrupted
    )


def _named(name: str | None, plan: Path, runner: str) -> str:
    named = name or f"{plan.absolute().parent.name}-{plan.stem}-{runner}"[:100]
    if not NAME.fullmatch(named):
        if name is None:
            return f"plan-{runner}"
        raise InputError(
            "study must be a name of letters, digits and . _ + -, at most 100, but got"
            f" {named[:60]!r}"
        )
    return named


def _silent(row: Row, rows: tuple[Row, ...]) -> None:
    return None


def _fingerprint(recipe: Recipe, first: Layout, bench: Bench) -> dict[str, Any]:
    """What must be the same for times to be comparable; entries are named in the message when they
    differ.
    """
    import hashlib

    documents = (recipe.model, recipe.hardware, recipe.software)
    digest = hashlib.sha256(
        "".join(document.model_dump_json() for document in documents).encode()
    ).hexdigest()[:16]
    return {
        "model": recipe.model.name,
        "cluster": recipe.hardware.name,
        "gpus": recipe.gpus,
        "seq_length": recipe.seq_length,
        "global_batch_size": recipe.global_batch_size,
        "precision": recipe.precision,
        "attention": recipe.attention,
        "framework": recipe.framework,
        "framework_version": recipe.framework_version,
        "stack": recipe.software.name,
        "runner": bench.runner,
        "device": bench.device,
        "devices": bench.devices,
        "layout": key(first),
        "documents": digest,
    }


@contextmanager
def _ends_softly() -> Iterator[None]:
    """A batch system that ends us (SIGTERM) gets what Ctrl-C gets: the best so far."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _answer(
    plan: Path,
    saved: plans.SavedPlan,
    question: Question,
    recipe: Recipe,
    first: Layout,
    bench: Bench,
    candidates: Space,
    study: Any,
    where: str,
    target: Path,
    interrupted: bool,
) -> Tuned:
    rows = studies.all_rows(study)
    fastest = best(rows)
    measured = {row.key: row for row in combined(rows)}
    before = measured.get(key(first, candidates.switches), measured.get(key(first)))
    today = date.today().isoformat()
    texts = {"trials.csv": refined_plan.table(rows), "study.json": refined_plan.plots(study)}
    fitted, why = None, ""
    if fastest is not None:
        stated = plans.with_defaults(question, recipe)
        texts["plan.yaml"] = refined_plan.plan(stated, recipe, fastest, before, rows, today)
        fitted, why = corrected(
            recipe, str(stated.cluster), question.set, rows, _source(fastest, bench, today)
        )
    if fitted is not None:
        texts[f"{fitted.name}.yaml"] = fitted.text
    return Tuned(
        str(plan),
        recipe,
        first,
        rows,
        fastest,
        refined_plan.speedup(fastest, before),
        refined_plan.error(rows),
        where,
        study.study_name,
        bench,
        len(candidates.candidates),
        candidates.certain_oom,
        fitted,
        write_folder(target, texts),
        interrupted,
        json.loads(texts["study.json"]),
        unsupported(recipe, first, bench.runner),
        why,
    )


def _source(fastest: Row, bench: Bench, today: str) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in fastest.versions)
    return (
        f"{fastest.host or platform.node()} ({fastest.device or bench.device}), {today},"
        f" {versions or bench.runner}"
    )
