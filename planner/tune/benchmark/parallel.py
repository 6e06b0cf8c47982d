"""A rank's place among the others, and its modules split over them: DTensor for tensor and sequence
parallelism, DDP or fully_shard for data parallelism. Imported in child processes alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from planner.layout import Layout
from planner.tune.benchmark.network import Block, Embedding, Head

_WHOLE = Replicate()


@dataclass(frozen=True, slots=True)
class Place:
    """Where this rank stands; tensor-parallel neighbours come first in the order of ranks, then
    data-parallel ones, then stages.
    """

    device: torch.device
    tp: DeviceMesh
    dp: DeviceMesh
    pp: dist.ProcessGroup
    pp_rank: int
    dp_rank: int
    experts: dist.ProcessGroup | None
    """Ranks among which this one's experts are spread; None where ep is 1."""
    alike: dist.ProcessGroup
    """Ranks with the same experts as this one."""


def place(layout: Layout, device: torch.device) -> Place:
    """Makes the process groups of a layout; every rank calls it."""
    mesh = init_device_mesh(
        device.type, (layout.pp, layout.dp, layout.tp), mesh_dim_names=("pp", "dp", "tp")
    )
    experts, alike = _expert_groups(layout)
    return Place(
        device,
        mesh["tp"],
        mesh["dp"],
        mesh["pp"].get_group(),
        mesh["pp"].get_local_rank(),
        mesh["dp"].get_local_rank(),
        experts,
        alike,
    )


def _expert_groups(layout: Layout) -> tuple[dist.ProcessGroup | None, dist.ProcessGroup]:
    """Experts are spread over neighbours within a stage, tensor-parallel ones first, as Megatron
    spreads them.
    """
    stage, ep = layout.dp * layout.tp, layout.ep
    experts, alike = None, None

    def group(members: range, mine: Any) -> Any:
        """Every rank makes every group, and keeps the one that it is in."""
        made = dist.new_group(list(members))
        return made if dist.get_rank() in members else mine

    for base in range(0, layout.gpus, stage):
        if ep > 1:
            for first in range(base, base + stage, ep):
                experts = group(range(first, first + ep), experts)
        for first in range(base, base + ep):
            alike = group(range(first, base + stage, ep), alike)
    assert alike is not None
    return experts, alike


def split(module: nn.Module, mesh: DeviceMesh, sequence: bool) -> None:
    """Tensor parallelism of a block, an embedding or a head, in place. Weights are taken as they
    lie on each rank.
    """
    if mesh.size() == 1:
        return
    edge = Shard(1) if sequence else _WHOLE
    if isinstance(module, Block):
        plan = _block(module, edge)
    elif isinstance(module, Embedding):
        module.first = mesh.get_local_rank() if sequence else 0
        plan = {"tokens": RowwiseParallel(input_layouts=_WHOLE, output_layouts=edge)}
    else:
        assert isinstance(module, Head)
        module.group = mesh.get_group()
        plan = {"output": ColwiseParallel(input_layouts=edge)}
        if sequence:
            plan["norm"] = SequenceParallel()
    parallelize_module(module, mesh, plan, src_data_rank=None)


def _block(block: Block, edge: Any) -> dict[str, ParallelStyle]:
    """Columns going in, rows coming out; between them one gather and one reduction each way."""
    inward = PrepareModuleInput(input_layouts=(edge,), desired_input_layouts=(_WHOLE,))
    outward = RowwiseParallel(output_layouts=edge)
    plan: dict[str, ParallelStyle] = {
        "attention": inward,
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": outward,
    }
    mlp = "mlp" if block.kind == "mlp" else "mlp.shared"
    if block.kind == "mlp" or block.mlp.shared is not None:
        plan |= {
            mlp: inward,
            f"{mlp}.up": ColwiseParallel(),
            f"{mlp}.gate": ColwiseParallel(),
            f"{mlp}.down": outward,
        }
    if edge != _WHOLE:
        plan |= {
            "attention_norm": SequenceParallel(),
            "mlp_norm": SequenceParallel(use_local_output=block.kind == "moe"),
            "attention_after": SequenceParallel(use_local_output=True),
            "mlp_after": SequenceParallel(use_local_output=True),
        }
    modules = dict(block.named_modules())
    for name in list(plan):
        if isinstance(modules.get(name), nn.Identity | None):
            del plan[name]
    return plan


def shard(module: nn.Module, where: Place, zero: int, dtype: torch.dtype) -> None:
    """fully_shard of a block or of a whole stage: weights in fp32, gathered and computed in dtype;
    zero 2 keeps them gathered.
    """
    narrow = None if dtype == torch.float32 else dtype
    policy = MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=torch.float32)
    partial = [getattr(parameter, "tp_partial", False) for parameter in module.parameters()]
    fully_shard(module, mesh=where.dp, reshard_after_forward=zero >= 3, mp_policy=policy)
    for parameter, mark in zip(module.parameters(), partial, strict=True):  # new objects
        parameter.tp_partial = mark  # type: ignore[attr-defined]


def ahead(blocks: list[Any], layers: int) -> None:
    """Weights of so many layers are asked for before a layer runs, in both directions; 0 leaves it
    to fully_shard, which asks for the next while one runs, in the backward pass alone."""
    if layers == 0:
        return
    for place, block in enumerate(blocks):
        block.set_modules_to_forward_prefetch(blocks[place + 1 : place + 1 + layers])
        block.set_modules_to_backward_prefetch(blocks[max(place - layers, 0) : place][::-1])


def replicate(module: nn.Module, where: Place, bucket_mib: int | None = None) -> nn.Module:
    """DDP: gradients are averaged in buckets beside the last backward pass; None: torch's size of a
    bucket.
    """
    return DistributedDataParallel(
        module,
        process_group=where.dp.get_group(),
        gradient_as_bucket_view=True,
        bucket_cap_mb=bucket_mib,
    )
