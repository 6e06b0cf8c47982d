"""Cross entropy over a vocabulary that tensor-parallel ranks share: no rank ever holds all logits.
Imported in child processes alone.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class _SplitLoss(torch.autograd.Function):
    """Three small all-reduces forward, none backward."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, group: dist.ProcessGroup | None
    ) -> Tensor:
        """Losses of (b, s) targets from this rank's columns of (b, s, vocabulary) logits."""
        wide = logits.float()
        most = _added(wide.amax(-1), group, dist.ReduceOp.MAX)
        wide = (wide - most.unsqueeze(-1)).exp_()
        total = _added(wide.sum(-1), group)
        rows = logits.shape[-1]
        local = targets
        if group is not None:
            local = targets - rows * dist.get_rank(group)
        here = (local >= 0) & (local < rows)
        local = local.clamp(0, rows - 1).unsqueeze(-1)
        chosen = (logits.gather(-1, local).squeeze(-1).float() - most) * here
        chosen = _added(chosen, group)
        wide /= total.unsqueeze(-1)
        ctx.save_for_backward(wide.to(logits.dtype), local, here)
        return total.log() - chosen

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        share, local, here = ctx.saved_tensors
        inner = share.scatter_add(-1, local, -here.unsqueeze(-1).to(share.dtype))
        return inner * gradients[0].unsqueeze(-1).to(share.dtype), None, None


def _added(x: Tensor, group: dist.ProcessGroup | None, how: Any = dist.ReduceOp.SUM) -> Tensor:
    if group is not None:
        dist.all_reduce(x, how, group=group)
    return x


def vocabulary_loss(logits: Tensor, targets: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """(b, s) losses in fp32; without a group the rank has the whole vocabulary (targets beyond its
    rows count as its first ones).
    """
    if group is None:
        targets = targets % logits.shape[-1]
    losses: Tensor = _SplitLoss.apply(logits, targets, group)  # type: ignore[no-untyped-call]
    return losses
