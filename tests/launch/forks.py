"""Ranks forked from a process that has imported torch and DeepSpeed: for tests of what ranks do,
not of how they start. Imports are most of so small a run.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from planner.launch.outcome import Outcome, Progress, Work
from planner.launch.rank_environment import environment, free_port
from tests.judges import judging

CPU = {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def code(words: list[str], ranks: int, env: dict[str, str], out: Path) -> int:
    """The exit code of `python WORDS` (a script, or -m and a module) on so many ranks; what they
    print is in `out`.
    """
    warm = [sys.executable, str(Path(__file__).with_name("warm_ranks.py"))]
    case = {"words": words, "ranks": ranks, "env": env, "out": str(out)}
    [said] = judging.verdicts(warm, {**os.environ, **CPU}, [case])
    return int(said["code"])


def run(work: Work, progress: Progress) -> Outcome:
    """As planner.launch.local.run, for work that nobody stops; its progress is told at the end."""
    with tempfile.TemporaryDirectory() as folder:
        request, result, out = (Path(folder, name) for name in ("request", "result", "out"))
        request.write_text(json.dumps(work.request))
        words = ["-m", work.module, str(request), str(result)]
        ended = code(words, work.ranks, environment(work, 0, free_port(), ""), out)
        if ended or not result.is_file():
            return Outcome("crashed", None, f"exit code {ended}", out.read_text()[-3000:])
        for line in result.with_name("result.progress").read_text().splitlines():
            progress(json.loads(line))
        return Outcome("done", json.loads(result.read_text()))
