"""The script of `emit --prove` under the frameworks' own training loops; a CPU stands in for the
GPU.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from planner import api
from planner.emit import prove
from planner.intake.logs.proof import Proof, proofs
from tests.judges import torchtitan_oracle, wheels
from tests.judges.megatron_oracle import wheel

JUDGES = Path(__file__).parent
TINY = Path(__file__).parents[2] / "recipes" / "closed-loop" / "tiny.yaml"
PLAN: dict[str, Any] = {
    "cluster": "h100-sxm",
    "seq_length": 64,
    "global_batch_size": 16,
    "zero": 1,
    "mbs": 1,
}


def script_of(folder: Path, words: dict[str, Any]) -> str:
    answer = api.recommend(api.question(**PLAN | words), top=1, out=folder, own_switches=True)
    assert answer.best is not None, answer
    (script,) = api.emit(folder / "plan.yaml", prove=True, out=folder).files
    return str(script)


def ran(judge: str, script: str, env: dict[str, str], folder: Path) -> tuple[Proof, str]:
    """The line that the script prints, read back, and all that it printed."""
    command = [sys.executable, str(JUDGES / judge), script]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    file = folder / "sent.txt"
    file.write_text(done.stdout)
    (line,) = proofs(file)
    assert len(line.steps_s) == prove.STEPS and min(line.steps_s) > 0
    assert api.check(file).measured is not None
    return line, done.stdout


def megatron(precision: str, folder: Path) -> None:
    """Arguments, fake process group, interleaved pipeline, distributed optimizer and training loop
    are Megatron-core's. No step is skipped, which would make no optimizer states.
    """
    words = {"model": str(TINY), "gpus": 8, "tp": 1, "pp": 2, "v": 2, "precision": precision}
    env = {
        **os.environ,
        "PYTHONPATH": str(wheel()),
        "MEGATRON_PATH": str(JUDGES / "checkout"),
        "OMP_NUM_THREADS": "1",
    }
    line, said = ran("prove_judge.py", script_of(folder, words), env, folder)
    assert line.versions["megatron-core"].startswith("0.19.2")
    assert "fake_process_group .............................. True" in said
    assert f"iteration        {prove.STEPS}/" in said
    assert set(re.findall(r"skipped iterations: +(\d+)", said)) == {"0"}


def torchtitan(folder: Path) -> None:
    """Configuration, fake backend, tensor parallelism, FSDP, optimizer and training loop are
    torchtitan's. Its default backend wants a torch after 2.13, whose fully_shard takes plain
    tensors: another stands in here.
    """
    words = {"model": "qwen3-0.6b", "gpus": 16, "framework": "torch", "precision": "fp32"}
    script = script_of(folder, words | {"tp": 8, "pp": 1, "v": 1, "zero": 3})
    text = Path(script).read_text()
    older = '"--parallelism.spmd_backend",\n  "partial_dtensor",\n  "--comm.mode"'
    Path(script).write_text(text.replace('"--comm.mode"', older))
    env = wheels.environment("torchtitan", torchtitan_oracle.NEWEST)
    ran("prove_torchtitan_judge.py", script, env, folder)
