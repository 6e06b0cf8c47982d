"""Several tuners on one storage, and tuners that are killed: as processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from planner.tune.study import study as studies
from planner.tune.study.storage import opened
from planner.tune.study.study import Size
from tests.bench.tune_kill import killed
from tests.tune.simulated import question

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("kind", "trials"),
    [("sqlite:///{}/study.db", 10), ("journal:{}/study.journal", 24)],
    ids=["sqlite", "journal"],
)
def test_three_tuners_never_run_a_layout_twice(tmp_path: Path, kind: str, trials: int) -> None:
    """They start together on a storage that does not exist yet; trials of no length make them
    collide as often as can be.
    """
    url, log = kind.format(tmp_path), tmp_path / "log"
    words = [sys.executable, "-m", "tests.tune.simulated", url, str(trials), "0", str(log)]
    tuners = [subprocess.Popen(words, stderr=subprocess.PIPE) for _ in range(3)]
    for one in tuners:
        _, complaint = one.communicate(timeout=300)
        assert one.returncode == 0, complaint.decode()
    launched = [
        (line["key"], line["pid"])
        for line in map(json.loads, log.read_text().splitlines())
        if line["event"] == "launched"
    ]
    assert max(Counter(key for key, _ in launched).values()) == 1
    assert len(launched) == trials
    _, space = question()
    study = studies.create(
        opened(url), "simulated", {"model": "llama3-8b"}, True, space, Size(trials, 3)
    )
    assert Counter(one.state for one in studies.all_rows(study)) == {"done": trials}


def test_nothing_is_lost_doubled_or_left_when_processes_are_killed(tmp_path: Path) -> None:
    hits = killed(f"sqlite:///{tmp_path}/study.db", tmp_path, rounds=3, seed=1)
    assert sum(hits.values()) == 3
