"""A real pipeline whose stages sleep: torch.distributed.pipelining over gloo, one process a rank.

    python sleeping_stages.py RANKS PORT FULL_STAGE_S MICROBATCHES REPEATS SCHEDULE[,SCHEDULE...]

Prints one line of JSON: for each schedule the seconds of every step but the first, the slowest
rank's. Forks after the import of torch, which costs more than everything else here.
"""

from __future__ import annotations

import datetime
import json
import multiprocessing
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules

CHUNKS = {
    "ScheduleGPipe": 1,
    "Schedule1F1B": 1,
    "ScheduleInterleaved1F1B": 2,
    "ScheduleZBVZeroBubble": 2,
}
SINGLE = ("ScheduleGPipe", "Schedule1F1B")
WIDTH = 4


class SleepInput(torch.autograd.Function):
    """The path of the activations: sleeps in the forward, and in the backward for the input
    gradient.
    """

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.seconds)
        return grad.clone(), None


class SleepWeight(torch.autograd.Function):
    """The path of the weights, apart from the other: one function with both gradients would run
    whole in both backward passes.
    """

    @staticmethod
    def forward(ctx, weight, seconds):
        ctx.seconds = seconds
        return weight.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.seconds)
        return grad.clone(), None


class SleepStage(torch.nn.Module):
    def __init__(self, first, seconds):
        super().__init__()
        self.first, self.seconds = first, seconds
        self.weight = torch.nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        if self.first:
            x = (
                x.detach().requires_grad_()
            )  # the batch needs no gradient: without this, stage 0 would skip its input gradient
        return SleepInput.apply(x, self.seconds) + SleepWeight.apply(self.weight, self.seconds)


def stages_of(name, rank, ranks):
    if name in SINGLE:
        return [rank]
    return [rank, 2 * ranks - 1 - rank] if name == "ScheduleZBVZeroBubble" else [rank, rank + ranks]


def build(name, rank, ranks, full_stage_s, microbatches):
    chunks = CHUNKS[name]
    stages = [
        PipelineStage(
            SleepStage(stage == 0, full_stage_s / chunks),
            stage,
            ranks * chunks,
            torch.device("cpu"),
        )
        for stage in stages_of(name, rank, ranks)
    ]
    made = getattr(schedules, name)(
        stages[0] if name in SINGLE else stages, microbatches, loss_fn=torch.nn.functional.mse_loss
    )
    return made, [stage.stage_index for stage in stages]


def step_s(made, mine, last, microbatches):
    """The time of one step, the slowest rank's."""
    batch = torch.ones(microbatches, WIDTH)
    inputs = (batch,) if 0 in mine else ()
    targets = {"target": batch, "losses": []} if last in mine else {}
    dist.barrier()
    began = time.perf_counter()
    made.step(*inputs, **targets)
    took = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return took.item()


def main(rank, ranks, port, full_stage_s, microbatches, repeats, names):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=60),
    )
    steps = {}
    for name in names:
        made, mine = build(name, rank, ranks, full_stage_s, microbatches)
        last = ranks * CHUNKS[name] - 1
        steps[name] = [step_s(made, mine, last, microbatches) for _ in range(1 + repeats)][
            1:
        ]  # the first infers the shapes
    if rank == 0:
        print(json.dumps(steps), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, port = int(sys.argv[1]), int(sys.argv[2])
    rest = (
        ranks,
        port,
        float(sys.argv[3]),
        int(sys.argv[4]),
        int(sys.argv[5]),
        sys.argv[6].split(","),
    )
    fork = multiprocessing.get_context("fork")
    processes = [
        fork.Process(target=main, args=(rank, *rest), daemon=True) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))
