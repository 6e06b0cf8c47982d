"""torchtitan's own reading of its files, on a CPU: its parsers, meshes, pipeline splits and models;
tests/judges/torchtitan_judge.py runs them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.judges import wheels

NEWEST, OLDER = "0.3.0", "0.2.2"


@dataclass
class Case:
    """A file that is written, and the run that would read it."""

    text: str
    flags: list[str]
    gpus: int
    build: bool = False
    """Also make the model, without memory, and count its parameters."""
    capable: bool = False
    """Take the machine for one with 8-bit products, and stop where torchao would be needed."""


def verdicts(cases: Iterable[Case], version: str = NEWEST) -> list[dict[str, Any]]:
    """A dict a case: accepted, message, and what torchtitan understood."""
    lines = "\n".join(json.dumps(asdict(case)) for case in cases)
    judge = str(Path(__file__).with_name("torchtitan_judge.py"))
    env = wheels.environment("torchtitan", version)
    answer = subprocess.run(
        [sys.executable, judge, version], input=lines, env=env, capture_output=True, text=True
    )
    if answer.returncode:
        raise RuntimeError(answer.stderr[-3000:])
    return [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]
