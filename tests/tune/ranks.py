"""The worker's answers to several requests over one process group: one start of torch for many modes.

    python ranks.py RANKS PORT REQUESTS.json

Prints one line of JSON, the answers in order. Forks after the import of torch, which costs more than all else.
"""

from __future__ import annotations

import datetime
import json
import multiprocessing
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from planner.tune import worker


def main(rank, ranks, port, requests):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=60)
    )
    answers = [worker.answer(request, torch.device("cpu"), lambda phase, step, step_s: None) for request in requests]
    if rank == 0:
        print(json.dumps(answers), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, port = int(sys.argv[1]), int(sys.argv[2])
    requests = json.loads(Path(sys.argv[3]).read_text())
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=main, args=(rank, ranks, port, requests), daemon=True) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))
