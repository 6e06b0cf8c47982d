"""MLPs: a dense one, and experts whose tokens are sent to the rank that holds them. Imported in
child processes alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn import functional

from planner.specs.model import ModelSpec


def _squared_relu(x: Tensor) -> Tensor:
    return functional.relu(x).square()


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "silu": functional.silu,
    "relu": functional.relu,
    "squared_relu": _squared_relu,
    "quick_gelu": _quick_gelu,
}


class Mlp(nn.Module):
    """Two matrices, or three with a gate."""

    def __init__(self, hidden: int, width: int, gated: bool, activation: str, bias: bool) -> None:
        super().__init__()
        self.act = ACTIVATIONS[activation]
        self.gate = nn.Linear(hidden, width, bias=bias) if gated else None
        self.up = nn.Linear(hidden, width, bias=bias)
        self.down = nn.Linear(width, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.up(x)
        inner = self.act(inner) if self.gate is None else self.act(self.gate(x)) * inner
        out: Tensor = self.down(inner)
        return out


class Experts(nn.Module):
    """Routed experts, whole on their rank, and shared ones. No token is dropped, no loss balances
    them.
    """

    def __init__(
        self, model: ModelSpec, share: int, ep: int, group: dist.ProcessGroup | None
    ) -> None:
        super().__init__()
        assert model.moe is not None
        moe, hidden = model.moe, model.hidden_size
        self.moe, self.ep, self.group, self.act = moe, ep, group, ACTIVATIONS[model.activation]
        self.local = moe.num_experts // ep
        width = moe.expert_ffn_size
        self.router = nn.Linear(hidden, moe.num_experts, bias=moe.router_bias == "linear")
        first = self.local * dist.get_rank(group) if group else 0

        def weights(rows: int, columns: int) -> nn.Parameter:
            made = nn.Parameter(torch.empty(self.local, rows, columns))
            made.first_expert = first  # type: ignore[attr-defined]
            return made

        self.gate = weights(width, hidden) if model.gated_mlp else None
        self.up = weights(width, hidden)
        self.down = weights(hidden, width)
        self.shared: Mlp | None = None
        shared = moe.shared_ffn_size // share
        if shared:
            self.shared = Mlp(hidden, shared, model.gated_mlp, model.activation, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        weights, chosen = self.route(flat)
        order = chosen.flatten().argsort(stable=True)
        copies = flat[order // self.moe.experts_per_token]
        counts = torch.bincount(chosen.flatten(), minlength=self.moe.num_experts)
        if self.group is None:
            done = self.run(copies, self.here(counts))
        else:
            done = self.exchanged(copies, counts, self.group)
        back = torch.zeros_like(done).index_copy(0, order, done)
        weighted = back.view(*chosen.shape, -1) * weights.unsqueeze(-1).to(back.dtype)
        out: Tensor = weighted.sum(1).reshape(x.shape)
        return out if self.shared is None else out + self.shared(x)

    def route(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """(tokens, k) weights and experts."""
        logits, k = self.router(flat).float(), self.moe.experts_per_token
        if self.moe.router_score == "softmax":
            best, chosen = logits.topk(k)
            return best.softmax(-1), chosen
        softmax_first = self.moe.router_score == "softmax_first"
        scores = logits.softmax(-1) if softmax_first else logits.sigmoid()
        best, chosen = scores.topk(k)
        return best * self.moe.router_scale, chosen

    def here(self, counts: Tensor) -> list[int]:
        """Tokens of each local expert; a lone device's experts stand in for those of the ranks that
        are not here.
        """
        local_counts: list[int] = counts.view(self.ep, self.local).sum(0).tolist()
        return local_counts

    def exchanged(self, copies: Tensor, counts: Tensor, group: dist.ProcessGroup) -> Tensor:
        """Tokens to the ranks of their experts, through these, and back."""
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=group)
        sent = counts.view(self.ep, self.local).sum(1).tolist()
        come = theirs.view(self.ep, self.local).sum(1).tolist()
        arrived = all_to_all_single_autograd(copies, come, sent, group)
        experts = torch.arange(self.local, device=copies.device).repeat(self.ep)
        order = experts.repeat_interleave(theirs).argsort(stable=True)
        done = self.run(arrived[order], self.here(theirs))
        restored = torch.zeros_like(done).index_copy(0, order, done)
        out: Tensor = all_to_all_single_autograd(restored, sent, come, group)
        return out

    def run(self, tokens: Tensor, counts: list[int]) -> Tensor:
        """Each expert on its run of tokens."""
        out = []
        for expert, part in enumerate(torch.split(tokens, counts)):
            inner = functional.linear(part, self.up[expert])
            if self.gate is None:
                inner = self.act(inner)
            else:
                inner = self.act(functional.linear(part, self.gate[expert])) * inner
            out.append(functional.linear(inner, self.down[expert]))
        return torch.cat(out)
