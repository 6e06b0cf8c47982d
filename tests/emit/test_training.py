"""Optimizers as flags and JSON, judged by the frameworks' own parsers; what a script of one's own
must do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.emit import deepspeed_config, megatron, table
from planner.emit.training import left_to_the_script
from planner.errors import InputError
from planner.layout import OFFLOAD_CODE
from planner.rules.table import breaches
from planner.specs import resolve
from planner.specs.recipe import Recipe
from planner.specs.workload import Lora
from tests import documents
from tests.emit.test_deepspeed_runs import question, start
from tests.judges import deepspeed_oracle, megatron_sweep
from tests.judges.megatron_oracle import verdicts

pytestmark = pytest.mark.process


PRECISION_AWARE = ("precision-aware", "precision-aware-fp32", "precision-aware-fp8")


def asked(optimizer: str, version: str, **words: Any) -> Recipe:
    known = {
        "model": "llama3-70b",
        "gpus": 64,
        "cluster": "h100-sxm",
        "optimizer": optimizer,
        "framework_version": version,
    }
    return resolve.recipe(api.question(**{**known, **words}))


@pytest.mark.parametrize("version, wheel", [("0.18", "0.18.0"), ("0.19", "0.19.2")])
def test_megatron_takes_every_optimizer(version: str, wheel: str) -> None:
    """Muon, Lion and SGD with and without sharding, Adam's narrow states with it."""
    plans = [(name, {"zero": zero}) for name in ("adam", "sgd", "muon", "lion") for zero in (0, 1)]
    plans += [(name, {"zero": 1}) for name in PRECISION_AWARE] + [("sgd", {"zero": 3, "tp": 2})]
    cases = []
    for name, knobs in plans:
        recipe = asked(name, version)
        layout = documents.layout(recipe, **{"tp": 8, **knobs})
        assert breaches(recipe, layout) == ()
        cases.append(megatron_sweep.command(f"{name} {knobs}", recipe, layout))
    assert [answer for answer in verdicts(cases, wheel) if not answer["accepted"]] == []


def test_megatron_refuses_what_the_rules_refuse() -> None:
    recipes = [asked("muon", "0.19"), asked("lion", "0.19"), asked("sgd", "0.19")]
    knobs = [{"zero": 2}, {"zero": 3}, {"zero": 1, "offload": OFFLOAD_CODE["optimizer-cpu"]}]
    layouts = [
        documents.layout(recipe, tp=8, **more) for recipe, more in zip(recipes, knobs, strict=True)
    ]
    assert all(breaches(*pair) for pair in zip(recipes, layouts, strict=True))
    cases = [
        megatron_sweep.command(recipe.optimizer, recipe, layout)
        for recipe, layout in zip(recipes, layouts, strict=True)
    ]
    assert not any(answer["accepted"] for answer in verdicts(cases))


def test_deepspeed_reads_every_optimizer() -> None:
    cases = []
    for name, zero in (
        ("adam", 1),
        ("lion", 2),
        ("muon", 1),
        ("muon", 2),
        ("muon", 3),
        ("sgd", 1),
        ("adafactor", 3),
        ("adam-8bit", 2),
    ):
        recipe = asked(name, "0.19", framework="deepspeed")
        layout = documents.layout(recipe, sp=0, zero=zero)
        assert breaches(recipe, layout) == ()
        cases.append(
            deepspeed_oracle.Case(
                name, deepspeed_config.config(recipe, layout), recipe.gpus, layout.dp, False
            )
        )
    for case, said in zip(cases, deepspeed_oracle.verdicts(cases), strict=True):
        assert said["accepted"], said
        assert not [key for key in said["ignored"] if not key.startswith("optimizer")], said
        if case.name == "muon":  # stage3.py: "Muon and reduce scatter cannot be used together"
            assert case.config["zero_optimization"]["reduce_scatter"] is False


def test_optimizers_of_torch_train_under_zero(tmp_path: Path) -> None:
    """Three real steps of two processes."""
    recipe = question(optimizer="adafactor")
    layout = documents.layout(recipe, zero=1, mbs=2, sp=0)
    assert not breaches(recipe, layout)
    done = start(tmp_path, recipe, layout)
    assert done.code == 0 and len(done.losses) == 3, done.text[-3000:]


# What no flag says: a script must; the launch file tells it which.
SCRIPTS: list[tuple[dict[str, Any], str]] = [
    (
        {"lora": Lora(rank=16, targets=("qkv", "proj"))},
        "freeze the model and add LoRA adapters of rank 16 to qkv, proj",
    ),
    ({"frozen": ("embedding", "mlp")}, "freeze embedding, mlp"),
    (
        {"packing": True, "mean_length": 500},
        "pack samples, about 500 tokens each, into sequences of 8,192 tokens",
    ),
    ({"packing": False, "mean_length": 500}, "pad each sample to sequences of 8,192 tokens"),
]


@pytest.mark.parametrize("changes, says", SCRIPTS)
@pytest.mark.parametrize("framework", ["megatron", "deepspeed"])
def test_what_no_flag_says_is_the_scripts(
    changes: dict[str, Any], says: str, framework: str
) -> None:
    recipe = documents.recipe("llama3-8b", 8, stack=framework, framework=framework, **changes)
    layout = documents.layout(recipe, sp=0, zero=1)
    with pytest.raises(InputError, match="--script PATH"):
        table.files(recipe, layout, None)
    [text] = [
        text
        for name, text in table.files(recipe, layout, None, "torchrun", "/home/me/tune.py").items()
        if name == "launch.sh"
    ]
    assert f"# the script must {says}" in text and "/home/me/tune.py" in text


def test_an_optimizer_of_neither_framework_is_handed_over() -> None:
    recipe = documents.recipe(
        "llama3-8b", 8, stack="deepspeed", framework="deepspeed", optimizer="adam-8bit"
    )
    assert left_to_the_script(recipe) == (
        "the script must hand over its optimizer, bitsandbytes' AdamW8bit",
    )
    assert "optimizer" not in deepspeed_config.config(
        recipe, documents.layout(recipe, sp=0), own_script=True
    )


def test_plain_training_leaves_nothing_to_the_script() -> None:
    assert left_to_the_script(documents.recipe(optimizer="muon")) == ()
    with pytest.raises(InputError, match="Megatron-LM's optimizers are"):
        megatron.flags(
            documents.recipe(optimizer="adafactor"), documents.layout(documents.recipe(), tp=8)
        )
