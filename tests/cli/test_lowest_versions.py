"""The lowest versions of dependencies that pyproject.toml promises: they install, and commands run.

torch and what belongs to the extras is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

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
PROGRAM = """
import contextlib, io, json, sys, traceback
from planner.cli import code

for command in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            ended = code(command.split())
        except BaseException:
            ended = traceback.format_exc()
    print(json.dumps({"command": command, "code": ended, "text": out.getvalue()[-2000:]}))
"""
"""All commands in one start: importing pandas costs more than most of them."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment that has each core dependency at its lowest version."""
    environment = tmp_path_factory.mktemp("lowest") / "environment"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = [dependency.replace(">=", "==") for dependency in project["dependencies"]]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile"]
    subprocess.run([*pip, *lowest], check=True)
    return python


@pytest.fixture(scope="module")
def answers(python: str) -> dict[str, dict[str, Any]]:
    """The exit code and the text of every command."""
    words = [python, "-W", "error::DeprecationWarning:planner", "-c", PROGRAM, json.dumps(COMMANDS)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = map(json.loads, done.stdout.splitlines())
    return {line["command"]: line for line in lines}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run_with_the_lowest_versions(
    answers: dict[str, dict[str, Any]], command: str
) -> None:
    assert answers[command]["code"] == 0, answers[command]["text"]


def test_the_command_line_starts_as_a_module(python: str) -> None:
    words = [python, "-m", "planner", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
