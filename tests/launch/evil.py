"""A rank that does what its request says, well or badly: `python -m tests.launch.evil REQUEST
RESULT`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from planner.launch.process_guard import watch_parent

SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


def works(request: dict[str, Any], result: Path) -> None:
    names = (
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "MARK",
        "CUDA_VISIBLE_DEVICES",
    )
    found = {name: os.environ.get(name) for name in names}
    (result.parent / f"seen{os.environ['RANK']}.json").write_text(json.dumps(found))
    if os.environ["RANK"] == "0":
        until = time.monotonic() + 10
        others = [
            result.parent / f"seen{rank}.json" for rank in range(int(os.environ["WORLD_SIZE"]))
        ]
        while (
            not all(one.exists() and one.read_text() for one in others) and time.monotonic() < until
        ):
            time.sleep(0.01)
        answer = {"echo": request, "seen": [json.loads(one.read_text()) for one in others]}
        result.with_suffix(".new").write_text(json.dumps(answer))
        result.with_suffix(".new").rename(result)


def progresses(request: dict[str, Any], result: Path) -> None:
    with result.with_name(result.name + ".progress").open("a") as file:
        for step in range(request["steps"]):
            file.write(json.dumps({"step": step, "step_s": 0.01})[:9])
            file.flush()
            time.sleep(0.01)
            file.write(json.dumps({"step": step, "step_s": 0.01})[9:] + "\n")
            file.flush()
            time.sleep(request.get("step_s", 0.0))
    result.write_text("{}")


def fails(request: dict[str, Any], _: Path) -> None:
    if os.environ["RANK"] == str(request.get("rank", 0)):
        sys.stderr.write(request.get("says", ""))
        sys.stderr.flush()
        sys.exit(request["code"])
    time.sleep(600)


def raises(request: dict[str, Any], _: Path) -> None:
    raise ValueError(f"heads must divide, but got {request['got']}")


def signals(request: dict[str, Any], _: Path) -> None:
    os.kill(os.getpid(), getattr(signal, request["signal"]))
    time.sleep(600)


def hangs(request: dict[str, Any], _: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def chatters(request: dict[str, Any], _: Path) -> None:
    line = b"WARNING " + b"x" * 4000 + b"\n"
    for _ in range(request["megabytes"] * 1_000_000 // len(line)):
        sys.stderr.buffer.write(line)
    sys.stderr.buffer.write(b"the last word\n")
    sys.stderr.flush()
    sys.exit(request["code"])


def litters(request: dict[str, Any], result: Path) -> None:
    """Grandchildren: one of the same group, one of its own session, both with our pipe open."""
    pids = [
        subprocess.Popen(SLEEPER).pid,
        subprocess.Popen(SLEEPER, start_new_session=True).pid,
        os.getpid(),
    ]
    Path(request["pids"]).write_text(json.dumps(pids))
    if request.get("stays"):
        time.sleep(600)
    result.write_text("{}")


def exhausts(request: dict[str, Any], _: Path) -> None:
    """Torch's own allocator under a limit of the address space."""
    import resource

    import torch

    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    torch.empty(request["bytes"], dtype=torch.uint8)


def loses_a_peer(request: dict[str, Any], _: Path) -> None:
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    distributed.all_reduce(torch.ones(1))
    if distributed.get_rank() == 1:
        os._exit(request["code"])
    distributed.all_reduce(torch.ones(1))


def meets(request: dict[str, Any], result: Path) -> None:
    """Every rank tells rank 0 its number over a socket, where MASTER_ADDR and MASTER_PORT say."""
    place, world = (
        (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])),
        int(os.environ["WORLD_SIZE"]),
    )
    if os.environ["RANK"] != "0":
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with (
                contextlib.suppress(ConnectionRefusedError),
                socket.create_connection(place) as line,
            ):
                line.sendall(os.environ["RANK"].encode())
                return
            time.sleep(0.05)
        sys.exit("rank 0 does not listen")
    with socket.create_server(place) as door:
        told = []
        for _ in range(world - 1):
            with door.accept()[0] as line:
                told.append(int(line.makefile("rb").read()))
    result.write_text(json.dumps({"told": told, "world": world}))


def waits_in_vain(request: dict[str, Any], _: Path) -> None:
    from datetime import timedelta

    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    hasty = distributed.new_group(timeout=timedelta(seconds=1))
    distributed.all_reduce(torch.ones(1))
    if distributed.get_rank() == 0:
        time.sleep(600)
    distributed.all_reduce(torch.ones(1), group=hasty)


def takes_the_port(request: dict[str, Any], result: Path) -> None:
    """The first time it finds its port taken."""
    count = Path(request["count"])
    tried = int(count.read_text()) if count.exists() else 0
    count.write_text(str(tried + 1))
    if tried < request["times"]:
        sys.exit(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any"
            " local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE,"
            " message: address already in use"
        )
    result.write_text(json.dumps({"tried": tried + 1}))


ACTS = {
    act.__name__: act
    for act in (
        works,
        progresses,
        fails,
        raises,
        signals,
        hangs,
        chatters,
        litters,
        exhausts,
        loses_a_peer,
        meets,
        waits_in_vain,
        takes_the_port,
    )
}

if __name__ == "__main__":
    watch_parent()
    asked = json.loads(Path(sys.argv[1]).read_text())
    ACTS[asked["do"]](asked, Path(sys.argv[2]))
