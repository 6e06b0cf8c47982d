"""What `recommend` writes, `check` reads back: the same layout, legal, fitting, as fast."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner import api
from planner.emit import torchtitan
from planner.estimate import estimate
from planner.layout import RECOMPUTE_CODE, SCHEDULE_CODE
from planner.plan_files import launch_texts
from planner.specs.software_versions import SoftwareVersions
from planner.specs.switches.table import BY_FRAMEWORK, settings_of
from tests import documents


@pytest.mark.parametrize(
    ("model", "gpus", "framework"),
    [
        ("llama3-70b", 64, "megatron"),
        ("qwen3-30b-a3b", 16, "megatron"),
        ("llama3-8b", 16, "deepspeed"),
        ("llama3-70b", 64, "torch"),
        ("qwen3-30b-a3b", 16, "torch"),
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
    settings, read = settings_of(answer.recipe.software), settings_of(got.launch.recipe.software)
    for name, switch in BY_FRAMEWORK[framework].items():
        if switch.exists(answer.recipe, plan.layout):
            assert read[name] == settings[name], name
    assert [one.message for one in got.findings if one.severity == "error"] == []


FULL = RECOMPUTE_CODE["full"]
TORCHTITAN = (
    ("llama3-8b", "bf16", {"dp": 8, "mbs": 2, "m": 8, "zero": 3}),
    ("llama3-8b", "fp32", {"dp": 4, "cp": 2, "m": 32, "recompute": FULL}),
    ("llama3-8b", "fp8-rowwise", {"tp": 2, "dp": 4, "m": 32, "sp": 1, "zero": 2}),
    ("llama3-8b", "mxfp8", {"tp": 2, "dp": 4, "m": 32, "sp": 0, "zero": 2}),
    ("llama3-8b", "nvfp4", {"dp": 8, "m": 16, "recompute": FULL, "recompute_layers": 8}),
    ("llama3-8b", "bf16", {"dp": 8, "m": 16, "recompute": FULL, "recompute_layers": 5}),
    ("llama3-8b", "bf16", {"pp": 2, "v": 4, "dp": 4, "m": 32, "schedule": "interleaved"}),
    ("llama3-8b", "bf16", {"pp": 4, "v": 2, "dp": 2, "m": 64, "schedule": "zbv"}),
    ("deepseek-v2-lite", "bf16", {"dp": 8, "m": 16, "ep": 8, "zero": 3}),
    ("deepseek-v3", "bf16", {"dp": 8, "m": 16, "ep": 8, "zero": 3}),
    ("gpt-oss-20b", "bf16", {"tp": 2, "sp": 1, "dp": 4, "m": 32, "ep": 4, "zero": 3}),
)


@pytest.mark.parametrize(("model", "precision", "words"), TORCHTITAN)
def test_torchtitan_files_are_read_back(model, precision, words, tmp_path: Path) -> None:
    """The Python of 0.3, and the TOML of 0.2 where the plan has one."""
    recipe = documents.recipe(
        model,
        8,
        stack="torch-fsdp",
        framework="torch",
        framework_version="2.13",
        seq_length=4096,
        global_batch_size=128,
        hardware="b200-sxm",
        precision=precision,
    )
    schedule = SCHEDULE_CODE[words.get("schedule", "1f1b")]
    layout = documents.layout(recipe, **{"zero": 3, **words, "schedule": schedule})
    expected = estimate(recipe, layout, exact=True)
    for name, text in launch_texts(recipe, layout, "torchrun", None).items():
        (tmp_path / name).write_text(text)
    files = [tmp_path / "launch.sh"]
    if (tmp_path / torchtitan.TOML).exists():
        files.append(tmp_path / "older.sh")
        older = recipe.model_copy(update={"versions": SoftwareVersions(torchtitan="0.2")})
        texts = launch_texts(older, layout, "torchrun", None)
        assert texts.keys() == {"launch.sh", torchtitan.TOML}
        files[1].write_text(texts["launch.sh"])
    for file in files:
        got = api.check(file, cluster="b200-sxm")
        assert got.launch.layout.named() == layout.named(), file.name
        assert (got.launch.recipe.model, got.launch.recipe.precision) == (recipe.model, precision)
        assert got.launch.unresolved == () and got.launch.reading.unknown == ()
        assert got.estimate is not None
        assert got.estimate.step_s == pytest.approx(expected.step_s, rel=1e-9)
        assert got.estimate.memory_bytes == pytest.approx(expected.memory_bytes, rel=1e-9)


def test_a_torchtitan_launch_is_fixed_by_flags(tmp_path: Path) -> None:
    asked = api.question(
        model="llama3-8b",
        gpus=8,
        cluster="h100-sxm",
        framework="torch",
        seq_length=4096,
        global_batch_size=128,
    )
    api.recommend(asked, top=1, out=tmp_path / "out")
    file = tmp_path / "out" / torchtitan.SCRIPT
    text = re.sub(r"local_batch_size=\d+", "local_batch_size=100", file.read_text())
    file.write_text(text)
    fixed = tmp_path / "out" / "fixed.sh"
    got = api.check(tmp_path / "out" / "launch.sh", cluster="h100-sxm", fix=fixed)
    assert got.verdict == "invalid" and " --training.local_batch_size " in fixed.read_text()
    assert api.check(fixed, cluster="h100-sxm").verdict == "fits"
