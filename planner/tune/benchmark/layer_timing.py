"""Full-size layers in place of a plan that is larger than the machine: each stack's forward and
backward pass, timed in turn. Imported in child processes alone."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from planner.layout import RECOMPUTE_CODE, Layout
from planner.specs.recipe import Recipe
from planner.tune.benchmark.network import Block, Cut, Embedding, Head, cut_of, fill
from planner.tune.benchmark.parallel import Place, place, split
from planner.tune.benchmark.pipelined import Stage
from planner.tune.benchmark.timing import Spans, settle, taken, timed


def built(
    recipe: Recipe, layout: Layout, request: dict[str, Any], device: torch.device
) -> dict[str, nn.Module]:
    """The stacks by name. They share their modules: no more is held than the deepest stack and the
    ends.
    """
    here = place(Layout(tp=request["ranks"]), device)
    cut = cut_of(recipe, layout, request["ranks"], request["share"])
    blocks: dict[str, list[nn.Module]] = {}
    with torch.device(device):
        for piece in sorted(request["pieces"], key=lambda piece: piece["kind"]):
            stack = blocks.setdefault(piece["kind"], [])
            while len(stack) < piece["layers"]:
                stack.append(_put(Block(cut, piece["kind"] == "experts"), here, cut, len(stack)))
        ends = {
            "embedding": _put(Embedding(cut), here, cut),
            "head": _put(Head(cut), here, cut),
        }
    repeated = 0
    if layout.recompute == RECOMPUTE_CODE["full"] and request["recompute"]:
        repeated = max(map(len, blocks.values()))
    stacks: dict[str, nn.Module] = {}
    for piece in request["pieces"]:
        embedding, head = (ends[end] if piece.get(end) else None for end in ("embedding", "head"))
        layers = blocks[piece["kind"]][: piece["layers"]]
        stacks[piece["name"]] = Stage(embedding, layers, head, repeated, parts=1)
    return stacks


def _put(module: nn.Module, here: Place, cut: Cut, number: int = 0) -> nn.Module:
    fill(module, f"stack {number}", 0)
    split(module, here.tp, cut.sequence)
    return module


def measured(
    recipe: Recipe, layout: Layout, request: dict[str, Any], device: torch.device, report: Any
) -> dict[str, Any]:
    """Seconds of every stack's passes, the slowest rank's, `steps` of each; stacks take turns, so
    that what drifts falls on all alike.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, request["element"]))
    stacks = built(recipe, layout, request, device)
    pieces: dict[str, dict[str, Any]] = {}
    inputs: dict[str, tuple[Tensor, Tensor]] = {}
    for name, stack in stacks.items():
        pieces[name] = {"name": name, "forward_s": [], "backward_s": [], "kept_bytes": None}
        inputs[name] = _inputs(recipe, layout, request, device, stack)
    torch.set_default_dtype(before)
    spans = Spans(device.type == "cuda")
    steps_s: list[float] = []
    warmup = max(request["warmup"], 1)
    for turn in range(-warmup, request["steps"]):
        turn_s = 0.0
        for name, stack in stacks.items():
            forward_s, backward_s, kept_bytes = _pass(stack, *inputs[name], spans)
            turn_s += forward_s + backward_s
            if turn >= 0:
                pieces[name]["forward_s"].append(forward_s)
                pieces[name]["backward_s"].append(backward_s)
                pieces[name]["kept_bytes"] = kept_bytes
        if turn >= 0:
            steps_s.append(turn_s)
        report("step" if turn >= 0 else "warmup", warmup + turn, turn_s)
    return {"pieces": list(pieces.values()), "steps_s": steps_s}


def _inputs(
    recipe: Recipe, layout: Layout, request: dict[str, Any], device: torch.device, stack: Any
) -> tuple[Tensor, Tensor]:
    """What goes into a stack, and its targets."""
    sequences, length = layout.mbs, recipe.seq_length
    source = torch.Generator().manual_seed(request["seed"])
    tokens = torch.randint(recipe.model.vocab_size, (sequences, length), generator=source)
    tokens = tokens.to(device)
    if stack.embedding is not None:
        return tokens, tokens
    if layout.sp:
        length //= request["ranks"]
    hidden = torch.randn(sequences, length, recipe.model.hidden_size, generator=source)
    return hidden.to(device, getattr(torch, request["element"])), tokens


def _pass(
    stack: nn.Module, x: Tensor, targets: Tensor, spans: Spans
) -> tuple[float, float, float | None]:
    """Seconds of one forward and one backward pass, and the bytes that the device holds for the
    second (None on a CPU).

    Gradients add up from pass to pass, as from micro-batch to micro-batch.
    """
    if x.is_floating_point():
        x = x.detach().requires_grad_()
    dist.barrier()
    before = torch.cuda.memory_allocated() if spans.cuda else 0
    out = timed(spans, "forward", 0, stack)(x, targets)
    kept = float(torch.cuda.memory_allocated() - before) if spans.cuda else None
    gradient = torch.ones_like(out)
    timed(spans, "backward", 0, out.backward)(gradient)
    settle(spans.cuda)
    seconds = taken(spans)
    slowest = torch.tensor(
        [seconds["forward", 0], seconds["backward", 0]], dtype=torch.float64, device=x.device
    )
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest[0]), float(slowest[1]), kept
