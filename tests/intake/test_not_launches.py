"""What is no launch: a folder, a pipe, a loop of links, a plan, a model, a profile: one sentence
with the way to what is wanted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.errors import InputError

ROOT = Path(__file__).parent.parent.parent


def told(path: Path) -> str:
    with pytest.raises(InputError) as fault:
        api.check(path)
    return str(fault.value)


def test_folder_names_what_lies_in_it(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text("{}")
    (tmp_path / "launch.sh").write_text("")
    (tmp_path / "notes.txt").write_text("")
    said = told(tmp_path)
    assert "is a folder" in said and said.endswith("such as launch.sh, ds.json")
    (tmp_path / "empty").mkdir()
    assert "no script" in told(tmp_path / "empty")


def test_python_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n--num-layers\n")
    (tmp_path / "train").write_text("#!/usr/bin/env python3\nNNODES=2\n")
    for name in ("train.py", "train"):
        said = told(tmp_path / name)
        assert (
            said.startswith(f"{name} must say how a training is launched, but is Python")
            and "Slurm script" in said
            and "log" in said
        )


def test_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sh")
    assert "a pipe" in told(tmp_path / "pipe.sh")
    os.mkfifo(tmp_path / "pipe.json")
    assert "a pipe" in told(tmp_path / "pipe.json")


def test_devices_and_loops(tmp_path: Path) -> None:
    assert "a device" in told(Path("/dev/zero"))
    (tmp_path / "a.sh").symlink_to(tmp_path / "b.sh")
    (tmp_path / "b.sh").symlink_to(tmp_path / "a.sh")
    assert "must be a file that can be read" in told(tmp_path / "a.sh")
    assert "must be a file that can be read" in told(tmp_path / ("x" * 300))


def test_pipes_and_folders_beside_a_script_are_passed_over(tmp_path: Path) -> None:
    """A DeepSpeed JSON that is a pipe, a log that is a folder."""
    os.mkfifo(tmp_path / "ds.json")
    (tmp_path / "run.log").mkdir()
    (tmp_path / "run.sh").write_text(
        "deepspeed --num_gpus 8 train.py --deepspeed ds.json --per_device_train_batch_size 1\n"
    )
    assert api.check(tmp_path / "run.sh").recipe.gpus == 8


def test_saved_plan_goes_to_explain(ppplan: Any, tmp_path: Path) -> None:
    assert (
        ppplan(
            "recommend",
            "--model",
            "llama3-8b",
            "--gpus",
            "8",
            "--cluster",
            "h100-sxm",
            "--out",
            str(tmp_path / "a"),
        ).code
        == 0
    )
    assert "ppplan explain plan.yaml" in told(tmp_path / "a" / "plan.yaml")


@pytest.mark.parametrize(
    ("path", "way"),
    [
        ("tests/data/cases/llamafactory-2959/config.json", "ppplan recommend --model config.json"),
        ("planner/specs/models/llama3-8b.yaml", "ppplan recommend --model llama3-8b.yaml"),
        ("hardware_profiles/h100-sxm.yaml", "--cluster h100-sxm.yaml"),
        ("recipes/llama3-70b-64-gpus.yaml", "ppplan recommend llama3-70b-64-gpus.yaml"),
    ],
)
def test_our_own_documents_and_a_models(path: str, way: str) -> None:
    assert way in told(ROOT / path)
