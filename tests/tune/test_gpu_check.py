"""The prepared GPU command where no GPU is, and what it calls where one is: its commands are read
by the command line's own parser.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer.main

from planner import cli

SCRIPT = Path(__file__).parents[2] / "recipes" / "gpu-check.sh"
NAMED = "NVIDIA H100 80GB HBM3, 81559 MiB"
TOOLS = ("bash", "env", "timeout", "tee", "mkdir", "grep", "date", "cat")
FAKE = """#!/bin/sh
echo "$@" >> "$CALLS"
[ "$1" != "$FAILS" ] || exit 1
while [ $# -gt 0 ]; do
  case "$1" in --out) case "$2" in *.yaml) echo "extends: h100-sxm" > "$2" ;; esac ;; esac
  shift
done
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of programs: the few that the script needs."""
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    return tmp_path


def with_gpu(machine: Path) -> None:
    for name, text in (("nvidia-smi", f"#!/bin/sh\necho '{NAMED}'\n"), ("ppplan", FAKE)):
        (machine / "bin" / name).write_text(text)
        (machine / "bin" / name).chmod(0o755)


def checked(machine: Path, fails: str = "") -> subprocess.CompletedProcess[str]:
    given = {
        "PATH": str(machine / "bin"),
        "CALLS": str(machine / "calls"),
        "FAILS": fails,
        "HOME": os.environ.get("HOME", "/"),
    }
    return subprocess.run(
        ["bash", str(SCRIPT), "out"],
        env=given,
        cwd=machine,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_without_a_gpu_it_is_one_message(machine: Path) -> None:
    done = checked(machine)
    assert done.returncode == 2 and not done.stdout and not (machine / "out").exists()
    assert (
        done.stderr.count("\n") == 1
        and "NVIDIA GPU" in done.stderr
        and "closed-loop.py" in done.stderr
    )


def test_without_ppplan_it_is_one_message(machine: Path) -> None:
    with_gpu(machine)
    (machine / "bin" / "ppplan").unlink()
    done = checked(machine)
    assert done.returncode == 2 and "PPPLAN=" in done.stderr and done.stderr.count("\n") == 1


def test_every_command_is_one_that_the_command_line_reads(machine: Path) -> None:
    with_gpu(machine)
    done = checked(machine)
    assert done.returncode == 0, done.stdout + done.stderr
    called = [shlex.split(line) for line in (machine / "calls").read_text().splitlines()]
    assert [words[0] for words in called] == [
        "doctor",
        "calibrate",
        "recommend",
        "tune",
        "recommend",
        "tune",
        "explain",
    ]
    group = typer.main.get_command(cli.app())
    for name, *rest in called:
        group.commands[name].make_context(name, rest)  # type: ignore[attr-defined]
    assert (
        called[4][called[4].index("--cluster") + 1] == "out/here.yaml"
    )  # eight of the GPU that was measured
    assert NAMED in (machine / "out" / "gpu-check.log").read_text()


def test_a_part_that_fails_is_named_and_the_rest_goes_on(machine: Path) -> None:
    with_gpu(machine)
    done = checked(machine, fails="calibrate")
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "failed: calibrate"
    called = [line.split() for line in (machine / "calls").read_text().splitlines()]
    assert [words[0] for words in called] == [
        "doctor",
        "calibrate",
        "recommend",
        "tune",
        "recommend",
        "tune",
        "explain",
    ]
    assert all(
        words[words.index("--cluster") + 1] == "h100-sxm"
        for words in called
        if words[0] == "recommend"
    )


def test_its_parts_together_take_less_than_five_minutes() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    whole = [
        int(line.split("part ")[1].replace('"eight refined"', "refined").split()[1])
        for line in text.splitlines()
        if line.startswith("part ") or '&& part "eight' in line
    ]
    measured = int(text.split('measured" ')[1].split()[0])
    assert len(whole) == 5 and sum(whole) + 2 * measured < 300
