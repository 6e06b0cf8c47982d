"""Runs work over several hosts without a scheduler: torchrun on each, meeting at a c10d endpoint.

This host is the first. On each of the others `python -m planner.launch.torchrun FOLDER` follows:
FOLDER is shared, and for as long as a run's folder is there, the followers take part in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.launch.children import Children, Command
from planner.launch.outcome import Outcome, Progress, Work
from planner.launch.rank_environment import free_port
from planner.launch.remote_settings import VARIABLES, RemoteSettings, from_environment, nodes
from planner.launch.supervise import Cancel, supervise

PREFIX = "ppplan-run-"
CALL = "torchrun.json"
LOCAL = ("localhost", "127.0.0.1")


def run(
    work: Work,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
    settings: RemoteSettings | None = None,
) -> Outcome:
    """Ranks on this host and on those that follow; all share settings.folder. The first rank that
    fails ends the others.

    InputError when several hosts are needed and PPPLAN_ENDPOINT does not say where they meet.
    """
    settings = settings or from_environment()
    count, each = nodes(work.ranks, settings)
    if count > 1 and not settings.endpoint:
        what = VARIABLES["PPPLAN_ENDPOINT"]
        raise InputError(
            f"--launcher torchrun needs {count} hosts for {work.ranks} ranks: set PPPLAN_ENDPOINT,"
            f" {what}"
        )
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=settings.folder))

    def commands(children: Children) -> list[Command]:
        call = {
            "id": children.token,
            "nodes": count,
            "each": each,
            "endpoint": settings.endpoint or f"127.0.0.1:{free_port()}",
            "module": work.module,
            "request": str(children.request),
            "result": str(children.result),
            "limit_s": work.limit_s,
            "device": work.device,
            "environment": work.environment,
        }
        new = children.folder / f"{CALL}.new"
        new.write_text(json.dumps(call))
        new.rename(children.folder / CALL)  # whole, for those who look for it
        return [_command(call, children.token, first=True)]

    return supervise(work, folder, commands, progress, cancel)[0]


def _command(call: dict[str, Any], token: str, first: bool) -> Command:
    """torchrun for one host. The first one is where they meet, and is known by the name in the
    endpoint.
    """
    host = call["endpoint"].rpartition(":")[0] or call["endpoint"]
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nnodes={call['nodes']}",
        f"--nproc-per-node={call['each']}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={call['endpoint']}",
        f"--rdzv-id={call['id']}",
        "--max-restarts=0",
        f"--rdzv-conf=is_host={int(first)},join_timeout={int(call['limit_s'])}",
        "--monitor-interval=0.2",
        *([f"--local-addr={host}"] if first or host in LOCAL else []),
        "--module",
        call["module"],
        call["request"],
        call["result"],
    ]
    device = (
        {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"} if call["device"] == "cpu" else {}
    )
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    own = {
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "PPPLAN_RUN": token,
        "OMP_NUM_THREADS": threads,
    }
    return Command(words, {**os.environ, **own, **device, **call["environment"]}, "torchrun")


def follow(folder: Path, cancel: Cancel | None = None) -> None:
    """Takes part in each run of the folder, one after another, until cancelled or interrupted."""
    done: set[Path] = set()
    while cancel is None or not cancel():
        calls = [path for path in sorted(folder.glob(f"{PREFIX}*/{CALL}")) if path not in done]
        for path in calls:
            done.add(path)
            if not _take_part(path, cancel):
                return
        if not calls:
            time.sleep(0.2)


def _take_part(path: Path, cancel: Cancel | None) -> bool:
    """Whether to go on with the next run: not after Ctrl-C, which ends the run here while its
    folder is still there.
    """
    try:
        call = json.loads(path.read_text())
    except OSError:
        return True  # over already
    work = Work(call["module"], {}, call["each"], call["limit_s"], call["device"])
    own = Path(tempfile.mkdtemp(prefix="ppplan-follow-"))
    over = lambda: not path.exists() or (cancel is not None and cancel())  # noqa: E731
    outcome, _ = supervise(
        work,
        own,
        lambda children: [_command(call, children.token, first=False)],
        cancel=over,
        answers=False,
    )
    return outcome.state != "interrupted" or not path.exists()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        follow(Path(sys.argv[1]).resolve())
