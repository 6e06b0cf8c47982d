"""DeepSpeed's own verdict on configurations, and real runs of launch files, on a CPU; deepspeed is
in the extra [test].
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests import recorder
from tests.judges import judging
from tests.launch import forks

_STEP = re.compile(
    r"^step (\d+)/\d+ \| [\d.]+ s \| [\d,]+ tokens/s/GPU \| loss ([\d.]+) ", re.MULTILINE
)
_RANK = re.compile(r"rank (\d+): ([\d,]+) parameters, zero (\d), (\d+) micro-batches of (\d+)")


@dataclass
class Case:
    """A configuration and the ranks that would read it."""

    name: str
    config: dict[str, Any]
    ranks: int
    dp: int
    pipeline: bool


@dataclass
class Run:
    """What a run printed."""

    losses: list[float]
    """Of every step."""
    parameters: list[int]
    """Of every rank."""
    zero: set[int]
    micro_batches: set[tuple[int, int]]
    """(m, mbs) as DeepSpeed understood them."""
    code: int
    text: str


def verdicts(cases: Iterable[Case], python: str = sys.executable) -> list[dict[str, Any]]:
    """A dict a case: accepted, message, ignored (keys that nobody read), and what DeepSpeed
    understood.
    """
    judge = str(Path(__file__).with_name("deepspeed_judge.py"))
    return judging.verdicts(
        [python, judge], {**os.environ, **forks.CPU}, map(asdict, cases), "verdict "
    )


def run(folder: Path, files: dict[str, str], port: int) -> Run:
    """Starts a torchrun launch file as a user would, with torchrun and python of this
    environment.
    """
    for name, text in files.items():
        (folder / name).write_text(text)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, **forks.CPU, "PATH": path, "MASTER_PORT": str(port), "STEPS": "3"}
    done = subprocess.run(
        ["bash", str(folder / "launch.sh")], env=env, capture_output=True, text=True, timeout=400
    )
    return _read(done.returncode, done.stdout + done.stderr)


def forked(folder: Path, files: dict[str, str], port: int) -> Run:
    """The same, but what the launch file hands to torchrun is run by forks of a process that has
    imported DeepSpeed already.
    """
    for name, text in files.items():
        (folder / name).write_text(text)
    called = recorder.call(
        folder, files["launch.sh"], **forks.CPU, MASTER_PORT=str(port), STEPS="3"
    )
    address = {
        "MASTER_ADDR": called.options["--master-addr"],
        "MASTER_PORT": called.options["--master-port"],
    }
    out = folder / "printed"
    words = [called.entry, *called.flags]
    code = forks.code(words, called.world_size, called.env | address, out)
    return _read(code, out.read_text())


def _read(code: int, text: str) -> Run:
    ranks = sorted(_RANK.findall(text))
    return Run(
        losses=[float(loss) for _, loss in _STEP.findall(text)],
        parameters=[int(own.replace(",", "")) for _, own, *_ in ranks],
        zero={int(zero) for _, _, zero, _, _ in ranks},
        micro_batches={(int(m), int(mbs)) for *_, m, mbs in ranks},
        code=code,
        text=text,
    )
