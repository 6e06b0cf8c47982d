"""What `recommend` writes, `check` reads back: the same layout, legal, fitting, as fast."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import api
from planner.specs.switches.table import BY_FRAMEWORK, settings_of


@pytest.mark.parametrize(
    ("model", "gpus", "framework"),
    [
        ("llama3-70b", 64, "megatron"),
        ("qwen3-30b-a3b", 16, "megatron"),
        ("llama3-8b", 16, "deepspeed"),
    ],
)
def test_files_are_read_back(model: str, gpus: int, framework: str, tmp_path: Path) -> None:
    asked = api.question(
        model=model,
        gpus=gpus,
        cluster="h100-sxm",
        framework=framework,
        seq_length=4096,
        global_batch_size=256,
    )
    answer = api.recommend(asked, top=1, out=tmp_path / "out")
    assert answer.search is not None
    plan = answer.search.plans[0]
    got = api.check(tmp_path / "out" / "launch.sh", cluster="h100-sxm")
    assert got.launch.layout.named() == plan.layout.named()
    assert got.verdict == "fits" and got.estimate is not None
    assert got.estimate.step_s == pytest.approx(plan.estimate.step_s, rel=1e-9)
    assert got.estimate.memory_bytes == pytest.approx(plan.estimate.memory_bytes, rel=1e-9)
    settings, read = settings_of(answer.recipe.stack), settings_of(got.launch.recipe.stack)
    for name, switch in BY_FRAMEWORK[framework].items():
        if switch.exists(answer.recipe, plan.layout):
            assert read[name] == settings[name], name
    assert [one.message for one in got.findings if one.severity == "error"] == []
