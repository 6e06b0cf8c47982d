"""Runs a launch file under bash with stand-ins for torchrun, deepspeed, srun and scontrol that
record what they are given.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_TORCHRUN = """#!/usr/bin/env bash
printf '%s\\0' "$@" >"$RECORD.words"
env -0 >"$RECORD.env"
"""
_SRUN = """#!/usr/bin/env bash
SLURM_NODEID=1 exec "$@"
"""
_SCONTROL = """#!/usr/bin/env bash
printf 'node7\\nnode8\\n'
"""


@dataclass(frozen=True)
class Call:
    """What torchrun or the deepspeed launcher was called with: its own options, the program's path
    and flags, the environment.
    """

    options: dict[str, str]
    entry: str
    flags: list[str]
    env: dict[str, str]
    stderr: str

    @property
    def world_size(self) -> int:
        nodes = self.options.get("--nnodes") or self.options["--num_nodes"]
        return int(nodes) * int(self.options.get("--nproc-per-node") or self.options["--num_gpus"])


def run(
    folder: Path, script: str, *more: str, **variables: str
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Runs the script with more arguments and with variables set; nothing else of this environment
    but PATH and HOME is seen.
    """
    for name, text in (
        ("torchrun", _TORCHRUN),
        ("deepspeed", _TORCHRUN),
        ("srun", _SRUN),
        ("scontrol", _SCONTROL),
        ("launch", script),
    ):
        path = folder / name
        path.write_text(text)
        path.chmod(0o755)
    (folder / "hostfile").write_text("worker-1 slots=8\n")
    known = {
        "HOME": str(folder),
        "RECORD": str(folder / "call"),
        "HOSTFILE": str(folder / "hostfile"),
    }
    env = {"PATH": f"{folder}:{os.environ['PATH']}", **known, **variables}
    done = subprocess.run(
        ["bash", str(folder / "launch"), *more], env=env, cwd=folder, capture_output=True, text=True
    )
    return done, folder / "call"


def call(folder: Path, script: str, *more: str, **variables: str) -> Call:
    done, record = run(folder, script, *more, **variables)
    if done.returncode:
        raise RuntimeError(done.stderr)
    words = record.with_suffix(".words").read_text().split("\0")[:-1]
    env = dict(
        pair.split("=", 1) for pair in record.with_suffix(".env").read_text().split("\0")[:-1]
    )
    words = [word for word in words if word != "--no_local_rank"]
    at = next(i for i, word in enumerate(words) if word.endswith(".py"))
    return Call(
        dict(zip(words[:at:2], words[1:at:2], strict=True)),
        words[at],
        words[at + 1 :],
        env,
        done.stderr,
    )
