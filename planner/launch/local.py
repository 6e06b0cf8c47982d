"""Runs work on this machine: its ranks as children, without ssh."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from planner.launch.attend import Cancel, attend
from planner.launch.children import Children, Command
from planner.launch.outcome import Outcome, Progress, Work
from planner.launch.surroundings import environment, free_port

PORT_TRIES = 3


def run(work: Work, progress: Progress | None = None, cancel: Cancel | None = None) -> Outcome:
    """Runs the ranks to their end, or to that of the limit; never raises for what a rank does.

    When it returns (Ctrl-C included: state "interrupted") no process of the run is left, nor a file. A port that another process
    took meanwhile is tried again with another.
    """
    began, taken = time.monotonic(), True
    for _ in range(PORT_TRIES):
        outcome, taken = attend(work, Path(tempfile.mkdtemp(prefix="ppplan-run-")), lambda children: _ranks(work, children),
                                progress, cancel, began)  # fmt: skip
        if not taken:
            break
    return outcome


def _ranks(work: Work, children: Children) -> list[Command]:
    port = free_port()
    words = [sys.executable, "-m", work.module, str(children.request), str(children.result)]
    return [Command(words, environment(work, rank, port, children.token)) for rank in range(work.ranks)]
