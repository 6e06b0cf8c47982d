"""Trains a decoder-only transformer on random tokens under DeepSpeed: the flags say what the model
is, the JSON how it is split.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.nn.functional as F
from deepspeed.accelerator import get_accelerator
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

NORMS = {
    "rmsnorm": nn.RMSNorm,
    "layernorm": nn.LayerNorm,
    "layernorm_nobias": lambda width: nn.LayerNorm(width, bias=False),
}
ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "squared_relu": lambda x: F.relu(x).square()}


def options() -> argparse.Namespace:
    """The model, and how long to run."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in (
        "num-layers",
        "hidden-size",
        "ffn-size",
        "num-heads",
        "num-kv-heads",
        "head-dim",
        "vocab-size",
        "seq-length",
    ):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--activation", choices=ACTIVATIONS, default="silu")
    parser.add_argument("--norm", choices=NORMS, default="rmsnorm")
    parser.add_argument("--position", choices=("rope", "learned", "alibi", "none"), default="rope")
    parser.add_argument("--rope-theta", type=float, default=10_000.0)
    parser.add_argument("--attention-bias", choices=("none", "qkv", "qkvo"), default="none")
    for name in (
        "gated-mlp",
        "mlp-bias",
        "qk-norm",
        "tied-embeddings",
        "unfused-attention",
        "liger-loss",
    ):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--pipeline-stages", type=int, default=1)
    parser.add_argument(
        "--recompute-layers",
        type=int,
        default=0,
        help="of each stage: layers whose activations are not kept",
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--local_rank",
        type=int,
        default=-1,
        help="the deepspeed launcher's; read from the environment",
    )
    deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def rotated(x: Tensor, theta: float) -> Tensor:
    """Rotary embedding of (batch, sequence, heads, width)."""
    half = x.shape[-1] // 2
    rates = theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)[:, None] * rates
    cos, sin = (f(angles)[:, None, :].to(x.dtype) for f in (torch.cos, torch.sin))
    left, right = x[..., :half], x[..., half:]
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def slopes(heads: int) -> Tensor:
    """ALiBi: a geometric sequence; what is beyond a power of two lies between."""
    power = 2 ** int(math.log2(heads))
    first = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return torch.tensor(first + [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)])


class Core(nn.Module):
    """Causal attention over whole sequences of some heads: (batch, sequence, heads, width)."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.args = args

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Tensor:
        if self.args.position == "rope":
            q, k = rotated(q, self.args.rope_theta), rotated(k, self.args.rope_theta)
        groups = q.shape[2] // k.shape[2]
        q, k, v = (
            x.transpose(1, 2)
            for x in (q, k.repeat_interleave(groups, 2), v.repeat_interleave(groups, 2))
        )
        bias = self.bias(q)
        if self.args.unfused_attention:
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            out = (scores if bias is None else scores + bias).masked_fill(
                hidden, float("-inf")
            ).softmax(-1) @ v
        else:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None)
        return out.transpose(1, 2).contiguous()

    def bias(self, q: Tensor) -> Tensor | None:
        """What ALiBi adds to the scores, the mask included."""
        if self.args.position != "alibi":
            return None
        at = torch.arange(q.shape[2], device=q.device)
        behind = (at[None, :] - at[:, None]).float()
        # Where neighbours share the heads, by Ulysses or tensor parallelism, this rank has its own
        # of them.
        first = torch.distributed.get_rank() % (self.args.num_heads // q.shape[1]) * q.shape[1]
        bias = (
            slopes(self.args.num_heads).to(q.device)[first : first + q.shape[1], None, None]
            * behind
        )
        return bias.masked_fill(behind > 0, float("-inf")).to(q.dtype)


class Attention(nn.Module):
    """Projections around the core; with a sequence group heads are exchanged for tokens
    (Ulysses).
    """

    def __init__(self, args: argparse.Namespace, group: Any) -> None:
        super().__init__()
        h, d = args.hidden_size, args.head_dim
        self.d, self.ranks = d, 1 if group is None else torch.distributed.get_world_size(group)
        qkv_bias = args.attention_bias != "none"
        self.q_proj = nn.Linear(h, args.num_heads * d, bias=qkv_bias)
        self.k_proj = nn.Linear(h, args.num_kv_heads * d, bias=qkv_bias)
        self.v_proj = nn.Linear(h, args.num_kv_heads * d, bias=qkv_bias)
        self.o_proj = nn.Linear(args.num_heads * d, h, bias=args.attention_bias == "qkvo")
        self.q_norm, self.k_norm = (
            (nn.RMSNorm(d), nn.RMSNorm(d)) if args.qk_norm else (nn.Identity(), nn.Identity())
        )
        self.core: nn.Module = Core(args)
        if group is not None:
            from deepspeed.sequence.layer import DistributedAttention

            self.core = DistributedAttention(self.core, group, scatter_idx=2, gather_idx=1)

    def forward(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        q, k, v = (
            proj(x).view(b, s, -1, self.d) for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = self.q_norm(q), self.k_norm(k)
        if self.ranks == 1:
            return self.o_proj(self.core(q, k, v).view(b, s, -1))
        copies = max(self.ranks // k.shape[2], 1)
        k, v = k.repeat_interleave(copies, 2), v.repeat_interleave(copies, 2)
        return self.o_proj(self.core(q, k, v, 0).reshape(b, s, -1))


class Mlp(nn.Module):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        h, f, bias = args.hidden_size, args.ffn_size, args.mlp_bias
        self.gate_proj = nn.Linear(h, f, bias=bias) if args.gated_mlp else None
        self.up_proj = nn.Linear(h, f, bias=bias)
        self.down_proj = nn.Linear(f, h, bias=bias)
        self.activation = ACTIVATIONS[args.activation]

    def forward(self, x: Tensor) -> Tensor:
        up = self.up_proj(x)
        return self.down_proj(
            self.activation(up)
            if self.gate_proj is None
            else self.activation(self.gate_proj(x)) * up
        )


class Block(nn.Module):
    """One layer; PipelineModule counts these to balance its stages."""

    def __init__(self, args: argparse.Namespace, index: int, group: Any = None) -> None:
        super().__init__()
        of_stage = index % (args.num_layers // args.pipeline_stages)
        self.again = of_stage < args.recompute_layers
        self.attention_norm, self.mlp_norm = (
            NORMS[args.norm](args.hidden_size),
            NORMS[args.norm](args.hidden_size),
        )
        self.attention, self.mlp = Attention(args, group), Mlp(args)

    def layer(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))

    def forward(self, x: Tensor) -> Tensor:
        # ZeRO-3 gathers weights in module hooks, which the reentrant form runs again as they are.
        return (
            checkpoint(self.layer, x, use_reentrant=True)
            if self.again and self.training
            else self.layer(x)
        )


class Embedding(nn.Module):
    def __init__(self, args: argparse.Namespace, first: int = 0) -> None:
        super().__init__()
        self.token = nn.Embedding(args.vocab_size, args.hidden_size)
        self.place = (
            nn.Embedding(args.seq_length, args.hidden_size) if args.position == "learned" else None
        )
        self.first = first
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        if self.place is None:
            return self.token(tokens)
        return self.token(tokens) + self.place(
            self.first + torch.arange(tokens.shape[1], device=tokens.device)
        )


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


class Model(nn.Module):
    """All layers on every rank, as ZeRO, AutoTP and Ulysses have them."""

    def __init__(self, args: argparse.Namespace, group: Any, first: int) -> None:
        super().__init__()
        self.embedding = Embedding(args, first)
        self.blocks = nn.ModuleList(Block(args, index, group) for index in range(args.num_layers))
        self.norm = NORMS[args.norm](args.hidden_size)
        self.lm_head = nn.Linear(args.hidden_size, args.vocab_size, bias=False)
        if args.tied_embeddings:
            self.lm_head.weight = self.embedding.token.weight
        self.head_and_loss = None
        if args.liger_loss:  # needs the package liger-kernel
            from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

            self.head_and_loss = LigerFusedLinearCrossEntropyLoss()

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        if self.head_and_loss is None:
            return loss_of(self.lm_head(self.norm(x)), labels)
        # The kernel never holds all logits; ZeRO-3 gathers the weight as it is read.
        rows = self.norm(x).flatten(0, 1)
        return self.head_and_loss(self.lm_head.weight, rows, labels.flatten())


def pipeline(args: argparse.Namespace) -> PipelineModule:
    """Stages of equally many blocks; embedding and head stand at the ends."""
    blocks = [LayerSpec(Block, args, index) for index in range(args.num_layers)]
    norm = LayerSpec(NORMS[args.norm], args.hidden_size)
    ends: list[Any] = [
        LayerSpec(Embedding, args),
        LayerSpec(nn.Linear, args.hidden_size, args.vocab_size, bias=False),
    ]
    if args.tied_embeddings:
        kind, tied = ("token", Embedding, args), {"tied_weight_attr": ["token.weight"]}
        head = TiedLayerSpec(
            *kind, forward_fn=lambda module, x: F.linear(x, module.token.weight), **tied
        )
        ends = [TiedLayerSpec(*kind, **tied), head]
    layers = [ends[0], *blocks, norm, ends[1]]
    return PipelineModule(
        layers, num_stages=args.pipeline_stages, loss_fn=loss_of, partition_method="type:Block"
    )


def engine_of(args: argparse.Namespace, config: dict[str, Any]) -> Any:
    """The engine and, with Ulysses, the module that knows the groups."""
    if args.pipeline_stages > 1:
        model = pipeline(args)
        return deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config=config
        )[0]
    mpu, group, first, sequence_ranks = None, None, 0, config.get("sequence_parallel_size", 1)
    if sequence_ranks > 1:
        from deepspeed.runtime.sequence_parallel import parallel_state_sp as mpu

        mpu.initialize_sequence_parallel(sequence_ranks)
        group = mpu.get_sequence_parallel_group()
        first = mpu.get_sequence_parallel_rank() * args.seq_length // sequence_ranks
    sharded = config["zero_optimization"]["stage"] == 3
    split = config.get("tensor_parallel", {}).get("autotp_size", 1) > 1
    # A model that tensor parallelism will split may not fit a device whole.
    where = torch.device(
        "cpu" if split and not sharded else get_accelerator().current_device_name()
    )
    with where, deepspeed.zero.Init(config_dict_or_path=config, mpu=mpu, enabled=sharded):
        model = Model(args, group, first)
    return deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config, mpu=mpu
    )[0]


def batches(args: argparse.Namespace, config: dict[str, Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """Random tokens and labels; ranks that share tensor-parallel layers get the same."""
    rank = torch.distributed.get_rank() // config.get("tensor_parallel", {}).get("autotp_size", 1)
    numbers = torch.Generator().manual_seed(rank)
    shape = (
        config["train_micro_batch_size_per_gpu"],
        args.seq_length // config.get("sequence_parallel_size", 1),
    )
    device = get_accelerator().current_device_name()
    while True:
        drawn = torch.randint(args.vocab_size, (2, *shape), generator=numbers).to(device)
        yield drawn[0], drawn[1]


def step(
    args: argparse.Namespace,
    config: dict[str, Any],
    engine: Any,
    data: Iterator[tuple[Tensor, Tensor]],
) -> float:
    """One step of the optimizer; returns the loss of the last micro-batch, or of all in a
    pipeline.
    """
    if args.pipeline_stages > 1:
        return float(engine.train_batch(data_iter=data))
    for tokens, labels in itertools.islice(data, config["gradient_accumulation_steps"]):
        loss = engine(tokens, labels)
        # Gradients are summed over the ranks of a sequence, each of which has the mean of its
        # tokens.
        engine.backward(loss / config.get("sequence_parallel_size", 1))
        engine.step()
    return float(loss.detach())


def for_cpu(config: dict[str, Any]) -> None:
    """Without a GPU nothing is compiled: torch's Adam, and collectives of gloo in place of
    DeepSpeed's own.
    """
    if config["optimizer"]["type"] == "AdamW":
        config["optimizer"]["params"]["torch_adam"] = True
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def introduce(engine: Any) -> None:
    """A line of every rank: what it holds, and how DeepSpeed understood the configuration."""
    own = sum(getattr(p, "ds_numel", p.numel()) for p in engine.module.parameters())
    print(
        f"rank {torch.distributed.get_rank()}: {own:,} parameters, zero"
        f" {int(engine.zero_optimization_stage())}, {engine.gradient_accumulation_steps()}"
        f" micro-batches of {engine.train_micro_batch_size_per_gpu()}",
        flush=True,
    )


def main() -> None:
    args = options()
    config = json.loads(Path(args.deepspeed_config).read_text())
    if get_accelerator().device_name() == "cpu":
        for_cpu(config)
    deepspeed.init_distributed()
    torch.manual_seed(1)
    engine, data = engine_of(args, config), batches(args, config)
    introduce(engine)
    world = torch.distributed.get_world_size()
    share = (
        args.pipeline_stages
        * config.get("sequence_parallel_size", 1)
        * config.get("tensor_parallel", {}).get("autotp_size", 1)
    )
    sequences = (
        config["train_micro_batch_size_per_gpu"]
        * config["gradient_accumulation_steps"]
        * world
        // share
    )
    for number in range(1, args.steps + 1):
        get_accelerator().synchronize()
        started = time.perf_counter()
        loss = step(args, config, engine, data)
        get_accelerator().synchronize()
        seconds = time.perf_counter() - started
        if torch.distributed.get_rank() == world - 1:
            rate = sequences * args.seq_length / seconds / world
            held = get_accelerator().max_memory_allocated() / 2**30
            print(
                f"step {number}/{args.steps} | {seconds:.4f} s | {rate:,.0f} tokens/s/GPU | loss"
                f" {loss:.4f} | peak {held:.2f} GiB",
                flush=True,
            )
    engine.destroy()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
