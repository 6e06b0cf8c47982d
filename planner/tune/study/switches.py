"""Overlap switches and bucket sizes as knobs: what a runner may be told of a layout, and which
setting is tried next.

The cost model says nothing of them (its prior is no effect), so they are tried one at a time, on
the fastest measured layouts alone; what is not faster by more than the noise is not kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from planner.cost.params.layer import total_params
from planner.emit import deepspeed_config
from planner.emit import switches as emitted
from planner.layout import Layout
from planner.specs.megatron import sharded_by_torch
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Switches, Value
from planner.tune import torch_support

Choices = dict[str, tuple[Value, ...]]
"""Of each switch that changes something: what holds without it, then what else is worth a run; the
most promising switch first.
"""
Offers = Callable[[Layout, Switches], Choices]
"""The choices of a layout under some switches."""

DDP_MIB = 25
"""torch's bucket_cap_mb."""
REDUCE_NUMEL = 64 * 2**20
"""Elements that the torch benchmark flattens and reduces at once."""
MEGATRON_BUCKET, MEGATRON_BUCKET_A_RANK = 40_000_000, 1_000_000
"""Elements of Megatron's buckets: the larger of the first, and the second times the data-parallel
ranks.
"""
TIMES = 4
"""How much larger or smaller the sizes are that are tried."""


def none(layout: Layout, now: Switches) -> Choices:
    return {}


def offers(recipe: Recipe, runner: str, devices: int) -> Offers:
    """The choices of a runner; none of a layout that is larger than the machine, of which only
    layers run.
    """
    of = {"torch": _torch, "deepspeed": _deepspeed, "megatron": _megatron}[runner]

    def offered(layout: Layout, now: Switches) -> Choices:
        if layout.gpus > devices:
            return {}
        return {word: values for word, values in of(recipe, layout, now).items() if len(values) > 1}

    return offered


def settings(layout: Layout, now: Switches, offered: Offers) -> Iterator[dict[str, Value]]:
    """Every setting that differs from the present one in a switch; what would then change nothing
    is left out.
    """
    for word, values in offered(layout, now).items():
        for value in values:
            if value == now.get(word, values[0]):
                continue
            yield effective(layout, {**now, word: value}, offered)


def effective(layout: Layout, setting: Switches, offered: Offers) -> dict[str, Value]:
    """Of a setting what changes something: neither words of another software nor what holds
    anyway.
    """
    choices = offered(layout, setting)
    return {
        name: value
        for name, value in setting.items()
        if name in choices and value != choices[name][0]
    }


def text(switches: Mapping[str, Any]) -> str:
    """The same text for the same setting; empty for none."""
    return json.dumps(dict(switches), sort_keys=True) if switches else ""


def _weights(recipe: Recipe, layout: Layout) -> int:
    """Parameters of a rank, about."""
    return -(-total_params(recipe.model) // int(layout.tp * layout.pp))


def _sizes(usual: int, total: int) -> tuple[int, ...]:
    """The usual size and others that make another number of pieces of the whole; where it is one
    piece, a quarter of it.
    """
    if usual >= total:
        quarter = -(-total // TIMES)
        return (usual, quarter) if 1 <= quarter < total else (usual,)
    larger, smaller = usual * TIMES, usual // TIMES
    return (usual, larger, smaller) if smaller >= 1 else (usual, larger)


def _torch(recipe: Recipe, layout: Layout, now: Switches) -> Choices:
    if layout.dp == 1:
        return {}
    out: Choices = {}
    if layout.zero >= 2:
        if recipe.model.num_layers // int(layout.pp * layout.v) > 1:
            out["prefetch_layers"] = (0, 1, 2)
        return out
    weights = _weights(recipe, layout)
    if torch_support.may_ddp(recipe, layout):
        out["overlap_reduce"] = (True, False)
        if now.get("overlap_reduce", True):
            out["bucket_cap_mb"] = _sizes(DDP_MIB, -(-weights * 4 // 2**20))
            return out
    out["reduce_bucket_numel"] = _sizes(REDUCE_NUMEL, weights)
    return out


def _deepspeed(recipe: Recipe, layout: Layout, now: Switches) -> Choices:
    """Of the words that its JSON has for the layout those that change something; a pipeline reduces
    after its last micro-batch.
    """
    plain: dict[str, Any] = deepspeed_config.zero(
        recipe.model_copy(update={"switches": {}}), layout
    )
    if layout.zero == 0 or layout.dp * layout.cp == 1:
        return {}
    weights = _weights(recipe, layout)
    out: Choices = {}
    if layout.pp == 1:
        out["overlap_comm"] = (plain["overlap_comm"], not plain["overlap_comm"])
    for word in ("reduce_bucket_size", "allgather_bucket_size", "stage3_prefetch_bucket_size"):
        if word in plain:
            out[word] = _sizes(plain[word], weights)
    if layout.pp > 1 and recipe.precision == "bf16":
        # the pipeline's own optimizer reduces in pieces of a fixed size
        out.pop("reduce_bucket_size")
    if layout.zero == 3:
        out["stage3_prefetch_bucket_size"] += (0,)
    if layout.zero == 2 and not layout.offload:
        out["contiguous_gradients"] = (True, False)
    return out


def _megatron(recipe: Recipe, layout: Layout, now: Switches) -> Choices:
    """Megatron's own sharding beyond the optimizer's states must overlap and has sizes of its
    own.
    """
    plain = recipe.model_copy(update={"switches": {}})
    written = {flag[0] for flag in emitted.flags(plain, layout)}
    out: Choices = {}
    ranks = int(layout.dp * layout.cp)
    if layout.zero < 2 and ranks > 1 and not sharded_by_torch(recipe, layout):
        grads = "--overlap-grad-reduce" in written
        out["overlap_grad_reduce"] = (grads, not grads)
        if now.get("overlap_grad_reduce", grads):
            out["ddp_bucket_size"] = _sizes(
                max(MEGATRON_BUCKET, MEGATRON_BUCKET_A_RANK * ranks), _weights(recipe, layout)
            )
            if layout.zero == 1:
                gathers = recipe.software.overlap.param_share > 0
                out["overlap_param_gather"] = (gathers, not gathers)
    if layout.v > 1 and layout.pp > 2:  # two stages that send to each other both ways must overlap
        sends = "--no-overlap-p2p-communication" not in written
        out["overlap_p2p_comm"] = (sends, not sends)
    if layout.sp and layout.tp > 1:
        splits = "--tp-comm-overlap" in written
        out["tp_comm_overlap"] = (splits, not splits)
    return out
