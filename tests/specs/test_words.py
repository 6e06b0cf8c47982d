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
