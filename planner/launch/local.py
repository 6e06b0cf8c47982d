"""Runs work on this machine: its ranks as children in their own sessions, under a time limit; whatever happens to them is an Outcome."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.launch import verdict
from planner.launch.outcome import Outcome, Progress, Work
from planner.launch.surroundings import environment, free_port
from planner.launch.verdict import Ended
from planner.launch.watch import sweep

Cancel = Callable[[], bool]
"""Asked many times a second; True ends the run as interrupted. `threading.Event().is_set` is one."""
LOOK_S = 0.05
GRACE_S = 2.0
"""After the first rank failed the others have this long to end and say why."""
STUCK_S = 15.0
"""A rank that spoke of too little memory and neither ends nor reports progress for so long will not."""
PORT_TRIES = 3
CHUNK = 1 << 16


@dataclass(slots=True)
class _Children:
    """The ranks of one run while they live."""

    token: str
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    pipes: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    read_bytes: int = 0
    """Of the progress file."""
    last: dict[str, Any] = field(default_factory=dict)
    heard_at: float = field(default_factory=time.monotonic)

    @property
    def request(self) -> Path:
        return self.folder / "request.json"

    @property
    def result(self) -> Path:
        return self.folder / "result.json"


def run(work: Work, progress: Progress | None = None, cancel: Cancel | None = None) -> Outcome:
    """Runs the ranks to their end, or to that of the limit; never raises for what a rank does.

    When it returns (Ctrl-C included: state "interrupted") no process of the run is left, nor a file. A port that another process
    took meanwhile is tried again with another.
    """
    began = time.monotonic()
    outcome, taken = _once(work, progress, cancel, began)
    for _ in range(PORT_TRIES - 1):
        if not taken:
            break
        outcome, taken = _once(work, progress, cancel, began)
    return outcome


def _once(work: Work, progress: Progress | None, cancel: Cancel | None, began: float) -> tuple[Outcome, bool]:
    children = _Children(secrets.token_hex(8), Path(tempfile.mkdtemp(prefix="ppplan-run-")))
    guard = None
    try:
        guard = _guard(children)
        outcome = _attended(work, children, guard, progress, cancel, began)
        return outcome, outcome.state == "crashed" and verdict.port_taken(children.ended)
    except KeyboardInterrupt:
        return Outcome("interrupted", None, "stopped by the user", seconds=time.monotonic() - began), False
    finally:
        _clean(children, guard)


def _guard(children: _Children) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "planner.launch.watch", children.token, str(children.folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, cwd=children.folder, env=_findable(dict(os.environ)))


def _findable(variables: dict[str, str]) -> dict[str, str]:
    """With this package importable from any folder, installed or not."""
    own = str(Path(__file__).parents[2])
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, (variables.get("PYTHONPATH"), own)))}


def _start(work: Work, children: _Children, guard: subprocess.Popen[bytes]) -> None:
    children.request.write_text(json.dumps(work.request))
    port = free_port()
    command = [sys.executable, "-m", work.module, str(children.request), str(children.result)]
    for rank in range(work.ranks):
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            cwd=children.folder, env=_findable(environment(work, rank, port, children.token)),
        )  # fmt: skip
        children.processes.append(process)
        children.ended.append(Ended(rank))
        assert process.stdout is not None and guard.stdin is not None
        os.set_blocking(process.stdout.fileno(), False)
        children.pipes.register(process.stdout, selectors.EVENT_READ, children.ended[-1])
        with contextlib.suppress(BrokenPipeError):
            guard.stdin.write(f"{process.pid}\n".encode())
            guard.stdin.flush()
        _no_core(process.pid)


def _no_core(pid: int) -> None:
    """A rank that aborts leaves no core file of many gigabytes."""
    import resource

    if hasattr(resource, "prlimit"):
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


def _attended(
    work: Work, children: _Children, guard: subprocess.Popen[bytes], progress: Progress | None, cancel: Cancel | None, began: float
) -> Outcome:
    kills = verdict.kernel_kills()
    _start(work, children, guard)
    while True:
        _listen(children, LOOK_S)
        pruned, now = _reported(children, progress), time.monotonic()
        if pruned:
            return Outcome("pruned", None, f"stopped as clearly behind after {_said(children)}", seconds=now - began)
        if cancel is not None and cancel():
            return Outcome("interrupted", None, "stopped by the user", seconds=now - began)
        codes = [one.code for one in children.ended]
        if any(codes) or (any(one.memory for one in children.ended) and now - children.heard_at > STUCK_S):
            return _failed(children, kills, began)
        if all(code == 0 for code in codes):
            return _finished(children, began)
        if late := _late(work, children, now - began, now - children.heard_at):
            return _hung(children, late, began)


def _listen(children: _Children, limit_s: float) -> None:
    """Takes what the ranks wrote, and notes who ended. A grandchild that keeps a pipe open is not waited for."""
    for key, _ in children.pipes.select(limit_s):
        chunk = os.read(key.fd, CHUNK)
        if chunk:
            verdict.hear(key.data, chunk)
        else:
            children.pipes.unregister(key.fileobj)
    if not children.pipes.get_map():
        time.sleep(limit_s)
    for process, one in zip(children.processes, children.ended, strict=True):
        if one.code is None and process.poll() is not None:
            one.order = sum(other.code is not None for other in children.ended)
            one.code = process.returncode
            _drain(process, one)


def _drain(process: subprocess.Popen[bytes], one: Ended) -> None:
    """What is in the pipe of a rank that has ended; at most the pipe's size, as a grandchild may go on writing."""
    assert process.stdout is not None
    with contextlib.suppress(BlockingIOError):
        for _ in range(16):
            chunk = os.read(process.stdout.fileno(), CHUNK)
            if not chunk:
                return
            verdict.hear(one, chunk)


def _reported(children: _Children, progress: Progress | None) -> bool:
    """Passes on whole new lines of the progress file; whether the run shall stop."""
    path = children.result.with_name(children.result.name + ".progress")
    if not path.exists():
        return False
    with path.open("rb") as file:
        file.seek(children.read_bytes)
        new = file.read()
    whole = new[: new.rfind(b"\n") + 1]
    children.read_bytes += len(whole)
    for line in whole.splitlines():
        children.heard_at = time.monotonic()
        with contextlib.suppress(ValueError):
            children.last = json.loads(line)
            if progress is not None and progress(children.last):
                return True
    return False


def _said(children: _Children) -> str:
    return ", ".join(f"{name} {value}" for name, value in children.last.items()) or "no progress at all"


def _late(work: Work, children: _Children, seconds: float, silent_s: float) -> str:
    if seconds > work.limit_s:
        return f"the time limit of {work.limit_s:g} s passed"
    if work.silence_s is not None and silent_s > work.silence_s:
        return f"no progress for {work.silence_s:g} s"
    return ""


def _hung(children: _Children, late: str, began: float) -> Outcome:
    """The ranks still running are aborted, which makes Python write where each of them stood."""
    if any(one.memory for one in children.ended):
        return _failed(children, verdict.kernel_kills(), began)
    waiting = [one.rank for one in children.ended if one.code is None]
    for rank in waiting:
        with contextlib.suppress(ProcessLookupError):
            children.processes[rank].send_signal(signal.SIGABRT)
    until = time.monotonic() + 1.0
    while time.monotonic() < until and any(one.code is None for one in children.ended):
        _listen(children, LOOK_S)
    reason = f"{late} with rank {', '.join(map(str, waiting))} of {len(children.ended)} still running; last heard: {_said(children)}"
    return Outcome("timeout", None, reason, children.ended[waiting[0]].text, time.monotonic() - began)


def _failed(children: _Children, kills: int | None, began: float) -> Outcome:
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until and any(one.code is None for one in children.ended):
        _listen(children, LOOK_S)
    _listen(children, 0)
    state, reason, tail = verdict.failure(children.ended, kills, verdict.kernel_kills())
    return Outcome(state, None, reason, tail, time.monotonic() - began)


def _finished(children: _Children, began: float) -> Outcome:
    seconds = time.monotonic() - began
    try:
        return Outcome("done", json.loads(children.result.read_text()), "", children.ended[0].text, seconds)
    except (OSError, ValueError) as fault:
        reason = f"every rank ended with exit code 0, but rank 0 left no readable result: {fault}"
        return Outcome("crashed", None, reason, children.ended[0].text, seconds)


def _clean(children: _Children, guard: subprocess.Popen[bytes] | None) -> None:
    """Nothing is left: the ranks, what they started, their pipes, the folder."""
    sweep(children.token, tuple(process.pid for process in children.processes))
    for process in children.processes:
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    children.pipes.close()
    if guard is not None:
        with contextlib.suppress(BrokenPipeError):
            guard.communicate()
    shutil.rmtree(children.folder, ignore_errors=True)
