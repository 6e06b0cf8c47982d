"""Megatron-Bridge's precision recipes by name: whether parameters are gathered in few bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import api

LAUNCH = """torchrun --nproc_per_node 8 --nnodes 4 scripts/training/run_recipe.py \\
--recipe llama3_70b_pretrain_config mixed_precision={} model.tensor_model_parallel_size=4 \\
model.pipeline_model_parallel_size=4 train.micro_batch_size=1 train.global_batch_size=32
"""


@pytest.mark.parametrize(
    ("precision", "gathers"),
    [
        ("bf16_with_fp8_delayed_scaling_mixed", True),
        ("bf16_with_fp8_current_scaling_mixed", True),
        ("bf16_with_mxfp8_mixed", True),
        ("bf16_with_fp8_subchannel_scaling_mixed", False),
    ],
)
def test_gathers_by_the_recipe(tmp_path: Path, precision: str, gathers: bool) -> None:
    """[megatron-bridge] training/mixed_precision.py: fp8_param_gather of each recipe."""
    script = tmp_path / "launch.sh"
    script.write_text(LAUNCH.format(precision))
    found = api.check(script, cluster="b200-sxm").recipe.software.switches
    assert found["fp8_param_gather"] == gathers
    script.write_text(LAUNCH.format(f"{precision} mixed_precision.fp8_param_gather=false"))
    found = api.check(script, cluster="b200-sxm").recipe.software.switches
    assert not found["fp8_param_gather"]
