"""plan.yaml: a saved plan, read back by `explain`, `emit` and whatever refines it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from planner.errors import InputError, unknown
from planner.layout import Layout
from planner.specs.documents import FrozenDocument, build, read_mapping
from planner.specs.question import LAYOUT_WORDS, changed, from_words
from planner.specs.recipe import Recipe
from planner.specs.software_versions import SoftwareVersions
from planner.specs.switches import table as switch_table
from planner.specs.switches.switch import Switches
from planner.specs.versions import version_of
from planner.specs.words import Question

SIZES = ("tp", "pp", "dp", "cp", "v", "mbs", "m")


class SavedPlan(FrozenDocument):
    """The question with every word stated, the layout, what the cost model said of it, and what it
    came from.
    """

    question: dict[str, Any]
    layout: dict[str, Any]
    estimate: dict[str, Any]
    assumed: tuple[str, ...] = ()
    versions: dict[str, str]
    """Of ppplan, of the framework whose rules and flags hold, of numpy."""
    numerics: dict[str, str] = Field(default_factory=dict)
    """What of the plan changes the numbers that the run computes: lossy switches and states."""
    software: SoftwareVersions = SoftwareVersions()
    """What the plan counts on below them, as far as it is known."""
    profile: dict[str, Any]
    """Name and source of the hardware profile, and the figures of it that were changed."""
    switches: dict[str, Any] = Field(default_factory=dict)
    """Switches of the software, sizes of buckets among them, that `tune` found to be faster than
    the plan's own.
    """
    measured: dict[str, Any] | None = None
    """Of a plan that `tune` refined: what was measured of its layout, where, and beside how many
    others.
    """


def read(path: str | Path) -> SavedPlan:
    """A plan file; InputError names every fault of it."""
    data = read_mapping(Path(path))
    if "layout" not in data and "model" in data:
        raise InputError(
            f"{path} must be a saved plan, but it is a recipe; `ppplan recommend {path} --out DIR`"
            " writes DIR/plan.yaml"
        )
    saved = build(SavedPlan, data, str(path))
    switch_table.check(saved.switches, str(path))
    return saved


def read_question(path: str | Path) -> Question:
    """The question of a recipe file or of a saved plan."""
    data = read_mapping(Path(path))
    return from_words(
        data.get("question", {}) if "layout" in data and "question" in data else data, str(path)
    )


def read_layout(path: str | Path) -> Question:
    """The question that states the layout of a saved plan; a recipe file's own words else."""
    data = read_mapping(Path(path))
    if "layout" in data:
        saved = build(SavedPlan, data, str(path))
        switch_table.check(saved.switches, str(path))
        return _as_measured(layout_question(saved, str(path)), saved.switches)
    return from_words(data, str(path))


def _as_measured(question: Question, switches: Switches) -> Question:
    """The question with what `tune` found of its software's switches, as far as words say it."""
    framework = str(question.framework)
    version = version_of(framework, str(question.framework_version))
    stated = switch_table.parse(question.switch, framework)
    words = []
    for name, value in switch_table.of(framework, switches).items():
        switch = switch_table.BY_FRAMEWORK[framework][name]
        if name not in stated and switch.spelled(value, version):
            text = switch_table.shown(value) if isinstance(value, bool) else value
            words.append(f"{name}={text}")
    return replace(question, switch=(*question.switch, *words))


def restated(
    source: Question | str | Path | None,
    words: Mapping[str, Any],
    where: str = "the question",
    layout: bool = False,
) -> Question:
    """The question of a file, of words, or of a file or question with words that restate it; with
    `layout` a saved plan states its layout.
    """
    if isinstance(source, Question):
        return changed(source, words) if words else source
    if source is not None:
        return changed((read_layout if layout else read_question)(source), words)
    if words.get("model") is None:
        raise InputError(
            "a model must be stated, but got none; add --model NAME (`ppplan models` lists them) or"
            " name a recipe.yaml"
        )
    return from_words(words, where)


def layout_question(saved: SavedPlan, where: str) -> Question:
    """The question that states the saved layout: what `explain` and `emit` resolve again."""
    _check_layout(saved.layout, where)
    kept = {word: value for word, value in saved.question.items() if word not in LAYOUT_WORDS}
    knobs = {
        word: value
        for word, value in saved.layout.items()
        if word in LAYOUT_WORDS and value not in ("", [], ())
    }
    return from_words({**kept, **knobs}, where)


def _check_layout(layout: dict[str, Any], where: str) -> None:
    """A layout is whole and of known words: a default in place of a lost or misspelt one would be
    another plan. Raises InputError.
    """
    known = [*(field.name for field in fields(Layout)), "gbs"]
    for word in layout:
        if word not in known:
            raise InputError(f"{where}: {unknown('a word of layout', word, known)}")
    lost = [word for word in (*SIZES, "schedule", "recompute") if layout.get(word) is None]
    if lost:
        raise InputError(
            f"{where}: layout must state {', '.join(lost)}, but does not; `ppplan recommend --out"
            " DIR` writes a whole plan"
        )
    batch = [layout[word] for word in ("dp", "mbs", "m")]
    if (
        "gbs" in layout
        and all(isinstance(size, int) for size in batch)
        and layout["gbs"] != math.prod(batch)
    ):
        raise InputError(
            f"{where}: layout.gbs must be dp x mbs x m = {math.prod(batch)}, but got"
            f" {str(layout['gbs'])[:40]}; leave it out"
        )


def with_defaults(words: Question, recipe: Recipe) -> Question:
    """The question with its defaults written out, so that it reads the same on another machine and
    with another version.
    """
    return replace(
        words,
        model=_kept(words.model, recipe.model.name),
        cluster=_kept(words.cluster, recipe.hardware.name),
        stack=_kept(words.stack, recipe.software.name),
        gpus=recipe.gpus,
        seq_length=recipe.seq_length,
        global_batch_size=recipe.global_batch_size,
        global_batch_tokens=None,
        precision=recipe.precision,
        framework=recipe.framework,
        framework_version=recipe.framework_version,
        attention=recipe.attention,
    )


def _kept(word: str | None, name: str) -> str:
    """The name of a preset, or the whole path of a document of one's own."""
    own = (
        word is not None
        and ("/" in word or word.endswith((".yaml", ".yml", ".json")))
        and Path(word).exists()
    )
    return str(Path(str(word)).resolve()) if own else name
