"""What a rank finds around it: torchrun's environment variables, a port that is free, threads for
its share of the cores.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from planner.launch.outcome import Work
from planner.launch.process_guard import PARENT, STARTED, TOKEN, started_at

LOCAL = "127.0.0.1"


def free_port() -> int:
    """A TCP port of this host that nobody listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOCAL, 0))
        return int(probe.getsockname()[1])


def cores() -> int:
    """Cores that this process may use, which a container or a batch system may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment(work: Work, rank: int, port: int, token: str) -> dict[str, str]:
    """All variables of one local rank; those of `work` win."""
    given = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(work.ranks),
        "LOCAL_WORLD_SIZE": str(work.ranks),
        "GROUP_RANK": "0",
        "MASTER_ADDR": LOCAL,
        "MASTER_PORT": str(port),
        PARENT: str(os.getpid()),
        STARTED: started_at(os.getpid()),
        TOKEN: token,
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "PMI_", "TORCHELASTIC_"))
    }
    threads = (
        {"OMP_NUM_THREADS": str(max(1, cores() // work.ranks))}
        if "OMP_NUM_THREADS" not in inherited
        else {}
    )
    return {
        **inherited,
        **threads,
        **given,
        **(_cpu() if work.device == "cpu" else {}),
        **work.environment,
    }


def _cpu() -> dict[str, str]:
    """No GPU is touched, and gloo stays on the loopback: a host's own name may resolve to
    nothing.
    """
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if Path("/sys/class/net/lo").exists() else {}
    return {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", **loopback}


if __name__ == "__main__":
    print(free_port())  # for the script of a batch job, on the first of its nodes
