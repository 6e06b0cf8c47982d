"""Launch files are run under bash with a torchrun, an srun and a deepspeed that record what they
are given.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from planner.emit import megatron, table
from planner.emit.program import gpus_per_node
from planner.errors import InputError
from planner.layout import Layout
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.resolve import FREE
from planner.specs.switches.table import with_switches
from planner.units import GIB
from tests import documents, recorder

GOLDEN = Path(__file__).parents[1] / "golden"
BASH = [name for name, (file, _) in table.LAUNCHERS.items() if not file.endswith(".yaml")]
ESTIMATE = SimpleNamespace(
    step_s=12.3456,
    step_s_low=11.2,
    step_s_high=13.5,
    tokens_per_s_per_gpu=5432.1,
    model_tflops_per_gpu=512.4,
    memory_bytes=61.25 * GIB,
    memory_limit_bytes=79.1 * GIB,
    oom_probability=0.013,
)


def question() -> tuple[Recipe, Layout]:
    stack = with_switches(library.stack("megatron"), FREE)
    recipe = documents.recipe(gpus=64, stack=stack)
    return recipe, documents.layout(recipe, tp=8, pp=4, v=2)


def text(launcher: str) -> str:
    recipe, layout = question()
    return table.files(recipe, layout, ESTIMATE, launcher)[table.LAUNCHERS[launcher][0]]


@pytest.mark.parametrize("launcher", BASH)
def test_script_hands_over_the_flags(launcher: str, tmp_path: Path) -> None:
    recipe, layout = question()
    call = recorder.call(tmp_path, text(launcher), MOCK="1", MEGATRON_PATH="/opt/megatron")
    assert call.flags == [word for flag in megatron.flags(recipe, layout) for word in flag]
    assert call.entry == "/opt/megatron/pretrain_gpt.py"
    assert call.world_size == 64
    assert call.env["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"


@pytest.mark.parametrize("launcher", table.LAUNCHERS)
def test_golden(launcher: str) -> None:
    """Regenerate with UPDATE_GOLDEN=1 after a change that is meant."""
    name = table.LAUNCHERS[launcher][0]
    golden = GOLDEN / f"llama3-70b-64gpus.{name}"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text(launcher))
    assert text(launcher) == golden.read_text()


@pytest.mark.parametrize("launcher", BASH)
def test_comments_say_what_to_expect(launcher: str) -> None:
    top = text(launcher).partition("set -euo")[0]
    for said in (
        "12.346 s a step (11.200 to 13.500)",
        "512 TFLOP/s/GPU",
        "5,432 tokens/s/GPU",
        "61.2 of 79.1 GiB",
        "probability 1%",
        "64 GPUs = tp 8 x pp 4 x dp 2 x cp 1",
        "= dp 2 x mbs 1 x m 256",
    ):
        assert said in top


@pytest.mark.parametrize("launcher", BASH)
def test_own_data(launcher: str, tmp_path: Path) -> None:
    variables = {
        "DATA": "0.3 /data/a b 0.7 /data/c",
        "TOKENIZER": "/my models/llama",
        "TRAIN_ITERS": "7",
        "SAVE": "/ckpt dir",
    }
    flags = recorder.call(tmp_path, text(launcher), **variables).flags
    at = flags.index("--data-path")
    assert flags[at + 1 : at + 6] == ["0.3", "/data/a", "b", "0.7", "/data/c"]
    assert flags[flags.index("--tokenizer-model") + 1] == "/my models/llama"
    assert flags[flags.index("--train-iters") + 1] == "7"
    assert flags[flags.index("--save") + 1] == "/ckpt dir"
    assert "--mock-data" not in flags


@pytest.mark.parametrize("launcher", BASH)
def test_data_without_its_tokenizer_stops(launcher: str, tmp_path: Path) -> None:
    done, record = recorder.run(tmp_path, text(launcher), DATA="/data/a")
    assert done.returncode
    assert "TOKENIZER" in done.stderr
    assert not record.with_suffix(".words").exists()


@pytest.mark.parametrize("launcher", BASH)
def test_nothing_set_runs_on_synthetic_data_and_says_so(launcher: str, tmp_path: Path) -> None:
    call = recorder.call(tmp_path, text(launcher))
    assert "--mock-data" in call.flags
    assert "synthetic data" in call.stderr


@pytest.mark.parametrize("launcher", BASH)
def test_flags_of_the_call_come_last(launcher: str, tmp_path: Path) -> None:
    assert recorder.call(tmp_path, text(launcher), "--lr", "1e-5", MOCK="1").flags[-2:] == [
        "--lr",
        "1e-5",
    ]


def test_nodes_are_told_apart(tmp_path: Path) -> None:
    call = recorder.call(
        tmp_path, text("torchrun"), NODE_RANK="3", MASTER_ADDR="10.0.0.1", NNODES="4", MOCK="1"
    )
    assert (
        call.options["--node-rank"],
        call.options["--master-addr"],
        call.options["--nnodes"],
    ) == ("3", "10.0.0.1", "4")


def test_slurm_finds_the_first_node(tmp_path: Path) -> None:
    call = recorder.call(
        tmp_path, text("slurm"), SLURM_JOB_NODELIST="node[7-8]", SLURM_NNODES="8", MOCK="1"
    )
    assert (
        call.options["--node-rank"],
        call.options["--master-addr"],
        call.options["--nnodes"],
    ) == ("1", "node7", "8")


def test_slurm_asks_for_the_machine() -> None:
    asked = [line for line in text("slurm").splitlines() if line.startswith("#SBATCH")]
    assert {"#SBATCH --nodes=8", "#SBATCH --gpus-per-node=8", "#SBATCH --ntasks-per-node=1"} <= set(
        asked
    )
    assert (
        text("slurm").splitlines()[1 : 1 + len(asked)] == asked
    )  # sbatch stops reading at the first command


def test_stage_layout_survives_the_shell(tmp_path: Path) -> None:
    recipe = documents.recipe(gpus=64)
    layout = documents.layout(recipe, tp=8, pp=4, stage_layout="Et*19|t*21|t*21|t*19L")
    [script] = table.files(recipe, layout, None, "torchrun").values()
    flags = recorder.call(tmp_path, script, MOCK="1").flags
    assert flags[flags.index("--pipeline-model-parallel-layout") + 1] == "Et*19|t*21|t*21|t*19L"


@pytest.mark.parametrize("launcher", BASH)
def test_bash_and_shellcheck_read_it(launcher: str, tmp_path: Path) -> None:
    path = tmp_path / "launch.sh"
    path.write_text(text(launcher))
    checks = [["bash", "-n", str(path)]] + [["shellcheck", str(path)]] * bool(
        shutil.which("shellcheck")
    )
    for check in checks:
        done = subprocess.run(check, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_unknown_launcher_answers_with_the_nearest() -> None:
    with pytest.raises(InputError, match="torchrun"):
        table.files(*question(), None, "torchrunn")


@pytest.mark.parametrize(
    "gpus, node, expected", [(64, 8, 8), (4, 8, 4), (12, 8, 6), (13, 8, 1), (72, 4, 4)]
)
def test_gpus_per_node(gpus: int, node: int, expected: int) -> None:
    assert gpus_per_node(gpus, node) == expected
