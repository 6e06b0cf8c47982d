"""The benchmark's transformer in plain torch modules, full size before any split. Imported in child
processes alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from planner.cost.params.layer import padded_vocab
from planner.layout import RECOMPUTE_CODE, Layout, module_names
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.tune.benchmark.mlp import Experts, Mlp
from planner.tune.benchmark.vocab_parallel_loss import vocabulary_loss

INITIAL_SPREAD = 0.02


@dataclass(frozen=True, slots=True)
class Cut:
    """What of the model a process builds, and what its backward pass repeats."""

    model: ModelSpec
    vocab_size: int
    """Rows of embedding and head, padded as the framework pads them."""
    tp: int = 1
    """Ranks that DTensor splits the modules over after they are built."""
    share: int = 1
    """A lone device builds 1/share of every matrix."""
    ep: int = 1
    ep_group: torch.distributed.ProcessGroup | None = None
    """None with ep > 1: a lone device runs its share of the experts, with as many tokens as would
    be sent to it.
    """
    sequence: bool = False
    """Sequence parallelism: activations between blocks are slices of the sequence."""
    recompute: frozenset[str] = frozenset()
    """Modules whose forward pass is repeated: core_attn, layernorm, mlp, moe."""

    @property
    def kv_heads(self) -> int:
        return max(self.model.num_kv_heads, self.tp * self.share)


def cut_of(
    recipe: Recipe,
    layout: Layout,
    tp: int,
    share: int = 1,
    ep_group: torch.distributed.ProcessGroup | None = None,
) -> Cut:
    """What a rank of a layout builds, split over so many tensor-parallel ranks."""
    modules: list[str] = []
    if layout.recompute == RECOMPUTE_CODE["selective"]:
        modules = module_names(layout.recompute_modules)
    return Cut(
        recipe.model,
        int(padded_vocab(recipe.model, layout.tp)),
        tp,
        share,
        layout.ep,
        ep_group,
        sequence=bool(layout.sp) and tp > 1,
        recompute=frozenset(modules),
    )


def again(cut: Cut, module: str, run: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Runs it; where the module is recomputed, its inputs alone are kept."""
    if module in cut.recompute and torch.is_grad_enabled():
        kept: Tensor = checkpoint(run, *inputs, use_reentrant=False)
        return kept
    return run(*inputs)


def norm(model: ModelSpec, width: int) -> nn.Module:
    if model.norm == "rmsnorm":
        return nn.RMSNorm(width, eps=1e-5)
    return nn.LayerNorm(width, bias=model.norm == "layernorm")


def norm_or_none(model: ModelSpec, wanted: bool) -> nn.Module:
    return norm(model, model.hidden_size) if wanted else nn.Identity()


class Attention(nn.Module):
    """Grouped-query attention; under tensor parallelism each rank sees its own heads."""

    def __init__(self, cut: Cut) -> None:
        super().__init__()
        model, bias = cut.model, cut.model.attention_bias
        self.cut, self.head_dim = cut, model.head_dim
        queries, keys = model.query_size // cut.share, cut.kv_heads * model.head_dim // cut.share
        self.wq = nn.Linear(model.hidden_size, queries, bias=bias != "none")
        self.wk = nn.Linear(model.hidden_size, keys, bias=bias != "none")
        self.wv = nn.Linear(model.hidden_size, keys, bias=bias != "none")
        self.wo = nn.Linear(queries, model.hidden_size, bias=bias == "qkvo")
        self.q_norm: nn.Module = nn.Identity()
        self.k_norm: nn.Module = nn.Identity()
        if model.qk_norm:
            self.q_norm = nn.RMSNorm(model.head_dim, eps=1e-5)
            self.k_norm = nn.RMSNorm(model.head_dim, eps=1e-5)
        mark(self.q_norm, cut.tp > 1)
        mark(self.k_norm, cut.tp > 1)

    def forward(self, x: Tensor) -> Tensor:
        heads = (-1, self.head_dim)
        query = self.q_norm(self.wq(x).unflatten(-1, heads))
        key = self.k_norm(self.wk(x).unflatten(-1, heads))
        value = self.wv(x).unflatten(-1, heads)
        if self.cut.model.position == "rope":
            query, key = rotated(query, self.cut.model), rotated(key, self.cut.model)
        out = again(self.cut, "core_attn", core, query, key, value)
        mixed: Tensor = self.wo(out.flatten(-2))
        return mixed


def core(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """(b, s, heads, d) each; keys and values may have fewer heads."""
    out = functional.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        is_causal=True,
        enable_gqa=query.shape[2] != key.shape[2],
    )
    return out.transpose(1, 2)


def rotated(x: Tensor, model: ModelSpec) -> Tensor:
    """Rotary positions on the first rotary_share of each head of (b, s, heads, d)."""
    width = int(x.shape[-1] * model.rotary_share) // 2 * 2
    turned, rest = x[..., :width], x[..., width:]
    places = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)
    speeds = model.rope_theta ** (
        -torch.arange(0, width, 2, device=x.device, dtype=torch.float32) / width
    )
    angle = torch.outer(places, speeds)[:, None, :]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = turned.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


class Block(nn.Module):
    """A layer: attention, then a dense MLP or experts, each added to its input."""

    def __init__(self, cut: Cut, experts: bool) -> None:
        super().__init__()
        model = cut.model
        before, after = model.norm_place != "after", model.norm_place != "before"
        self.cut = cut
        self.attention_norm = norm_or_none(model, before)
        self.attention = Attention(cut)
        self.attention_after = norm_or_none(model, after)
        self.mlp_norm = norm_or_none(model, before)
        self.mlp: nn.Module
        if experts:
            self.kind, self.mlp = "moe", Experts(model, cut.share, cut.ep, cut.ep_group)
            mark(self.mlp, cut.sequence)
        else:
            width, bias = model.ffn_size // cut.share, model.mlp_bias
            self.kind = "mlp"
            self.mlp = Mlp(model.hidden_size, width, model.gated_mlp, model.activation, bias)
        self.mlp_after = norm_or_none(model, after)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention_after(
            self.attention(again(self.cut, "layernorm", self.attention_norm, x))
        )
        y = again(self.cut, self.kind, self.mlp, again(self.cut, "layernorm", self.mlp_norm, x))
        added: Tensor = x + self.mlp_after(y)
        return added


class Embedding(nn.Module):
    """Token ids to hidden states: under sequence parallelism the rank's slice of them."""

    def __init__(self, cut: Cut) -> None:
        super().__init__()
        model = cut.model
        self.rows = cut.vocab_size // cut.share
        self.tokens = nn.Embedding(self.rows, model.hidden_size)
        self.positions: nn.Embedding | None = None
        if model.position == "learned":
            self.positions = nn.Embedding(model.position_rows, model.hidden_size)
            mark(self.positions, cut.sequence)
        self.norm = norm_or_none(model, model.embedding_norm)
        mark(self.norm, cut.sequence)
        self.first = 0
        """Place of this rank's slice among those of the tensor-parallel group."""

    def forward(self, ids: Tensor) -> Tensor:
        x: Tensor = self.tokens(ids % self.rows)
        if self.positions:
            begin = self.first * x.shape[1]
            x = x + self.positions(torch.arange(begin, begin + x.shape[1], device=x.device))
        normed: Tensor = self.norm(x)
        return normed


class Head(nn.Module):
    """Final norm, the product with the vocabulary, and the loss over the split vocabulary."""

    def __init__(self, cut: Cut) -> None:
        super().__init__()
        self.norm = norm(cut.model, cut.model.hidden_size)
        self.output = nn.Linear(cut.model.hidden_size, cut.vocab_size // cut.share, bias=False)
        self.group: torch.distributed.ProcessGroup | None = None

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of (b, s) targets, shape (1,)."""
        logits = self.output(self.norm(x))
        return vocabulary_loss(logits, targets, self.group).mean().reshape(1)


def mark(module: nn.Module, partial: bool) -> None:
    """Says of plain parameters whether each tensor-parallel rank has only a part of their
    gradient.
    """
    for parameter in module.parameters():
        parameter.tp_partial = partial  # type: ignore[attr-defined]


def fill(module: nn.Module, name: str, seed: int) -> None:
    """Weights that depend on the parameter's name in the whole model alone, so that every layout
    starts from the same ones.
    """
    for path, parameter in module.named_parameters():
        first = getattr(parameter, "first_expert", None)
        with torch.no_grad():
            if parameter.dim() == 1:
                parameter.fill_(float(not path.endswith("bias")))
            elif first is None:
                _draw(parameter, f"{seed} {name} {path}")
            else:
                for place, expert in enumerate(parameter):
                    _draw(expert, f"{seed} {name} {path} {first + place}")


def _draw(weights: Tensor, word: str) -> None:
    source = torch.Generator(weights.device).manual_seed(zlib.crc32(word.encode()))
    weights.normal_(0.0, INITIAL_SPREAD, generator=source)
