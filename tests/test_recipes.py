"""Recipes: the files beside each are what `recommend --out` writes for it today."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from planner import api
from planner.specs import plan

pytestmark = pytest.mark.slow


RECIPES = Path(__file__).parent.parent / "recipes"
NAMES = sorted(path.stem for path in RECIPES.glob("*.yaml"))
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
ASKED = {
    ("llama3-8b", 8),
    ("llama3-70b", 32),
    ("llama3-70b", 64),
    ("llama3-405b", 1024),
    ("llama3-405b", 16384),
    ("mixtral-8x7b", 64),
    ("qwen3-30b-a3b", 32),
    ("qwen3-235b-a22b", 256),
    ("deepseek-v3", 1024),
    ("deepseek-v3", 256),
    ("gpt3-175b", 1024),
}


def unpinned(text: str) -> str:
    """Without the versions that a plan records."""
    return re.sub(r"^  (ppplan|numpy): .*$", "", text, flags=re.MULTILINE)


def words(text: str) -> str:
    return NUMBER.sub("#", text)


def numbers(text: str) -> list[float]:
    return [float(one) for one in NUMBER.findall(text)]


@pytest.mark.parametrize("name", NAMES)
def test_files_are_what_the_recipe_gives(name: str, tmp_path: Path) -> None:
    made = Path(
        os.path.commonpath(
            api.recommend(plan.read_question(RECIPES / f"{name}.yaml"), out=tmp_path / name).files
        )
    )
    golden = RECIPES / name
    if os.environ.get("PPPLAN_WRITE_RECIPES"):
        golden.mkdir(exist_ok=True)
        for old in golden.iterdir():
            old.unlink()
        for path in made.iterdir():
            (golden / path.name).write_text(path.read_text())
    assert sorted(path.name for path in made.iterdir()) == sorted(
        path.name for path in golden.iterdir()
    )
    for path in made.iterdir():
        new, old = unpinned(path.read_text()), unpinned((golden / path.name).read_text())
        says = f"{name}/{path.name}; see recipes/README.md"
        assert words(new) == words(old), says
        assert numbers(new) == pytest.approx(numbers(old), rel=2e-6, abs=1e-9), says


@pytest.mark.parametrize("name", NAMES)
def test_the_saved_plan_states_its_layout(name: str) -> None:
    saved = plan.read(RECIPES / name / "plan.yaml")
    again = api.explain(plan.layout_question(saved, name))
    named = again.layout.named()
    assert {
        **named,
        "recompute_modules": tuple(named["recompute_modules"]),
    } == saved.layout and not again.breaches


@pytest.mark.parametrize("name", NAMES)
def test_the_arithmetic_of_the_saved_plan(name: str) -> None:
    """By hand: degrees multiply to the GPUs, sequences to the batch; time and memory are the sums
    of their terms; it fits.
    """
    saved = yaml.safe_load((RECIPES / name / "plan.yaml").read_text())
    layout, estimate = saved["layout"], saved["estimate"]
    assert layout["tp"] * layout["pp"] * layout["dp"] * layout["cp"] == saved["question"]["gpus"]
    assert layout["dp"] * layout["mbs"] * layout["m"] == saved["question"]["global_batch_size"]
    assert sum(estimate["time"].values()) == pytest.approx(estimate["step_s"], rel=1e-4)
    assert sum(estimate["memory"].values()) == pytest.approx(estimate["memory_gib"], rel=1e-4)
    assert estimate["fits"] and estimate["memory_gib"] < estimate["memory_limit_gib"]


def test_the_questions_that_everybody_asks() -> None:
    asked = [plan.read_question(RECIPES / f"{name}.yaml") for name in NAMES]
    assert {(one.model, one.gpus) for one in asked} >= ASKED
    assert any("pcie" in (one.cluster or "") for one in asked) and any(
        (one.seq_length or 0) >= 131072 for one in asked
    )
    assert {one.framework for one in asked} == {"megatron", "deepspeed", "torch"}
