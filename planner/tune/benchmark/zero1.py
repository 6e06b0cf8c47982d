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
    out = []
    for part in _cut(parameters, numel):
        flat = _flat([local(parameter.data) for parameter in part])
        if sharded and group is not None:
            flat = _padded(flat, group).chunk(group.size())[group.rank()].clone()
        main = nn.Parameter(flat)
        out.append(Bucket(part, main, group, divisor, sharded and group is not None))
    return out


def _cut(parameters: Iterable[nn.Parameter], numel: int) -> Iterator[tuple[nn.Parameter, ...]]:
    part: list[nn.Parameter] = []
    count = 0
    for parameter in parameters:
        size = local(parameter).numel()
        if part and count + size > numel:
            yield tuple(part)
            part, count = [], 0
        part.append(parameter)
        count += size
    if part:
        yield tuple(part)


def _flat(tensors: list[Tensor]) -> Tensor:
    """One fp32 vector of all elements."""
    return torch.cat([tensor.detach().reshape(-1).float() for tensor in tensors])


def _padded(flat: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Long enough that the group's ranks get equal slices."""
    missing = -flat.numel() % group.size()
    return torch.nn.functional.pad(flat, (0, missing)) if missing else flat


def _gradient(parameter: nn.Parameter) -> Tensor:
    return local(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)


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
        _copy(flat, marked)


def _copy(flat: Tensor, targets: list[Tensor]) -> None:
    """A vector's elements into tensors, one after the other; padding at its end is left."""
    begin = 0
    for target in targets:
        target.copy_(flat[begin : begin + target.numel()].view_as(target))
        begin += target.numel()


def reduce(bucket: Bucket) -> None:
    """Gradients of the bucket's parameters to the gradient of its fp32 copy; they are freed."""
    group = bucket.group
    flat = _flat([_gradient(parameter) for parameter in bucket.parameters])
    for parameter in bucket.parameters:
        parameter.grad = None
    if bucket.sharded and group:
        mine = torch.empty_like(bucket.main)
        flat = _padded(flat, group)
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
    _copy(flat, [local(parameter.data) for parameter in bucket.parameters])


def optimizer(parameters: Iterable[nn.Parameter], name: str, rate: float) -> torch.optim.Optimizer:
    """Adam with decoupled decay; or plain descent, whose steps show the size of a gradient."""
    kind: Any = {"adam": torch.optim.AdamW, "descent": torch.optim.SGD}[name]
    made: torch.optim.Optimizer = kind(list(parameters), lr=rate)
    return made
