"""Switches that a framework's files have no words for: refused where they are asked for, said where
a plan was measured with them; and what Accelerate's files say of recomputation.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import api
from planner.emit import table

QUESTION = {"model": "llama3-8b", "gpus": 8, "cluster": "h100-sxm", "framework": "torch"}


@pytest.mark.parametrize("form", [None, "accelerate"])
@pytest.mark.parametrize("switch", ["bucket_cap_mb=100", "prefetch_layers=2"])
def test_a_switch_without_words_is_refused(tmp_path: Path, form: str | None, switch: str) -> None:
    asked = api.question(**QUESTION, switch=(switch,))
    answer = api.recommend(asked, top=1, out=tmp_path / "out", format=form)
    assert [Path(path).name for path in answer.files] == ["plan.yaml"]
    name, _ = switch.split("=")
    assert f"has none for {name}" in str(answer.refused) and "try --switch" in str(answer.refused)


@pytest.mark.parametrize("form", [None, "accelerate"])
def test_a_switch_that_was_measured_with_is_said(form: str | None) -> None:
    answer = api.recommend(api.question(**QUESTION), top=1, own_switches=True)
    assert answer.best is not None
    measured = {"bucket_cap_mb": 100, "training_dtype": "bf16"}
    recipe = answer.recipe.model_copy(update={"switches": measured})
    script = table.files(recipe, answer.best.layout, None, form=form)["launch.sh"]
    held = "" if form is None else ", training_dtype bf16"
    if form is None:  # torchtitan's configuration says the type itself
        assert "bfloat16" in table.files(recipe, answer.best.layout, None)["torchtitan_plan.py"]
    assert f"not written: bucket_cap_mb 100{held}, switches of torch" in script.replace(
        "training_dtype bf16, bucket_cap_mb 100", "bucket_cap_mb 100, training_dtype bf16"
    )


@pytest.mark.parametrize("modules", [["core_attn"], ["ops"]])
def test_recomputed_modules_of_accelerate_read_back(tmp_path: Path, modules: list[str]) -> None:
    asked = api.question(**QUESTION, recompute="selective", recompute_modules=modules)
    answer = api.recommend(asked, top=1, out=tmp_path / "out", format="accelerate")
    assert answer.best is not None
    checked = api.check(tmp_path / "out" / "launch.sh", cluster="h100-sxm")
    assert checked.launch.layout.named() == answer.best.layout.named()
