"""Runs work on this machine: its ranks as children, without ssh."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from planner.launch.children import Children, Command
from planner.launch.outcome import Outcome, Progress, Work
from planner.launch.process_guard import alive, started_at, sweep_orphans
from planner.launch.rank_environment import environment, free_port
from planner.launch.supervise import Cancel, supervise

PORT_TRIES = 3
PREFIX = "ppplan-run-"


def run(work: Work, progress: Progress | None = None, cancel: Cancel | None = None) -> Outcome:
    """Runs the ranks to their end, or to that of the limit; never raises for what a rank does.

    When it returns (Ctrl-C included: state "interrupted") no process of the run is left, nor a
    file. A port that another process took meanwhile is tried again with another.
    """
    began, taken = time.monotonic(), True
    _tidy()
    for _ in range(PORT_TRIES):
        outcome, taken = supervise(
            work, _folder(), lambda children: _ranks(work, children), progress, cancel, began
        )
        if not taken:
            break
    return outcome


def _folder() -> Path:
    """For temporary files, named by its owner."""
    own = os.getpid()
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{own}-{started_at(own)}-"))


def _tidy() -> None:
    """Removes what is left of runs whose tuner and guard were both killed."""
    sweep_orphans()
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*-*"):
        pid, started, _ = folder.name.removeprefix(PREFIX).split("-", 2)
        if pid.isdecimal() and not alive(int(pid), started):
            shutil.rmtree(folder, ignore_errors=True)


def _ranks(work: Work, children: Children) -> list[Command]:
    port = free_port()
    words = [sys.executable, "-m", work.module, str(children.request), str(children.result)]
    return [
        Command(words, environment(work, rank, port, children.token)) for rank in range(work.ranks)
    ]
