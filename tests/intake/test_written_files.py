"""What `recommend --out` writes for other software and other launchers `check` reads as the plan
that it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.errors import InputError
from planner.specs.switches.table import BY_FRAMEWORK, settings_of


def read_back(folder: Path, file: str, launcher: str, form: str | None, **words: Any) -> Any:
    """The plan, and what `check` reads in the file that it was written to."""
    question = api.question(gpus=16, cluster="h100-sxm", global_batch_size=64, **words)
    answer = api.recommend(question, top=1, out=folder, launcher=launcher, format=form)
    checked = api.check(folder / file, cluster="h100-sxm")
    plan = answer.best
    assert plan is not None and checked.estimate is not None
    assert checked.launch.layout.named() == plan.layout.named()
    assert checked.estimate.step_s == pytest.approx(plan.estimate.step_s, rel=1e-9)
    assert checked.estimate.memory_bytes == pytest.approx(plan.estimate.memory_bytes, rel=1e-9)
    return answer, checked


@pytest.mark.parametrize(
    ("model", "precision", "switches"),
    [
        ("llama3-8b", "fp8-delayed", ("grad_reduce_dtype=bf16", "cuda_graph=layers")),
        ("llama3-8b", "bf16", ("overlap_grad_reduce=off", "overlap_param_gather=off")),
        ("qwen3-30b-a3b", "bf16", ("moe_dispatcher=deepep", "ddp_bucket_size=50000000")),
    ],
)
def test_bridge(model: str, precision: str, switches: tuple[str, ...], tmp_path: Path) -> None:
    """Words of the overrides win over what the recipe's name and NeMo's stack bring."""
    words = {"model": model, "precision": precision, "switch": switches, "seq_length": 4096}
    answer, checked = read_back(tmp_path, "launch.sh", "torchrun", "bridge", **words)
    assert checked.launch.recipe.precision == precision
    written, read = settings_of(answer.recipe.stack), settings_of(checked.launch.recipe.stack)
    layout = answer.best.layout
    for name, switch in BY_FRAMEWORK["megatron"].items():
        if switch.exists(answer.recipe, layout) & switch.acts(answer.recipe, layout):
            assert read[name] == written[name], name
    assert "overrides.yaml train.micro" in checked.launch.reading.values["micro_batch_size"].where


@pytest.mark.parametrize(
    ("framework", "model"),
    [("deepspeed", "llama3-8b"), ("deepspeed", "mixtral-8x7b"), ("torch", "llama3-8b")],
)
def test_accelerate(framework: str, model: str, tmp_path: Path) -> None:
    """accelerate's file and DeepSpeed's beside it, and what variables tell the script."""
    words = {"model": model, "framework": framework, "seq_length": 4096}
    answer, checked = read_back(tmp_path, "launch.sh", "torchrun", "accelerate", **words)
    assert checked.launch.recipe.framework == framework
    assert checked.launch.recipe.model.name == answer.recipe.model.name
    assert checked.launch.recipe.seq_length == 4096
    where = checked.launch.reading.values["seq_length"].where
    assert where.startswith("launch.sh:") and "PLAN_SEQ_LENGTH" in where


def test_accelerate_must_say_how_it_trains(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("accelerate launch --num_processes 8 train.py\n")
    with pytest.raises(InputError, match="must state how it trains"):
        api.check(script)
