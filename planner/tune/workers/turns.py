"""Several layouts in turns over one start of their ranks: `python -m planner.tune.workers.turns
REQUEST.json RESULT.json` on each rank.

For comparisons in which what drifts on a machine must fall on all layouts alike. The request holds
`requests` of the torch benchmark that need as many ranks, and how many `turns` each gets; the
result their answers, turn after turn.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

from planner.launch.process_guard import watch_parent
from planner.tune.workers import torch_worker

MODULE = "planner.tune.workers.turns"
"""What a child runs."""


def request(requests: list[dict[str, Any]], turns: int) -> dict[str, Any]:
    """Plain JSON for the child: of each request nothing is profiled."""
    return {
        "requests": [request | {"profile": False} for request in requests],
        "turns": turns,
        "device": requests[0]["device"],
    }


def main(request_path: str, result_path: str) -> None:
    """One rank; rank 0 writes {"turns": [[answer of each request], ...]}."""
    watch_parent()
    shared = json.loads(Path(request_path).read_text(encoding="utf-8"))
    device = torch_worker.joined(shared["device"])
    report = torch_worker.reporter(Path(result_path + ".progress"))
    turns = [
        [torch_worker.answer(request, device, report) for request in shared["requests"]]
        for _ in range(shared["turns"])
    ]
    if dist.get_rank() == 0:
        Path(result_path).write_text(json.dumps({"turns": turns}), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:3])
