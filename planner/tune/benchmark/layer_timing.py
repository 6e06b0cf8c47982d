"""Full-size layers in place of a plan that is larger than the machine: each stack's forward and
backward pass, timed in turn. Imported in child processes alone."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from planner.cost.params.layer import padded_vocab
from planner.layout import RECOMPUTE_CODE, Layout, module_names
from planner.specs.recipe import Recipe
from planner.tune.benchmark.network import Block, Cut, Embedding, Head, fill
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
    cut = _cut(recipe, layout, request)
    depth = max(piece["layers"] for piece in request["pieces"])
    kinds = {piece["kind"] for piece in request["pieces"]}
    with torch.device(device):
        blocks = {
            kind: [
                _put(Block(cut, kind == "experts"), here, cut, number) for number in range(depth)
            ]
            for kind in sorted(kinds)
        }
        embedding, head = _put(Embedding(cut), here, cut), _put(Head(cut), here, cut)
    repeated = depth if layout.recompute == RECOMPUTE_CODE["full"] and request["recompute"] else 0

    def stack(piece: dict[str, Any]) -> Stage:
        ends = embedding if piece.get("embedding") else None, head if piece.get("head") else None
        return Stage(ends[0], blocks[piece["kind"]][: piece["layers"]], ends[1], repeated, parts=1)

    return {piece["name"]: stack(piece) for piece in request["pieces"]}


def _cut(recipe: Recipe, layout: Layout, request: dict[str, Any]) -> Cut:
    modules = (
        module_names(layout.recompute_modules)
        if layout.recompute == RECOMPUTE_CODE["selective"]
        else ()
    )
    return Cut(
        recipe.model,
        int(padded_vocab(recipe.model, layout.tp)),
        tp=request["ranks"],
        share=request["share"],
        ep=layout.ep,
        sequence=bool(layout.sp) and request["ranks"] > 1,
        recompute=frozenset(modules),
    )


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
    inputs = {
        name: _inputs(recipe, layout, request, device, stack) for name, stack in stacks.items()
    }
    torch.set_default_dtype(before)
    spans = Spans(device.type == "cuda")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in stacks}
    kept_bytes: dict[str, float | None] = {}
    warmup = max(request["warmup"], 1)
    for turn in range(warmup + request["steps"]):
        for name, stack in stacks.items():
            *took, kept_bytes[name] = _pass(stack, *inputs[name], spans)
            times[name].append((took[0], took[1]))
        turn_s = sum(sum(times[name][-1]) for name in stacks)
        report("step" if turn >= warmup else "warmup", turn, turn_s)
    kept = {name: list(zip(*all_turns[warmup:], strict=True)) for name, all_turns in times.items()}
    pieces = [
        {"name": name, "forward_s": forward, "backward_s": backward, "kept_bytes": kept_bytes[name]}
        for name, (forward, backward) in kept.items()
    ]
    steps = [
        sum(sum(times[name][turn]) for name in stacks)
        for turn in range(warmup, warmup + request["steps"])
    ]
    return {"pieces": pieces, "steps_s": steps}


def _inputs(
    recipe: Recipe, layout: Layout, request: dict[str, Any], device: torch.device, stack: Any
) -> tuple[Tensor, Tensor]:
    """What goes into a stack, and its targets."""
    sequences, length = layout.mbs, recipe.seq_length
    source = torch.Generator().manual_seed(request["seed"])
    tokens = torch.randint(recipe.model.vocab_size, (sequences, length), generator=source).to(
        device
    )
    if stack.embedding is not None:
        return tokens, tokens
    here = length // request["ranks"] if layout.sp else length
    return (
        torch.randn(sequences, here, recipe.model.hidden_size, generator=source).to(
            device, getattr(torch, request["element"])
        ),
        tokens,
    )


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
