"""The worker's answers to several requests over a process group, and over the next: one start of
torch for many modes.

    python ranks.py GROUPS.json [FORWARD_S BACKWARD_S]

With two times every layer sleeps so long in its passes, beside its work.

Prints one line of JSON a group, the answers in order, each with what torch was seen to do on the
first rank ("seen"). Forks after the import of torch, which costs more than all else.
"""

from __future__ import annotations

import datetime
import json
import multiprocessing
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # else every rank imports it, with its first optimizer
import torch.distributed as dist

from planner.tune.benchmark import network, training, zero1
from planner.tune.workers import torch_worker


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, forward_s, backward_s):
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.backward_s)
        return gradient, None, None


def slow(forward_s, backward_s):
    quick = network.Block.forward
    network.Block.forward = lambda block, x: Sleep.apply(quick(block, x), forward_s, backward_s)


def seen():
    """Notes DDP's buckets, elements of our own reductions, and layers that fully_shard gathers
    ahead of each.
    """
    found = {"ddp": [], "reductions": [], "ahead": []}
    wrap, reduce, ahead = training.replicate, zero1.reduce, training.ahead

    def replicate(*words):
        found["ddp"].append(wrap(*words))
        return found["ddp"][-1]

    def reduced(bucket):
        if bucket.group is not None:
            found["reductions"].append(sum(one.numel() for one in bucket.parameters))
        reduce(bucket)

    def gathered(blocks, layers):
        ahead(blocks, layers)
        found["ahead"] += [block._get_fsdp_state() for block in blocks]

    training.replicate, zero1.reduce, training.ahead = replicate, reduced, gathered
    return found


def told(found):
    """Plain JSON of what was seen; begins anew."""
    names = "_states_to_forward_prefetch", "_states_to_backward_prefetch"
    out = {
        "ddp": [
            one._get_ddp_logging_data().get("rebuilt_bucket_sizes", "") for one in found["ddp"]
        ],
        "reductions": list(found["reductions"]),
        "ahead": [[len(getattr(state, name)) for name in names] for state in found["ahead"]],
    }
    for notes in found.values():
        notes.clear()
    return out


def main(rank, ranks, port, requests):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=60),
    )
    notes = seen()
    answers = [
        torch_worker.answer(request, torch.device("cpu"), lambda phase, step, step_s: None)
        | {"seen": told(notes)}
        for request in requests
    ]
    if rank == 0:
        print(json.dumps(answers), flush=True)
    dist.destroy_process_group()


def run(requests, ranks, port):
    """Answers over one process group; leaves with the code of a rank that failed."""
    fork = multiprocessing.get_context("fork")
    processes = [
        fork.Process(target=main, args=(rank, ranks, port, requests), daemon=True)
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    code = max(abs(process.exitcode or 0) for process in processes)
    if code:
        sys.exit(code)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        slow(float(sys.argv[2]), float(sys.argv[3]))
    for group in json.loads(Path(sys.argv[1]).read_text()):
        run(**group)
