"""Words stated once: what type checkers, the command line and documents make of a declaration."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import typer

from planner import api
from planner.calibrate.calibrate import calibrate
from planner.cli import app
from planner.errors import InputError
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
    "software": "deepspeed@0.18",
    "attention": "unfused",
    "max_memory_gib": 40.0,
    "optimizer": "sgd",
    "frozen": ("norms",),
    "packing": True,
    "mean_length": 512,
    "images_per_sample": 1,
    "image_size": 448,
}
"""A value that is not the default of every word that is also a field of the recipe."""
NEEDS: dict[str, dict[str, Any]] = {
    "packing": {"mean_length": 512},
    "images_per_sample": {"model": "qwen3-vl-2b"},
    "image_size": {"model": "qwen3-vl-2b", "images_per_sample": 1},
}
"""Words that another must go with."""


def test_every_field_of_the_recipe_that_is_a_word_is_stated_here() -> None:
    fields = Recipe.model_fields.keys() | {"framework"}  # which is its software's
    assert STATED.keys() == declared(Question).keys() & fields


@pytest.mark.parametrize("word", STATED)
def test_a_stated_word_shows_in_the_recipe(word: str) -> None:
    """A word must not be accepted and ignored: `specs/resolve.py` hands it on."""
    words = PLAIN | NEEDS.get(word, {})
    without = resolve.recipe(from_words(words))
    stated = resolve.recipe(from_words(words | {word: STATED[word]}))
    assert getattr(stated, word) != getattr(without, word)


def test_a_stated_stack_is_the_software_of_the_recipe() -> None:
    stated = resolve.recipe(from_words(PLAIN | {"stack": "megatron-2022"}))
    assert stated.software.name == "megatron-2022"


LAYOUT_OF_EIGHT: dict[str, Any] = {"model": "llama3-8b", "gpus": 8, "cluster": "h100-sxm"}
PIPELINE: dict[str, Any] = {"schedule": "1f1b", "pp": 4, "m": 8}
WRONG = [
    ("check", ("launch.sh",), {"gpus": 8.5}, "gpus must be a whole number, but got 8.5"),
    ("check", ("launch.sh",), {"gpus": "8"}, "gpus must be a whole number, but got the text '8'"),
    ("check", ("launch.sh",), {"gpus": True}, "gpus must be a whole number, but got True"),
    ("check", ("launch.sh",), {"set": None}, "set must be a list, each entry text, but got"),
    ("check", ("launch.sh",), {"set": [5]}, "set[0] must be text, but got 5"),
    ("check", ("launch.sh",), {"oom": 5}, "oom must be text"),
    ("check", ("launch.sh",), {"cluster": 5}, "cluster must be text"),
    ("check", ("launch.sh",), {"model": 5}, "model must be text"),
    ("check", (b"x",), {}, "file must be text or a path, but got b'x'"),
    ("recommend", (5,), {}, "question must be a question or text or a path, but got 5"),
    ("recommend", (), LAYOUT_OF_EIGHT | {"top": "5"}, "top must be a whole number"),
    ("compare", (), LAYOUT_OF_EIGHT | {"price": "2"}, "price must be a number"),
    ("compare", (), LAYOUT_OF_EIGHT | {"over": {"v": 1}}, "over['v'] must be a list, but got 1"),
    ("sweep", (), LAYOUT_OF_EIGHT | {"over": {"v": 1}}, "over['v'] must be a list, but got 1"),
    ("simulate", (), PIPELINE | {"stage_scale": 2}, "stage_scale must be text or a list"),
    ("simulate", (), PIPELINE | {"weight_retained": None}, "weight_retained must be a number"),
    ("simulate", (), PIPELINE | {"head_extra": None}, "head_extra must be a number"),
    ("simulate", (), PIPELINE | {"forward": "1"}, "forward must be a number"),
    ("simulate", (), PIPELINE | {"bubble": "0.1"}, "bubble must be a number"),
    ("simulate", (), PIPELINE | {"microbatches": 8}, "micro-batches must be stated once"),
    ("sweep", (), LAYOUT_OF_EIGHT | {"over": {"tp": [1, 2]}, "tp": 4}, "it is swept and tp 4"),
    ("sweep", (), LAYOUT_OF_EIGHT | {"over": {"tp": [1, 1]}}, "each value once, but got 1 twice"),
    ("compare", (), LAYOUT_OF_EIGHT | {"over": {"gpus": [8, 16]}}, "it is swept and gpus 8"),
    ("tune", ("plan.yaml",), {"trials": "x"}, "trials must be a whole number"),
    ("tune", ("plan.yaml",), {"limit_s": "x"}, "limit_s must be a number"),
    ("tune", ("plan.yaml",), {"storage": 5}, "storage must be text"),
    ("tune", ("plan.yaml",), {"trails": 5}, "did you mean trials?"),
    ("tune", ("plan.yaml",), {"tell": 5}, "tell must be a function"),
    ("calibrate", (), {"devices": "2"}, "devices must be a whole number"),
    ("calibrate", (), {"devices": 1.5}, "devices must be a whole number"),
    ("calibrate", (), {"limit_s": "x"}, "limit_s must be a number"),
    ("calibrate", (), {"devise": "cpu"}, "did you mean device"),
    ("validate", (), {"where": 5}, "where must be text"),
    ("validate", (), {"files": [5]}, "files[0] must be text or a path"),
    ("doctor", ([],), {}, "megatron must be text or a path, but got a list"),
]


@pytest.mark.parametrize(("verb", "given", "words", "message"), WRONG)
def test_a_word_of_another_type_is_one_message(
    verb: str, given: tuple[Any, ...], words: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        getattr(api, verb)(*given, **words)


@pytest.mark.parametrize("verb", sorted({*api.__all__} - {"InputError", "Question"}))
@pytest.mark.parametrize("value", [5, b"x", [b"x"], object(), 0.5, {5: 5}])
def test_no_word_of_any_verb_takes_what_it_is_not_declared_to_be(verb: str, value: Any) -> None:
    function = getattr(api, verb)
    for name, parameter in inspect.signature(function).parameters.items():
        numbers = "float" in parameter.annotation or "int" in parameter.annotation
        if parameter.kind is inspect.Parameter.VAR_KEYWORD or (numbers and value in (5, 0.5)):
            continue
        with pytest.raises(InputError):
            function(**{name: value})


def test_numbers_and_series_of_numpy_are_those_of_python() -> None:
    words = LAYOUT_OF_EIGHT | {"pp": np.int64(4)}
    for degrees in (np.arange(1, 3), range(1, 3), iter([1, 2])):
        assert len(api.sweep(over={"v": degrees}, **words).rows) == 2
    scaled = api.simulate(schedule="1f1b", pp=np.int64(2), m=4, stage_scale=np.array([1.0, 2.0]))
    assert scaled.to_dict()["pp"] == 2
