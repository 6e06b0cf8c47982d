"""What `recommend --out` writes for other software and other launchers `check` reads as the plan
that it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner import api
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
