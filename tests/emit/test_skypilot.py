"""The task of SkyPilot is read by its own schemas, and its run section under bash with a torchrun
that records what it is given.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.emit import skypilot, table
from planner.errors import InputError
from planner.specs import library
from tests import documents, recorder
from tests.judges import wheels

JUDGE = str(Path(__file__).parents[1] / "judges" / "skypilot_judge.py")


def files(
    gpus: int = 64, hardware: str = "h100-sxm", framework: str = "megatron"
) -> dict[str, str]:
    more: dict[str, Any] = (
        {} if framework == "megatron" else {"stack": "deepspeed", "framework": framework}
    )
    recipe = documents.recipe("llama3-8b", gpus, hardware=hardware, **more)
    return table.files(recipe, documents.layout(recipe, sp=0), None, "skypilot")


def judged(text: str) -> dict[str, Any]:
    env = wheels.environment("skypilot", "0.14.1")
    answer = subprocess.run(
        [sys.executable, JUDGE], input=text, env=env, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    said: dict[str, Any] = json.loads(answer.stdout)
    return said


def test_its_schemas_take_it() -> None:
    text = files()["launch.sky.yaml"]
    said = judged(text)
    assert said["message"] == ""
    assert {"H100", "A100-80GB", "A100", "B200", "L40S", "V100-32GB"} <= set(said["names"]) & set(
        skypilot.ACCELERATORS.values()
    )
    task = yaml.safe_load(text)
    assert task["num_nodes"] == 8 and task["resources"] == {"accelerators": "H100:8"}


@pytest.mark.parametrize(
    "old, new",
    [("num_nodes", "nodes"), ("accelerators:", "gpus:"), ("num_nodes: 8", "num_nodes: eight")],
)
def test_a_changed_word_is_found(old: str, new: str) -> None:
    """The oracle itself."""
    assert judged(files()["launch.sky.yaml"].replace(old, new))["message"]


def test_each_node_runs_its_part(tmp_path: Path) -> None:
    written = files()
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    run = yaml.safe_load(written["launch.sky.yaml"])["run"]
    ips = {"SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.8", "SKYPILOT_NODE_RANK": "3", "MOCK": "1"}
    call = recorder.call(tmp_path, run, **ips)
    assert (
        call.options["--node-rank"],
        call.options["--master-addr"],
        call.options["--nnodes"],
    ) == ("3", "10.0.0.7", "8")
    assert call.world_size == 64 and "--tensor-model-parallel-size" in call.flags


def test_files_lie_beside_it() -> None:
    assert set(files(8, framework="deepspeed")) == {
        "launch.sky.yaml",
        "launch.sh",
        "ds_config.json",
        "train.py",
    }


def test_every_gpu_has_a_name_or_a_way_out() -> None:
    """GPUs that clouds rent have one; of the others the message says what else can start them."""
    named, refused = 0, 0
    for name in library.clusters():
        gpu = library.hardware(name).gpu.name
        try:
            named += bool(skypilot.accelerator(gpu))
        except InputError as fault:
            refused += "slurm" in str(fault) and gpu in str(fault)
    assert named + refused == len(library.clusters()) and named > 2 * refused


def test_refused_where_it_has_no_name() -> None:
    with pytest.raises(InputError, match="Gaudi 2"):
        files(8, "gaudi2-oam")
