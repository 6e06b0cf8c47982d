"""plan.yaml and the launch files beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from planner import __version__
from planner.cost.named import named
from planner.cost.terms import Estimate
from planner.errors import InputError
from planner.estimate import closed_form
from planner.estimate import estimate as estimated
from planner.files import check_folder, folder, write_folder
from planner.layout import Layout
from planner.specs.plan import SavedPlan
from planner.specs.recipe import Recipe
from planner.specs.switches.lossy import in_force
from planner.specs.words import Question

SAME = 1e-3
"""Memory of two counts of micro-batches that differ by less is the same."""
_HEAD = """# A plan of ppplan: `ppplan explain THIS` prints every term, `ppplan emit THIS` writes \
the launch files.
# Times in seconds, memory in GiB, per GPU.
"""


def plan_text(
    question: Question,
    recipe: Recipe,
    layout: Layout,
    estimate: Estimate,
    measured: dict[str, Any] | None = None,
) -> str:
    """A plan as YAML; figures rounded to six digits. measured: plain values, what `tune` found of
    the layout.
    """
    import numpy

    saved = SavedPlan(
        question=_plain(question.words()),
        layout=layout.named(),
        switches=dict(recipe.switches),
        estimate=_plain(named(estimate)),
        assumed=tuple(dict.fromkeys((*recipe.assumed, *estimate.assumed))),
        versions={
            "ppplan": __version__,
            recipe.framework: recipe.framework_version,
            "numpy": numpy.__version__,
        },
        numerics=in_force(recipe, layout),
        software=recipe.versions,
        profile={
            "name": recipe.hardware.name,
            "source": recipe.hardware.gpu.source,
            "set": list(question.set),
        },
    )
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    empty = [name for name in ("switches", "numerics") if not getattr(saved, name)]
    content = saved.model_dump(exclude={"measured", *empty})
    content |= {"software": recipe.versions.stated()}
    content |= {"measured": measured} if measured else {}
    return _HEAD + yaml.dump(_plain(content), Dumper=dumper, sort_keys=False, width=120)


def _plain(value: Any) -> Any:
    """Tuples as lists, floats to six significant digits: what a person wants to read in a file."""
    if isinstance(value, dict):
        return {key: _plain(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(x) for x in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def write_plan(
    out: Path,
    question: Question,
    recipe: Recipe,
    layout: Layout,
    estimate: Estimate,
    launcher: str,
    script: str | None,
    form: str | None = None,
) -> tuple[tuple[str, ...], str]:
    """Writes a plan and its launch files; where those cannot be written the plan alone, and why."""
    texts, refused = {"plan.yaml": plan_text(question, recipe, layout, estimate)}, ""
    try:
        texts |= launch_texts(recipe, layout, launcher, script, estimate, form)
    except InputError as fault:
        refused = str(fault)
    return write_folder(out, texts), refused


def launch_texts(
    recipe: Recipe,
    layout: Layout,
    launcher: str,
    script: str | None,
    estimate: Estimate | None = None,
    form: str | None = None,
) -> dict[str, str]:
    """Launch files of one layout by name; form: other software that reads them than the framework's
    own.

    InputError when it breaks a rule, or when what reads the files cannot express it.
    """
    from planner.emit.table import files

    recipe = recipe.model_copy(update={"launched_by": form or ""})
    _check_legal(recipe, layout)
    return files(
        recipe, layout, estimate or estimated(recipe, layout, exact=True), launcher, script, form
    )


def _check_legal(recipe: Recipe, layout: Layout) -> None:
    from planner.rules.table import breaches

    broken = breaches(recipe, layout)
    if broken:
        raise InputError(
            f"launch files must be of a layout that {recipe.framework} can run, but"
            f" {broken[0].message}"
        )


def prove_text(question: Question, recipe: Recipe, layout: Layout) -> str:
    """The script that runs the fullest rank of a plan on one GPU. question: states the layout.

    It runs no more micro-batches than it takes to fill the memory as the plan does. InputError for
    a plan that breaks a rule, or that no fake process group runs.
    """
    from planner.emit import prove

    prove.check(recipe, layout)
    _check_legal(recipe, layout)
    exact = estimated(recipe, layout, exact=True)
    fullest = max(exact.stages, key=lambda stage: stage.memory_bytes, default=None)
    stage = 0 if fullest is None else fullest.stage
    words = _plain(question.words())
    fewer, short = _with_fewer_micro_batches(recipe, layout)
    proof = {
        "question": words,
        "digest": prove.digest(words),
        "stage": stage,
        "micro_batches": int(short.m),
        "predicted": {
            "allocated_bytes": float(exact.memory.allocated_bytes),
            "reserved_bytes": float(exact.memory.reserved_bytes),
        },
    }
    return prove.text(fewer, short, stage, proof)


def _with_fewer_micro_batches(recipe: Recipe, layout: Layout) -> tuple[Recipe, Layout]:
    """The plan with the fewest micro-batches, a pipeline's depth and one more at least, that break
    no rule and hold the same memory.
    """
    from planner.rules.table import breaches

    whole = float(closed_form(recipe, layout).memory.allocated_bytes)
    for count in range(int(layout.pp) + 1, int(layout.m)):
        short = replace(layout, m=count)
        fewer = recipe.model_copy(update={"global_batch_size": int(short.gbs)})
        if breaches(fewer, short):
            continue
        if abs(float(closed_form(fewer, short).memory.allocated_bytes) / whole - 1) < SAME:
            return fewer, short
    return recipe, layout


def training_script(path: str | Path | None) -> str | None:
    """The whole path of a training script; InputError when it is no file."""
    if path is not None and not Path(path).is_file():
        raise InputError(f"script must be a Python file that trains, but there is none at {path}")
    return None if path is None else str(Path(path).resolve())


def out_folder(out: str | Path | None, launcher: str, form: str | None = None) -> Path | None:
    """Where files go. What can go wrong at the end of the work is asked before it."""
    from planner.emit.table import check

    check(launcher, form)
    if out is None:
        return None
    check_folder(folder(out))
    return folder(out)
