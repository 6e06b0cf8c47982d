"""From the command line: a plan's files for other software, for torch, for SkyPilot; what cannot be
is said, the plan is kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml


def test_torch_plans_are_written_and_emitted(ppplan: Any, tmp_path: Path) -> None:
    ran = ppplan(
        "recommend",
        "--model",
        "llama3-8b",
        "--gpus",
        "8",
        "--framework",
        "torch",
        "--out",
        tmp_path,
        "--launcher",
        "skypilot",
    )
    assert ran.code == 0
    assert {"plan.yaml", "launch.sky.yaml", "launch.sh", "torchtitan_plan.py"} <= {
        path.name for path in tmp_path.iterdir()
    }
    plan = tmp_path / "plan.yaml"
    emitted = json.loads(ppplan("emit", plan, "--launcher", "slurm", "--json").out)["texts"]
    assert next(iter(emitted)) == "launch.sbatch" and "torchtitan_plan.py" in emitted


def test_a_format_is_written(ppplan: Any, tmp_path: Path) -> None:
    words = (
        "recommend",
        "--model",
        "llama3-8b",
        "--gpus",
        "8",
        "--framework",
        "deepspeed",
        "--pp",
        "1",
        "--tp",
        "1",
    )
    ran = ppplan(*words, "--out", tmp_path, "--format", "accelerate")
    assert ran.code == 0
    config = yaml.safe_load((tmp_path / "accelerate_config.yaml").read_text())
    assert config["num_processes"] == 8 and config["distributed_type"] == "DEEPSPEED"
    assert "--config_file" in (tmp_path / "launch.sh").read_text()


def test_a_plan_is_kept_where_its_files_cannot_be(ppplan: Any, tmp_path: Path) -> None:
    """Megatron's plan is no matter of Accelerate."""
    ran = ppplan(
        "recommend",
        "--model",
        "llama3-8b",
        "--gpus",
        "8",
        "--out",
        tmp_path,
        "--format",
        "accelerate",
    )
    assert ran.code == 0 and [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]
    assert "--framework deepspeed" in " ".join(ran.out.split())
    refused = ppplan("emit", tmp_path / "plan.yaml", "--format", "accelerate")
    assert refused.code == 2 and "--framework deepspeed" in refused.err
    bridged = json.loads(
        ppplan("emit", tmp_path / "plan.yaml", "--format", "bridge", "--json").out
    )["texts"]
    assert set(bridged) == {"launch.sh", "bridge_overrides.yaml", "train_bridge.py"}


def test_a_format_without_files_is_refused(ppplan: Any) -> None:
    ran = ppplan("recommend", "--model", "llama3-8b", "--gpus", "8", "--format", "bridge")
    assert ran.code == 2 and "--out" in ran.err
