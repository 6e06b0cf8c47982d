"""torchtitan's own reading of its files, on a CPU: its parsers, meshes, pipeline splits and models;
tests/judges/torchtitan_judge.py runs them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.judges import judging, wheels

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
    judge = str(Path(__file__).with_name("torchtitan_judge.py"))
    env = wheels.environment("torchtitan", version)
    return judging.verdicts([sys.executable, judge, version], env, map(asdict, cases))
