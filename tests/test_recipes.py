"""Recipes: the files beside each are what `recommend --out` writes for it today."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from planner import api
from planner.specs import plan

RECIPES = Path(__file__).parent.parent / "recipes"
NAMES = sorted(path.stem for path in RECIPES.glob("*.yaml"))


def unpinned(text: str) -> str:
    """Without the versions that a plan records."""
    return re.sub(r"^  (ppplan|numpy): .*$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_files_are_what_the_recipe_gives(name: str, tmp_path: Path) -> None:
    made = Path(os.path.commonpath(api.recommend(plan.read_question(RECIPES / f"{name}.yaml"), out=tmp_path / name).files))
    golden = RECIPES / name
    if os.environ.get("PPPLAN_WRITE_RECIPES"):
        golden.mkdir(exist_ok=True)
        for path in made.iterdir():
            (golden / path.name).write_text(path.read_text())
    assert sorted(path.name for path in made.iterdir()) == sorted(path.name for path in golden.iterdir())
    for path in made.iterdir():
        assert unpinned(path.read_text()) == unpinned((golden / path.name).read_text()), f"{path.name}; see recipes/README.md"


@pytest.mark.parametrize("name", NAMES)
def test_the_saved_plan_states_its_layout(name: str) -> None:
    saved = plan.read(RECIPES / name / "plan.yaml")
    again = api.explain(plan.asked(saved, name))
    named = again.layout.named()
    assert {**named, "recompute_modules": tuple(named["recompute_modules"])} == saved.layout and not again.breaches


def test_there_are_recipes() -> None:
    assert "llama3-70b-32-gpus" in NAMES
