"""A rank's part of the plan's model, its optimizer, and a training step of both. Imported in child
processes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from planner.cost.params.layer import padded_vocab
from planner.cost.pipeline import stage_layers
from planner.layout import RECOMPUTE_CODE, Layout, module_names
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.tune.benchmark import zero1
from planner.tune.benchmark.network import Block, Cut, Embedding, Head, fill
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


def has_experts(model: ModelSpec, layer: int) -> bool:
    moe = model.moe
    return moe is not None and layer >= moe.first_dense_layers and (layer + 1) % moe.moe_every == 0


def cut(recipe: Recipe, layout: Layout, where: Place) -> Cut:
    modules = (
        module_names(layout.recompute_modules)
        if layout.recompute == RECOMPUTE_CODE["selective"]
        else ()
    )
    return Cut(
        recipe.model,
        int(padded_vocab(recipe.model, layout.tp)),
        tp=layout.tp,
        ep=layout.ep,
        ep_group=where.experts,
        sequence=bool(layout.sp) and layout.tp > 1,
        recompute=frozenset(modules),
    )


def stages(
    recipe: Recipe, layout: Layout, request: dict[str, Any], where: Place
) -> dict[int, nn.Module]:
    """This rank's stages by index, filled, split and sharded; one block at a time, so that never
    more than one is whole.
    """
    layers = [int(count) for count in stage_layers(recipe, layout)]
    what, total, narrow = (
        cut(recipe, layout, where),
        len(layers),
        getattr(torch, request["element"]),
    )

    def put(module: nn.Module, name: str) -> nn.Module:
        fill(module, name, request["seed"])
        split(module, where.tp, what.sequence)
        if layout.zero >= 2 and isinstance(module, Block):
            shard(module, where, layout.zero, narrow)
        return module

    out: dict[int, nn.Module] = {}
    for index in (i for i, rank in enumerate(request["rank_of_stage"]) if rank == where.pp_rank):
        begin = sum(layers[:index])
        with torch.device(where.device):
            blocks = [
                put(Block(what, has_experts(recipe.model, i)), f"layer {i}")
                for i in range(begin, begin + layers[index])
            ]
            embedding = put(Embedding(what), "embedding") if index == 0 else None
            head = put(Head(what), "head") if index == total - 1 else None
        stage = Stage(embedding, blocks, head, _repeated(layout, layers[index]), layout.m)
        if layout.zero >= 2:
            shard(stage, where, layout.zero, narrow)
            ahead(blocks, recipe.switches.get("prefetch_layers", 0))
        out[index] = (
            replicate(stage, where, recipe.switches.get("bucket_cap_mb"))
            if by_ddp(recipe, layout)
            else stage
        )
    return out


def _repeated(layout: Layout, layers: int) -> int:
    if layout.recompute != RECOMPUTE_CODE["full"]:
        return 0
    return min(layout.recompute_layers, layers) if layout.recompute_layers else layers


def by_ddp(recipe: Recipe, layout: Layout) -> bool:
    """Whether gradients are reduced by DDP, beside the backward pass, and not after it."""
    return may_ddp(recipe, layout) and bool(recipe.switches.get("overlap_reduce", True))


def training(
    recipe: Recipe, layout: Layout, request: dict[str, Any], where: Place, spans: Spans
) -> Training:
    """Builds model, pipeline and optimizer of this rank; every rank calls it."""
    before = torch.get_default_dtype()
    # fully_shard keeps weights wide and narrows what it gathers
    torch.set_default_dtype(
        torch.float32 if layout.zero >= 2 else getattr(torch, request["element"])
    )
    mine = stages(recipe, layout, request, where)
    torch.set_default_dtype(before)
    parameters = [parameter for module in mine.values() for parameter in module.parameters()]
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
    experts = [
        parameter
        for parameter in parameters
        if hasattr(parameter, "first_expert") and layout.zero < 2
    ]
    shared = [
        parameter
        for parameter in parameters
        if not hasattr(parameter, "first_expert") or layout.zero >= 2
    ]
    if layout.zero >= 2:
        mover = zero1.optimizer(parameters, *moves)

        def sharded() -> None:
            timed(spans, "reduction", 0, zero1.whole_gradients)(parameters, tp)
            timed(spans, "optimizer", 0, mover.step)()
            mover.zero_grad(set_to_none=True)

        return sharded
    group = where.dp.get_group() if layout.dp > 1 and not by_ddp(recipe, layout) else None
    numel = recipe.switches.get("reduce_bucket_numel", zero1.BUCKET)
    parts = zero1.buckets(shared, group, layout.dp if group else 1, layout.zero >= 1, numel)
    parts += zero1.buckets(
        experts, where.alike if where.alike.size() > 1 else None, layout.dp, layout.zero >= 1, numel
    )
    moved = zero1.optimizer((bucket.main for bucket in parts), *moves)

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
    have = loss is not None
    both = torch.tensor(
        [float(loss) if loss is not None else 0.0, float(have)], device=where.device
    )
    dist.all_reduce(both)
    return float(both[0] / both[1])
