"""No child outlives whoever started it: a rank watches its parent, and a guard beside the ranks
ends what is left of them.

The guard is `python -m planner.launch.process_guard TOKEN FOLDER`; its stdin is a pipe that only
the parent holds, so that it closes however the parent ends, kill -9 included.

NOTE: torch.distributed.elastic.multiprocessing and psutil supervise children too, but from inside
the parent: when that is killed with -9, ranks that run, and what they started, stay behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

PARENT, STARTED, TOKEN = "PPPLAN_PARENT", "PPPLAN_PARENT_STARTED", "PPPLAN_RUN"
LOOK_S = 0.5
SWEEP_S = 5.0
COMMAND_S = 20.0
"""For a command that ends what runs elsewhere."""
_PR_SET_PDEATHSIG = 1


def started_at(pid: int) -> str:
    """Clock ticks from boot to the start of a process; empty when there is none, or no /proc. Tells
    a reused pid from the first.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    state, *rest = text.rpartition(")")[2].split()
    return "" if state in "ZX" else rest[18]


def alive(pid: int, started: str = "") -> bool:
    """Whether that process runs still; with `started` of started_at(), whether it is the same
    one.
    """
    if Path("/proc/self/stat").exists():
        now = started_at(pid)
        return bool(now) and started in ("", now)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def watch_parent() -> None:
    """Called first thing in a rank: when the process named by PPPLAN_PARENT is gone, this one ends
    at once. Without that variable (a rank that torchrun or Slurm started, which end their own)
    nothing is watched."""
    if not os.environ.get(PARENT):
        return
    pid = int(os.environ[PARENT])
    started = os.environ.get(STARTED) or started_at(pid)
    _die_with(pid)
    if not alive(pid, started):
        _end()
    threading.Thread(target=_watch, args=(pid, started), daemon=True, name="watch-parent").start()


def _watch(pid: int, started: str) -> None:
    while alive(pid, started):
        time.sleep(LOOK_S)
    _end()


def _end() -> None:
    """No cleaning up: a rank inside a collective would wait for ranks that are gone."""
    if token := os.environ.get(TOKEN):
        for pid in _holders(token) - {os.getpid()}:
            _kill(pid)
    os._exit(1)


def _die_with(pid: int) -> None:
    """Where the kernel can (Linux), it kills this process in the moment its parent dies."""
    if sys.platform != "linux" or os.getppid() != pid:
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _of_runs() -> dict[int, dict[str, str]]:
    """Variables of each live process that some run started, whatever group or session it moved to;
    none without /proc.
    """
    processes, marked = {}, f"{TOKEN}=".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (entry / "environ").read_bytes()
            if marked in text and started_at(int(entry.name)):
                processes[int(entry.name)] = dict(
                    line.split("=", 1)
                    for line in text.decode(errors="replace").split("\0")
                    if "=" in line
                )
    return processes


def _holders(token: str) -> set[int]:
    return {pid for pid, variables in _of_runs().items() if variables.get(TOKEN) == token}


def sweep_orphans() -> None:
    """Kills what is left of runs whose parent, named in their variables, is gone: where both parent
    and guard were killed.
    """
    for pid, variables in _of_runs().items():
        parent = variables.get(PARENT, "")
        if (
            parent.isdecimal()
            and pid != os.getpid()
            and not alive(int(parent), variables.get(STARTED, ""))
        ):
            _kill(pid)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def sweep(token: str, groups: tuple[int, ...] = (), limit_s: float = SWEEP_S) -> bool:
    """Kills all processes of those groups and all that carry the token (but this one) until none is
    left; False if some are.
    """
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    until = time.monotonic() + limit_s
    while left := _holders(token) - {os.getpid()}:
        for pid in left:
            _kill(pid)
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def main() -> None:
    """The guard: waits for the end of its parent, then leaves nothing of the run behind. Lines of
    its stdin are process groups, and commands as JSON that end what runs elsewhere."""
    token, folder = sys.argv[1:3]
    lines = [json.loads(line) for line in sys.stdin]
    for words in (line for line in lines if isinstance(line, list)):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                words,
                timeout=COMMAND_S,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    sweep(token, tuple(line for line in lines if isinstance(line, int)))
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
