"""Stages of the model on this rank, and torch's pipeline runtime over them. Imported in child
processes alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, schedules
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from planner.tune.benchmark.timing import Spans, timed
from planner.tune.torch_support import TORCH

_SINGLE = ("ScheduleGPipe", "Schedule1F1B")


class Stage(nn.Module):
    """Consecutive layers; the first stage begins with the embedding, the last ends with head and
    loss.
    """

    def __init__(
        self,
        embedding: nn.Module | None,
        blocks: list[nn.Module],
        head: nn.Module | None,
        repeated: int,
        parts: int,
    ) -> None:
        """repeated: of the layers, how many are recomputed whole. parts: micro-batches that share a
        step, whose losses are averaged.
        """
        super().__init__()
        self.embedding, self.blocks, self.head = embedding, nn.ModuleList(blocks), head
        self.repeated, self.parts = repeated, parts

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Hidden states, or on the last stage this micro-batch's part of the step's loss, shape
        (1,).
        """
        if self.embedding is not None:
            x = self.embedding(x)
        for place, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if place < self.repeated else block(x)
        if self.head is None:
            return x
        loss: Tensor = self.head(x, targets) / self.parts
        return loss


def _loss(output: Tensor, target: Tensor) -> Tensor:
    return output.sum()


Step = Callable[[Tensor, Tensor], Tensor | None]
"""Runs forward and backward of (sequences, s) tokens and targets; the loss where this rank has the
last stage.
"""


def alone(stage: nn.Module, count: int, spans: Spans) -> Step:
    """Without a pipeline: micro-batch after micro-batch; DDP reduces with the last one."""
    forward = timed(spans, "forward", 0, stage)
    backward = timed(spans, "backward", 0, lambda loss: loss.backward())

    def step(tokens: Tensor, targets: Tensor) -> Tensor:
        total = torch.zeros((), device=tokens.device)
        micro_batches = zip(tokens.chunk(count), targets.chunk(count), strict=True)
        for place, micro_batch in enumerate(micro_batches):
            if isinstance(stage, DistributedDataParallel):
                stage.require_backward_grad_sync = place == count - 1
            loss = forward(*micro_batch).sum()
            backward(loss)
            total += loss.detach()
        return total

    return step


def piped(
    stages: dict[int, nn.Module], request: dict[str, Any], pp: Any, hidden: Tensor, spans: Spans
) -> Step:
    """A pipeline of the request's schedule. stages: those of this rank, by index. hidden: the form
    of what stages hand on.
    """
    count, last = request["layout"]["m"], len(request["rank_of_stage"]) - 1
    device, length = hidden.device, request["recipe"]["seq_length"]
    # NOTE: tried torch's inference of forms from a first micro-batch: its trial backward pass
    # breaks DDP's count of gradients.
    inputs = {0: torch.zeros(hidden.shape[0], length, dtype=torch.int64, device=device)}
    outputs = {last: torch.zeros(1, device=device, requires_grad=True)}
    made = []
    for index, module in stages.items():
        stage = PipelineStage(
            module,
            index,
            last + 1,
            device,
            input_args=inputs.get(index, hidden),
            output_args=outputs.get(index, hidden),
            group=pp,
        )
        made.append(_watched(stage, spans))
    runner = _schedule(made, request, count)

    def step(tokens: Tensor, targets: Tensor) -> Tensor | None:
        begin = (tokens,) if 0 in stages else ()
        if last not in stages:
            runner.step(*begin, return_outputs=False)
            return None
        losses: list[Tensor] = []
        runner.step(*begin, return_outputs=False, target=targets, losses=losses, targets=targets)
        return torch.stack(losses).detach().sum()

    return step


def _watched(stage: Any, spans: Spans) -> Any:
    """The stage with its passes timed."""
    passes = (
        ("forward", "forward_one_chunk"),
        ("backward", "backward_one_chunk"),
        ("backward", "backward_weight_one_chunk"),
    )
    for part, name in passes:
        setattr(stage, name, timed(spans, part, stage.stage_index, getattr(stage, name)))
    return stage


def _schedule(stages: list[Any], request: dict[str, Any], count: int) -> Any:
    """torch's class of the schedule, or its runtime with the request's order."""
    if request["order"]:
        runtime: Any = schedules._PipelineScheduleRuntime
        runner = runtime(stages, count, loss_fn=_loss, scale_grads=False)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "order.csv"
            path.write_text(request["order"])
            runner._load_csv(str(path))
        return runner
    name = TORCH[request["layout"]["schedule"]]
    kind = getattr(schedules, name)
    return kind(stages[0] if name in _SINGLE else stages, count, loss_fn=_loss, scale_grads=False)
