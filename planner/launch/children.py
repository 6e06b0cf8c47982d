"""Child processes of one run: started in their own sessions beside a guard, listened to, and gone
at the end with all they started.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.launch import failures
from planner.launch.failures import Ended
from planner.launch.outcome import Progress
from planner.launch.process_guard import sweep

CHUNK = 1 << 16
PIPE_CHUNKS = 16
"""What a pipe may hold (1 MiB, Linux's most without privileges), in chunks."""


@dataclass(frozen=True, slots=True)
class Command:
    """One child: its words and its whole environment."""

    words: list[str]
    environment: dict[str, str]
    name: str = ""
    """What it is called in a reason, where it is no rank but starts them."""


@dataclass(slots=True)
class Children:
    """The processes of one run while they live."""

    folder: Path
    """Holds the request, the result and the progress; removed with the run."""
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    pipes: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    guard: subprocess.Popen[bytes] | None = None
    read_bytes: int = 0
    """Of the progress file."""
    last: dict[str, Any] = field(default_factory=dict)
    """The last line of progress."""
    heard_at: float = field(default_factory=time.monotonic)

    @property
    def request(self) -> Path:
        return self.folder / "request.json"

    @property
    def result(self) -> Path:
        return self.folder / "result.json"


def findable(variables: dict[str, str]) -> dict[str, str]:
    """The same with this package importable from any folder, installed or not."""
    own = str(Path(__file__).parents[2])
    return {
        **variables,
        "PYTHONPATH": os.pathsep.join(filter(None, (variables.get("PYTHONPATH"), own))),
    }


def start_guard(children: Children) -> None:
    command = [
        sys.executable,
        "-m",
        "planner.launch.process_guard",
        children.token,
        str(children.folder),
    ]
    children.guard = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        start_new_session=True,
        cwd=children.folder.parent,
        env=findable(dict(os.environ)),
    )


def start(children: Children, command: Command) -> None:
    """Adds one child; the guard learns its process group."""
    process = subprocess.Popen(
        command.words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd=children.folder,
        env=findable(command.environment),
    )
    children.processes.append(process)
    children.ended.append(Ended(len(children.ended), name=command.name))
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    children.pipes.register(process.stdout, selectors.EVENT_READ, children.ended[-1])
    tell_guard(children, process.pid)
    _no_core(process.pid)


def tell_guard(children: Children, line: int | list[str]) -> None:
    """A process group to end, or a command that ends what runs elsewhere; the guard sees to it
    however this process ends.
    """
    assert children.guard is not None and children.guard.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        children.guard.stdin.write(json.dumps(line).encode() + b"\n")
        children.guard.stdin.flush()


def _no_core(pid: int) -> None:
    """A child that aborts leaves no core file of many gigabytes."""
    import resource

    if hasattr(resource, "prlimit"):
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


def listen(children: Children, limit_s: float) -> None:
    """Takes what the children wrote, and notes who ended. A grandchild that keeps a pipe open is
    not waited for.
    """
    for key, _ in children.pipes.select(limit_s):
        chunk = os.read(key.fd, CHUNK)
        if chunk:
            failures.hear(key.data, chunk)
        else:
            children.pipes.unregister(key.fileobj)
    if not children.pipes.get_map():
        time.sleep(limit_s)
    for process, rank in zip(children.processes, children.ended, strict=True):
        if rank.code is None and process.poll() is not None:
            rank.order = sum(other.code is not None for other in children.ended)
            rank.code = process.returncode
            _drain(process, rank)


def _drain(process: subprocess.Popen[bytes], rank: Ended) -> None:
    """What is in the pipe of a child that has ended; at most the pipe's size, as a grandchild may
    go on writing.
    """
    assert process.stdout is not None
    with contextlib.suppress(BlockingIOError):
        for _ in range(PIPE_CHUNKS):
            chunk = os.read(process.stdout.fileno(), CHUNK)
            if not chunk:
                return
            failures.hear(rank, chunk)


def listen_until(children: Children, seconds: float) -> None:
    """Until all have ended, or for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(rank.code is None for rank in children.ended):
        listen(children, 0.05)
    listen(children, 0)


def reported(children: Children, progress: Progress | None) -> bool:
    """Passes on the new whole lines of the progress file; whether the run shall stop."""
    path = children.result.with_name(children.result.name + ".progress")
    if not path.exists():
        return False
    with path.open("rb") as file:
        file.seek(children.read_bytes)
        new = file.read()
    complete = new[: new.rfind(b"\n") + 1]
    children.read_bytes += len(complete)
    for line in complete.splitlines():
        children.heard_at = time.monotonic()
        with contextlib.suppress(ValueError):
            children.last = json.loads(line)
            if progress is not None and progress(children.last):
                return True
    return False


def last_words(children: Children) -> str:
    return (
        ", ".join(f"{name} {value}" for name, value in children.last.items())
        or "no progress at all"
    )


def clean(children: Children) -> None:
    """Nothing is left: the children, what they started, their pipes, the guard, the folder."""
    sweep(children.token, tuple(process.pid for process in children.processes))
    for process in children.processes:
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    children.pipes.close()
    if children.guard is not None:
        with contextlib.suppress(BrokenPipeError):
            children.guard.communicate()
    shutil.rmtree(children.folder, ignore_errors=True)
