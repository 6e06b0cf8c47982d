"""The lowest versions of dependencies that pyproject.toml promises: they install, and commands run.

torch and what belongs to the extras is left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.process]

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "--help",
    "recommend --help",
    "recommend --model llama3-70b --gpus 32 --cluster h100-sxm",
    "explain --model qwen3-30b-a3b --gpus 8 --ep 8 --cluster h100-sxm",
    "compare --model llama3-8b --gpus 8,16 --cluster h100-sxm --json",
    "simulate --schedule all --pp 4 --microbatches 8",
    "check recipes/llama3-70b-32-gpus/launch.sh",
    "validate --source korthikanti2022",
    "clusters --json",
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment that has each core dependency at its lowest version."""
    environment = tmp_path_factory.mktemp("lowest") / "environment"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = [dependency.replace(">=", "==") for dependency in project["dependencies"]]
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", *lowest], check=True)
    return python


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run_with_the_lowest_versions(python: str, command: str) -> None:
    done = subprocess.run(
        [python, "-W", "error::DeprecationWarning:planner", "-m", "planner", *command.split()],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
