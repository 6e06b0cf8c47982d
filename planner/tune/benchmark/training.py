"""A rank's part of the plan's model, its optimizer, and a training step of both. Imported in child
processes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from planner.cost.pipeline import stage_layers
from planner.layout import RECOMPUTE_CODE, Layout
from planner.specs.layers import has_experts
from planner.specs.recipe import Recipe
from planner.tune.benchmark import zero1
from planner.tune.benchmark.network import Block, Embedding, Head, cut_of, fill
from planner.tune.benchmark.parallel import Place, ahead, replicate, shard, split
from planner.tune.benchmark.pipelined import Stage, Step, alone, piped
from planner.tune.benchmark.timing import Spans, timed
from planner.tune.torch_support import may_ddp


@dataclass(frozen=True, slots=True)
class Training:
    """What a rank needs for a step."""

    passes: Step
    update: Callable[[], None]
    """Reduces what gradients are not yet reduced, and moves the weights."""


def stages(
    recipe: Recipe, layout: Layout, request: dict[str, Any], where: Place
) -> dict[int, nn.Module]:
    """This rank's stages by index, filled, split and sharded; one block at a time, so that never
    more than one is whole.
    """
    cut = cut_of(recipe, layout, layout.tp, ep_group=where.experts)
    narrow = getattr(torch, request["element"])

    def put(module: nn.Module, name: str) -> nn.Module:
        fill(module, name, request["seed"])
        split(module, where.tp, cut.sequence)
        if layout.zero >= 2 and isinstance(module, Block):
            shard(module, where, layout.zero, narrow)
        return module

    out: dict[int, nn.Module] = {}
    layers = [int(count) for count in np.asarray(stage_layers(recipe, layout).total)]
    for index, rank in enumerate(request["rank_of_stage"]):
        if rank != where.pp_rank:
            continue
        begin, blocks, embedding, head = sum(layers[:index]), [], None, None
        with torch.device(where.device):
            for layer in range(begin, begin + layers[index]):
                block = Block(cut, has_experts(recipe.model, layer))
                blocks.append(put(block, f"layer {layer}"))
            if index == 0:
                embedding = put(Embedding(cut), "embedding")
            if index == len(layers) - 1:
                head = put(Head(cut), "head")
        stage: nn.Module = Stage(
            embedding, blocks, head, _repeated(layout, layers[index]), layout.m
        )
        if layout.zero >= 2:
            shard(stage, where, layout.zero, narrow)
            ahead(blocks, recipe.switches.get("prefetch_layers", 0))
        if by_ddp(recipe, layout):
            stage = replicate(stage, where, recipe.switches.get("bucket_cap_mb"))
        out[index] = stage
    return out


def _repeated(layout: Layout, layers: int) -> int:
    if layout.recompute != RECOMPUTE_CODE["full"]:
        return 0
    return min(layout.recompute_layers or layers, layers)


def by_ddp(recipe: Recipe, layout: Layout) -> bool:
    """Whether gradients are reduced by DDP, beside the backward pass, and not after it."""
    return may_ddp(recipe, layout) and bool(recipe.switches.get("overlap_reduce", True))


def training(
    recipe: Recipe, layout: Layout, request: dict[str, Any], where: Place, spans: Spans
) -> Training:
    """Builds model, pipeline and optimizer of this rank; every rank calls it."""
    before = torch.get_default_dtype()
    # fully_shard keeps weights wide and narrows what it gathers
    element = "float32" if layout.zero >= 2 else request["element"]
    torch.set_default_dtype(getattr(torch, element))
    mine = stages(recipe, layout, request, where)
    torch.set_default_dtype(before)
    parameters = list(nn.ModuleList(mine.values()).parameters())
    if layout.pp == 1:
        passes = alone(mine[0], layout.m, spans)
    else:
        passes = piped(mine, request, where.pp, _hidden(recipe, layout, request, where), spans)
    return Training(
        passes,
        _update(recipe, layout, parameters, where, spans, (request["optimizer"], request["rate"])),
    )


def _hidden(recipe: Recipe, layout: Layout, request: dict[str, Any], where: Place) -> Tensor:
    """The form of what one stage hands to the next."""
    length = recipe.seq_length // (layout.tp if layout.sp else 1)
    shape = layout.mbs, length, recipe.model.hidden_size
    return torch.zeros(
        shape, dtype=getattr(torch, request["element"]), device=where.device, requires_grad=True
    )


def _update(
    recipe: Recipe,
    layout: Layout,
    parameters: list[nn.Parameter],
    where: Place,
    spans: Spans,
    moves: tuple[str, float],
) -> Callable[[], None]:
    tp = where.tp.get_group()
    if layout.zero >= 2:
        mover = zero1.optimizer(parameters, *moves)

        def sharded() -> None:
            timed(spans, "reduction", 0, zero1.whole_gradients)(parameters, tp)
            timed(spans, "optimizer", 0, mover.step)()
            mover.zero_grad(set_to_none=True)

        return sharded
    experts: list[nn.Parameter] = []
    shared: list[nn.Parameter] = []
    for parameter in parameters:
        (experts if hasattr(parameter, "first_expert") else shared).append(parameter)
    group, divisor, alike = None, 1, None
    if layout.dp > 1 and not by_ddp(recipe, layout):
        group, divisor = where.dp.get_group(), layout.dp
    if where.alike.size() > 1:
        alike = where.alike
    shards = layout.zero >= 1
    numel = recipe.switches.get("reduce_bucket_numel", zero1.BUCKET)
    parts = zero1.buckets(shared, group, divisor, shards, numel)
    parts += zero1.buckets(experts, alike, layout.dp, shards, numel)
    moved = zero1.optimizer([bucket.main for bucket in parts], *moves)

    def update() -> None:
        timed(spans, "reduction", 0, zero1.whole_gradients)(shared, tp)
        for bucket in parts:
            timed(spans, "reduction", 0, zero1.reduce)(bucket)
        timed(spans, "optimizer", 0, moved.step)()
        for bucket in parts:
            timed(spans, "reduction", 0, zero1.spread)(bucket)

    return update


def batch(recipe: Recipe, layout: Layout, where: Place, seed: int) -> tuple[Tensor, Tensor]:
    """(mbs m, s) tokens and the ones that follow them: this rank's of one global batch, the same in
    every layout and step.
    """
    source = torch.Generator().manual_seed(seed)
    tokens = torch.randint(
        recipe.model.vocab_size, (layout.gbs, recipe.seq_length + 1), generator=source
    )
    mine = tokens.chunk(layout.dp)[where.dp_rank].to(where.device)
    return mine[:, :-1].contiguous(), mine[:, 1:].contiguous()


def mean_loss(loss: Tensor | None, where: Place) -> float:
    """The step's loss over all data-parallel ranks, known to every rank."""
    total_and_count = [0.0, 0.0] if loss is None else [float(loss), 1.0]
    both = torch.tensor(total_and_count, device=where.device)
    dist.all_reduce(both)
    return float(both[0] / both[1])
