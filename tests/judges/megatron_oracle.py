"""Megatron-LM's own verdict on flags, on a CPU: its parser, validation, configuration classes,
process groups and model.

The megatron-core wheel carries them; it is unpacked into .mcore/<version> on first use.
tests/judges/megatron_judge.py runs them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.judges import judging

ROOT = Path(__file__).parents[2]
NEWEST = "0.19.2"


@dataclass
class Case:
    """Flags, and the machine that would read them."""

    name: str
    flags: list[str]
    world_size: int
    env: dict[str, str | None] = field(default_factory=lambda: {"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
    arch: int = 9
    """Major compute capability."""
    build: bool = False
    """Also make the model of every pipeline stage."""
    whole: bool = False
    """Make the process groups of the whole world: 16,384 ranks take 10 s."""


def wheel(version: str = NEWEST) -> Path:
    """The unpacked wheel; it asks for Python 3.12 but needs nothing of it."""
    folder = ROOT / ".mcore" / version
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked:
            target = Path(unpacked) / "wheel"
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--target",
                str(target),
                "--no-deps",
                "--ignore-requires-python",
                "--python-version",
                "3.12",
                "--implementation",
                "cp",
                "--abi",
                "cp312",
                "--platform",
                "manylinux_2_28_x86_64",
                "--only-binary=:all:",
                f"megatron-core=={version}",
            ]
            subprocess.run(command, check=True, capture_output=True, text=True)
            if not folder.is_dir():
                target.rename(folder)
    return folder


def verdicts(cases: Iterable[Case], version: str = NEWEST) -> list[dict[str, Any]]:
    """A dict a case: accepted, stage (where it ended), message, and the facts that Megatron
    derived.
    """
    return judging.verdicts(_words(), _environment(version), map(asdict, cases))


def arguments(version: str = NEWEST) -> dict[str, dict[str, list[str]]]:
    """Every argument that the parser of a version takes, with its flags, by its group there."""
    [answer] = judging.verdicts(
        _words(), _environment(version), [{"name": "arguments", "arguments": True}]
    )
    del answer["name"]
    return answer


def parsed(command_lines: list[list[str]], version: str = NEWEST) -> list[bool]:
    """Whether the parser of a version takes each command line, before anything is validated."""
    [answer] = judging.verdicts(
        _words(), _environment(version), [{"name": "parse", "parse": command_lines}]
    )
    taken: list[bool] = answer["taken"]
    return taken


def _words() -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("megatron_judge.py"))]


def _environment(version: str) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(wheel(version)),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
