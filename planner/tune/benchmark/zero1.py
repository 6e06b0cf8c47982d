"""Gradients summed over the ranks that share them, and Adam on flat fp32 copies, whole or as shards
(ZeRO-1). Imported in child processes alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

BUCKET = 64 * 2**20
"""Elements that are flattened and reduced at once."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Parameters whose gradients are reduced together, and the flat fp32 copy that Adam moves."""

    parameters: tuple[nn.Parameter, ...]
    main: nn.Parameter
    group: dist.ProcessGroup | None
    """Sums gradients; None: they are whole already."""
    divisor: int
    sharded: bool
    """main is this rank's slice of the padded whole."""


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def buckets(
    parameters: Iterable[nn.Parameter],
    group: dist.ProcessGroup | None,
    divisor: int,
    sharded: bool,
    numel: int = BUCKET,
) -> list[Bucket]:
    """Parameters in order, cut where `numel` elements are full."""
    return [
        _bucket(part, group, divisor, sharded and group is not None)
        for part in _cut(parameters, numel)
    ]


def _cut(parameters: Iterable[nn.Parameter], numel: int) -> Iterator[tuple[nn.Parameter, ...]]:
    part: list[nn.Parameter] = []
    for parameter in parameters:
        if (
            part
            and sum(local(member).numel() for member in part) + local(parameter).numel() > numel
        ):
            yield tuple(part)
            part = []
        part.append(parameter)
    if part:
        yield tuple(part)


def _bucket(
    part: tuple[nn.Parameter, ...], group: dist.ProcessGroup | None, divisor: int, sharded: bool
) -> Bucket:
    flat = _flat([local(parameter.data) for parameter in part], group if sharded else None)
    mine = flat.chunk(group.size())[group.rank()].clone() if sharded and group else flat
    return Bucket(part, nn.Parameter(mine), group, divisor, sharded)


def _flat(tensors: list[Tensor], group: dist.ProcessGroup | None) -> Tensor:
    """One fp32 vector; padded so that the group's ranks get equal slices."""
    flat = torch.cat([tensor.detach().reshape(-1).float() for tensor in tensors])
    pad = -flat.numel() % (group.size() if group else 1)
    return torch.nn.functional.pad(flat, (0, pad)) if pad else flat


def whole_gradients(parameters: Iterable[nn.Parameter], tp: dist.ProcessGroup) -> None:
    """Sums what each tensor-parallel rank has in part: norms under sequence parallelism, the
    router, plain experts.
    """
    marked = []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if (
            isinstance(parameter.grad, DTensor)
            and isinstance(parameter, DTensor)
            and parameter.grad.placements != parameter.placements
        ):
            parameter.grad = parameter.grad.redistribute(
                parameter.device_mesh, parameter.placements
            )
        elif getattr(parameter, "tp_partial", False):
            marked.append(local(parameter.grad))
    if marked and tp.size() > 1:
        flat = torch.cat([gradient.reshape(-1) for gradient in marked])
        dist.all_reduce(flat, group=tp)
        for gradient, part in zip(
            marked, torch.split(flat, [gradient.numel() for gradient in marked]), strict=True
        ):
            gradient.copy_(part.view_as(gradient))


def reduce(bucket: Bucket) -> None:
    """Gradients of the bucket's parameters to the gradient of its fp32 copy; they are freed."""
    group = bucket.group
    missing = [parameter for parameter in bucket.parameters if parameter.grad is None]
    for parameter in missing:
        parameter.grad = torch.zeros_like(parameter)
    flat = _flat(
        [local(parameter.grad) for parameter in bucket.parameters if parameter.grad is not None],
        group if bucket.sharded else None,
    )
    for parameter in bucket.parameters:
        parameter.grad = None
    if bucket.sharded and group:
        mine = torch.empty_like(bucket.main)
        dist.reduce_scatter_tensor(mine, flat, group=group)
        flat = mine
    elif group:
        dist.all_reduce(flat, group=group)
    bucket.main.grad = flat.div_(bucket.divisor)


def spread(bucket: Bucket) -> None:
    """The moved fp32 copy back into the parameters, gathered from the shards."""
    flat, group = bucket.main.data, bucket.group
    if bucket.sharded and group:
        first = local(bucket.parameters[0].data)
        gathered = torch.empty(flat.numel() * group.size(), dtype=first.dtype, device=flat.device)
        dist.all_gather_into_tensor(gathered, flat.to(first.dtype), group=group)
        flat = gathered
    sizes = [local(parameter.data).numel() for parameter in bucket.parameters]
    for parameter, part in zip(
        bucket.parameters, torch.split(flat[: sum(sizes)], sizes), strict=True
    ):
        target = local(parameter.data)
        target.copy_(part.view_as(target))


def optimizer(parameters: Iterable[nn.Parameter], name: str, rate: float) -> torch.optim.Optimizer:
    """Adam with decoupled decay; or plain descent, whose steps show the size of a gradient."""
    kind: Any = {"adam": torch.optim.AdamW, "descent": torch.optim.SGD}[name]
    made: torch.optim.Optimizer = kind(list(parameters), lr=rate)
    return made
