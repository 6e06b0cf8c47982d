"""kill -9 of tuners and of their workers at random moments: python -m tests.bench.tune_kill
[ROUNDS] [SEED]

A study is worked on by two tuners whose trials are child processes of planner.launch. In each round
one process, a tuner or a rank of a trial, is killed at a random moment; a killed tuner is started
again with --resume's meaning. In the end: no finished trial is lost, none is doubled, and within 10
s no process is left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

from planner.tune.study import study as studies
from planner.tune.study.storage import opened
from planner.tune.study.study import Size
from tests.tune.simulated import question

MARK = "PPPLAN_KILL_TEST"
LEFT_S = 10.0


def tuner(storage: str, trials: int, log: Path, mark: str) -> subprocess.Popen[bytes]:
    words = [
        sys.executable,
        "-m",
        "tests.tune.simulated",
        storage,
        str(trials),
        "0.6",
        str(log),
        "children",
    ]
    return subprocess.Popen(words, env={**os.environ, MARK: mark}, stderr=subprocess.PIPE)


def marked(mark: str) -> dict[int, str]:
    """Processes that carry the mark, and their command lines; zombies have none."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                )
        except OSError:
            continue
    return {pid: words for pid, words in found.items() if words}


def ranks(mark: str) -> list[int]:
    """Processes of trials."""
    return [pid for pid, words in marked(mark).items() if "tests.tune.sleeper" in words]


def killed(storage: str, folder: Path, rounds: int, seed: int) -> dict[str, int]:
    """Kills, goes on, and asserts what must hold; returns how often each kind of process was
    killed.
    """
    mark, log, choice = uuid.uuid4().hex, folder / "log.jsonl", random.Random(seed)
    trials, hits = max(8, 2 * rounds), Counter[str]()
    tuners = [tuner(storage, trials, log, mark) for _ in range(2)]
    until, kind = time.monotonic() + 60 + 20 * rounds, ""
    while (
        sum(hits.values()) < rounds
        and time.monotonic() < until
        and any(one.poll() is None for one in tuners)
    ):
        kind = kind if kind == "worker" and not ranks(mark) else choice.choice(["tuner", "worker"])
        time.sleep(
            0.02
            if kind == "worker" and not ranks(mark)
            else choice.uniform(0.0, 0.4 if kind == "worker" else 2.5)
        )
        living = [one.pid for one in tuners if one.poll() is None]
        group = living if kind == "tuner" else ranks(mark)
        victim = choice.choice(group) if group else 0
        if not victim or not log.exists():
            continue
        os.kill(victim, signal.SIGKILL)
        hits[kind] += 1
        tuners = [
            one if one.poll() is None or one.pid != victim else tuner(storage, trials, log, mark)
            for one in _reaped(tuners, victim)
        ]
    for one in tuners:
        _, complaint = one.communicate(timeout=max(until - time.monotonic(), 60))
        assert one.returncode in (0, -signal.SIGKILL), complaint.decode()[-2000:]
    if any(one.returncode for one in tuners):
        finishing = tuner(storage, trials, log, mark)
        _, complaint = finishing.communicate(timeout=120)
        assert finishing.returncode == 0, complaint.decode()[-2000:]
    check(storage, log, trials)
    end = time.monotonic() + LEFT_S
    while marked(mark) and time.monotonic() < end:
        time.sleep(0.2)
    assert not marked(mark), f"left after {LEFT_S:g} s: {marked(mark)}"
    return dict(hits)


def _reaped(tuners: list[subprocess.Popen[bytes]], victim: int) -> list[subprocess.Popen[bytes]]:
    for one in tuners:
        if one.pid == victim:
            one.communicate()
    return tuners


def check(storage: str, log: Path, trials: int) -> None:
    """What the storage holds against what the processes themselves wrote down as they did it."""
    _, space = question()
    study = studies.create(
        opened(storage), "simulated", {"model": "llama3-8b"}, True, space, Size(trials, 3)
    )
    rows = studies.all_rows(study)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    counted = [one for one in rows if one.state in ("done", "pruned", "oom", "crashed", "timeout")]
    assert len(counted) == trials, (
        f"{len(counted)} of {trials} trials: {Counter(one.state for one in rows)}"
    )
    assert len({one.key for one in rows}) == len(rows), "a layout was finished twice"
    finished = {
        line["number"]: line["event"] for line in lines if line["event"].startswith("told ")
    }
    states = {one.number: f"told {one.state}" for one in rows}
    lost = {
        number: event
        for number, event in finished.items()
        if event != "told running" and states.get(number) != event
    }
    assert not lost, f"finished, but not in the storage: {lost}"
    launched = Counter(line["key"] for line in lines if line["event"] == "launched")
    gone = Counter(
        row.key
        for row in (studies.row(one) for one in study.get_trials())
        if row.state == "interrupted"
    )
    doubled = {key: count for key, count in launched.items() if count > 1 + gone[key]}
    assert not doubled, f"launched again although nobody lost them: {doubled}"


def main() -> None:
    rounds, seed = (
        (int(word) for word in (*sys.argv[1:], "20", "0")[:2])
        if len(sys.argv) != 2
        else (int(sys.argv[1]), 0)
    )
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("sqlite", "journal"):
            place = Path(folder) / kind
            place.mkdir()
            storage = (
                f"sqlite:///{place}/study.db"
                if kind == "sqlite"
                else f"journal:{place}/study.journal"
            )
            began = time.monotonic()
            hits = killed(storage, place, rounds, seed)
            print(
                f"{kind}: killed {hits} in {time.monotonic() - began:.0f} s: nothing lost, nothing"
                " doubled, nothing left"
            )


if __name__ == "__main__":
    main()
