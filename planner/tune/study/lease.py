"""Who runs a trial, and whether that process still lives: exact on the same machine, by its last
sign of life on another.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from planner.launch.watch import alive as process_alive
from planner.launch.watch import started_at

BEAT_S = 20.0
"""Between signs of life."""
LOST_S = 180.0
"""Without a sign of life after which a trial of another machine is taken over; clocks may differ by
two thirds of it.
"""

Owner = dict[str, Any]
"""{"machine", "host", "pid", "start", "time"}: plain JSON."""


def me() -> Owner:
    """This process, now."""
    pid = os.getpid()
    return {
        "machine": _machine(),
        "host": socket.gethostname(),
        "pid": pid,
        "start": started_at(pid),
        "time": time.time(),
    }


def alive(owner: Owner) -> bool:
    """Whether the process that holds a trial lives, as far as this machine can tell."""
    if owner.get("machine") == _machine():
        return process_alive(int(owner["pid"]), str(owner["start"]))
    return time.time() - float(owner.get("time", 0)) < LOST_S


def _machine() -> str:
    """A kernel's boot and the namespace in which its process numbers count: containers may share a
    host name, or a kernel.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()


@contextmanager
def beating(beat: Callable[[], None], every_s: float = BEAT_S) -> Iterator[None]:
    """Calls `beat` from a thread of its own while the work inside runs; a fault of the storage does
    not end the work.
    """
    done = threading.Event()

    def beats() -> None:
        while not done.wait(every_s):
            try:
                beat()
            except Exception:
                # the next sign of life may come through; the result is written with retries
                continue

    thread = threading.Thread(target=beats, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=5)
