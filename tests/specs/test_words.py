"""Words stated once: what type checkers, the command line and documents make of a declaration."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest
import typer

from planner.calibrate.calibrate import calibrate
from planner.cli import app
from planner.specs import resolve
from planner.specs.question import from_words
from planner.specs.recipe import Recipe
from planner.specs.words import (
    LAYOUT,
    CalibrateWords,
    Question,
    QuestionWords,
    SimulateWords,
    TuneWords,
    declared,
)
from planner.tune.tune import tune


def plain(kind: Any) -> set[Any]:
    """Members of a union, tuples as the sequences that a caller may pass."""
    members = get_args(kind) if getattr(kind, "__origin__", None) is None else ()
    return {
        Sequence[str] if one == tuple[str, ...] else one
        for one in (members or (kind,))
        if one is not type(None)
    }


def test_keywords_are_the_words() -> None:
    """Names, order and types of QuestionWords are those of Question."""
    keywords = get_type_hints(QuestionWords)
    assert list(keywords) == [field.name for field in fields(Question)]
    for name, (kind, _) in declared(Question).items():
        assert plain(keywords[name]) == plain(kind), name


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("recommend", Question),
        ("explain", Question),
        ("simulate", SimulateWords),
        ("tune", TuneWords),
        ("calibrate", CalibrateWords),
    ],
)
def test_every_word_is_an_option(command: str, kind: type) -> None:
    group: Any = typer.main.get_command(app())
    options = {option.name: option for option in group.commands[command].params}
    for name, (_, word) in declared(kind).items():
        assert options[name].help == word.help
        assert options[name].opts[0] == f"--{name.replace('_', '-')}"


@pytest.mark.parametrize(("verb", "kind"), [(tune, TuneWords), (calibrate, CalibrateWords)])
def test_defaults_are_those_of_the_verb(verb: Any, kind: type) -> None:
    parameters = inspect.signature(verb).parameters
    for name, (_, word) in declared(kind).items():
        assert parameters[name].default == word.default, name


def test_layout_words_are_those_of_a_saved_plan() -> None:
    """`gbs` aside, which follows from dp, mbs and m."""
    from planner.layout import Layout

    words = {name for name, (_, word) in declared(Question).items() if word.panel == LAYOUT}
    assert words == Layout().named().keys() - {"gbs"}


PLAIN = {"model": "llama2-7b", "gpus": 8, "cluster": "h100-sxm"}
STATED = {
    "model": "llama2-13b",
    "gpus": 16,
    "seq_length": 2048,
    "global_batch_size": 64,
    "precision": "fp16",
    "framework": "deepspeed",
    "framework_version": "0.16",
    "stack": "megatron-2022",
    "attention": "unfused",
    "max_memory_gib": 40.0,
    "optimizer": "sgd",
    "frozen": ("norms",),
    "packing": True,
    "mean_length": 512,
}
"""A value that is not the default of every word that is also a field of the recipe."""
NEEDS = {"packing": {"mean_length": 512}}
"""Words that another must go with."""


def test_every_field_of_the_recipe_that_is_a_word_is_stated_here() -> None:
    assert STATED.keys() == declared(Question).keys() & Recipe.model_fields.keys()


@pytest.mark.parametrize("word", STATED)
def test_a_stated_word_shows_in_the_recipe(word: str) -> None:
    """A word must not be accepted and ignored: `specs/resolve.py` hands it on."""
    words = PLAIN | NEEDS.get(word, {})
    without = resolve.recipe(from_words(words))
    stated = resolve.recipe(from_words(words | {word: STATED[word]}))
    assert getattr(stated, word) != getattr(without, word)
