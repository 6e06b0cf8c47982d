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

from planner.launch import process_guard

HEARTBEAT_S = 20.0
"""Between two signs of life."""
EXPIRY_S = 180.0
"""Without a sign of life after which a trial of another machine is taken over; clocks may differ by
two thirds of it.
"""

Owner = dict[str, Any]
"""{"machine", "host", "pid", "start", "time"}: plain JSON."""


def this_process() -> Owner:
    """This process as the owner of a trial, with the present time as its sign of life."""
    pid = os.getpid()
    return {
        "machine": _machine(),
        "host": socket.gethostname(),
        "pid": pid,
        "start": process_guard.started_at(pid),
        "time": time.time(),
    }


def is_alive(owner: Owner) -> bool:
    """Whether the process that holds a trial lives, as far as this machine can tell."""
    if owner.get("machine") == _machine():
        return process_guard.alive(int(owner["pid"]), str(owner["start"]))
    return time.time() - float(owner.get("time", 0)) < EXPIRY_S


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
def heartbeat(beat: Callable[[], None], every_s: float = HEARTBEAT_S) -> Iterator[None]:
    """Calls `beat` every `every_s` seconds, from a thread of its own, while the work inside runs. A
    fault of the storage does not end the work.
    """
    done = threading.Event()

    def keep_beating() -> None:
        while not done.wait(every_s):
            try:
                beat()
            except Exception:
                # the next sign of life may come through; the result is written with retries
                continue

    thread = threading.Thread(target=keep_beating, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=5)
