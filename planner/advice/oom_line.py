"""What an out-of-memory message asked for: the tensors of a launch whose size is the printed one,
to its last digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.advice.measured import in_gib
from planner.cost.params.layer import (
    embedding_params,
    head_params,
    layer_params,
    routed_layer_params,
    total_params,
)
from planner.cost.terms import Estimate
from planner.errors import InputError
from planner.intake.logs.oom import Oom, parse
from planner.interpret.interpret import Launch
from planner.interpret.megatron_model import padded
from planner.specs.layers import kinds
from planner.units import GIB, MIB

BLOCK = 2 * MIB
"""The caching allocator asks for large tensors in multiples of this, and prints what it asks for.
"""
NEAR_SHARE = 0.01
"""A size this close is named as near where none matches to the digit."""
MAX_MATCHES = 6


@dataclass(frozen=True, slots=True)
class Tensor:
    """Something that takes memory at once."""

    name: str
    arithmetic: str
    """Factors by name and value, as a person would check them."""
    size_bytes: float
    counted: bool = False
    """A count of parameters: published sizes and padding may move it by a little."""


def matches(launch: Launch, text: str, estimate: Estimate | None) -> dict[str, Any]:
    """The message taken apart, and the tensors that match, exact ones first, then those within 1%.

    Raises InputError when the text is no such message.
    """
    message = parse(text)
    if message is None:
        raise InputError(
            "--oom must be the message of an out-of-memory error or a size such as '16.83 GiB',"
            f" but got {text[:80]!r}"
        )
    requested = message.requested_bytes
    if requested is None or not launch.sized:
        why = "the model is not known; --model NAME supplies it"
        if requested is None:
            why = "the message names no size"
        return {**_message(message), "matches": [], "says": why}
    low, high = message.ranges["requested_bytes"]
    ranked = sorted(
        (
            (_distance(tensor, low, high, requested), at, tensor)
            for at, tensor in enumerate(tensors(launch, estimate))
        ),
        key=lambda item: item[:2],
    )
    close = [(off, tensor) for off, _, tensor in ranked if off <= NEAR_SHARE]
    kept = [pair for pair in close if pair[0] == 0.0] or close
    return {
        **_message(message),
        "matches": [_match(off, tensor) for off, tensor in kept[:MAX_MATCHES]],
    }


def _distance(tensor: Tensor, low: float, high: float, requested: float) -> float:
    """0 when the tensor prints as the message does, itself or as the allocator rounds it; else how
    far it is from the figure.
    """
    rounded = -(-tensor.size_bytes // BLOCK) * BLOCK
    exact = low <= tensor.size_bytes <= high or low <= rounded <= high
    return (
        0.0
        if exact
        else abs(tensor.size_bytes / requested - 1) + (0.0 if tensor.counted else NEAR_SHARE / 2)
    )


def _match(off: float, tensor: Tensor) -> dict[str, Any]:
    return {
        "tensor": tensor.name,
        "arithmetic": f"{tensor.arithmetic} = {_size(tensor.size_bytes)}",
        "bytes": tensor.size_bytes,
        "exact": off == 0.0,
    }


def _size(size: float) -> str:
    return f"{size / GIB:.2f} GiB" if size >= GIB else f"{size / MIB:.2f} MiB"


def _message(message: Oom) -> dict[str, Any]:
    names = ("requested_bytes", "total_bytes", "allocated_bytes", "reserved_bytes", "free_bytes")
    return {
        "message": message.text[:400],
        **{name.replace("_bytes", "_gib"): in_gib(getattr(message, name)) for name in names},
    }


def tensors(launch: Launch, estimate: Estimate | None) -> Iterator[Tensor]:
    """What a launch allocates in one piece, the likeliest first."""
    yield from _logits(launch)
    yield from _states(launch, estimate)
    yield from _experts(launch)
    yield from _unpartitioned(launch)
    yield from _scores(launch)
    yield from _matrices(launch)
    yield from _activations(launch)


def _logits(launch: Launch) -> Iterator[Tensor]:
    model, layout = launch.recipe.model, launch.layout
    tokens, tp = float(launch.recipe.tokens_per_rank(layout)), layout.tp
    unit = int(launch.plain.get("make_vocab_size_divisible_by") or 128)
    rows = (
        padded(model.vocab_size, unit, tp)
        if launch.recipe.framework == "megatron" or tp > 1
        else model.vocab_size
    )
    rows = int(launch.plain.get("padded_vocab_size") or rows)
    for label, each in (("fp32", 4), ("16-bit", 2)):
        split = f" / tp {tp}" if tp > 1 else ""
        yield Tensor(
            f"{label} logits",
            f"s {launch.recipe.seq_length} * b {layout.mbs} * V_pad {rows}{split} * {each}",
            tokens * rows / tp * each,
        )
        if tp > 1:
            yield Tensor(
                f"{label} logits gathered over tp",
                f"s {launch.recipe.seq_length} * b {layout.mbs} * V_pad {rows} * {each}",
                float(tokens * rows * each),
            )


def _states(launch: Launch, estimate: Estimate | None) -> Iterator[Tensor]:
    """Flat buffers over all parameters: of the whole model under ZeRO, of a rank under Megatron."""
    layout, total = launch.layout, total_params(launch.recipe.model)
    ranks = layout.dp * layout.cp
    if layout.zero and launch.recipe.framework != "megatron":
        shards = ranks
        for label, each in (("one fp32 flat shard", 4), ("one 16-bit flat shard", 2)):
            yield Tensor(
                label, f"{each} * {total:,} parameters / {shards}", each * total / shards, True
            )
    if layout.zero >= 2:
        return  # no rank holds more than its shard of these
    for held in sorted(
        {stage.params for stage in estimate.stages} if estimate else set(), reverse=True
    ):
        for label, each in (("flattened 16-bit gradients", 2), ("fp32 main gradients", 4)):
            yield Tensor(
                f"{label} of a rank",
                f"{each} * {held:,} parameters a GPU",
                float(each * held),
                True,
            )
        if ranks > 1:
            yield Tensor(
                "one fp32 shard of the optimizer",
                f"4 * {held:,} parameters a GPU / {ranks}",
                4 * held / ranks,
                True,
            )


def _experts(launch: Launch) -> Iterator[Tensor]:
    model, layout = launch.recipe.model, launch.layout
    if model.moe is None:
        return
    moe, branches = model.moe, model.mlp_matrices
    layers = (model.num_layers - moe.first_dense_layers) // moe.moe_every
    routed = layers * moe.num_experts * branches * model.hidden_size * moe.expert_ffn_size
    split = layout.pp * layout.ep * layout.etp
    for label, each in (("16-bit", 2), ("fp32", 4)):
        yield Tensor(
            f"all local expert weights, {label}",
            f"{routed:,} expert parameters / (pp {layout.pp} * ep {layout.ep} * etp "
            f"{layout.etp}) * {each}",
            routed / split * each,
            True,
        )
        local = moe.num_experts // layout.ep
        yield Tensor(
            f"experts of one layer, first products, {label}",
            f"{local} experts * {branches - 1} * h {model.hidden_size} * "
            f"{moe.expert_ffn_size} / etp {layout.etp} * {each}",
            local * (branches - 1) * model.hidden_size * moe.expert_ffn_size / layout.etp * each,
        )
    copies = float(launch.recipe.tokens_per_rank(layout)) * moe.experts_per_token
    yield Tensor(
        "tokens sorted by expert",
        f"s {launch.recipe.seq_length} * b {layout.mbs} / cp {layout.cp} * top"
        f" {moe.experts_per_token} * h {model.hidden_size} * 2",
        copies * model.hidden_size * 2.0,
    )
    [layer, *_] = (
        int(layer_params(kind) + routed_layer_params(kind))
        for kind in kinds(model).values()
        if kind.moe
    )
    yield Tensor(
        "one layer with its experts, 16-bit",
        f"{layer:,} parameters * 2",
        2.0 * layer,
        True,
    )


def _unpartitioned(launch: Launch) -> Iterator[Tensor]:
    total = total_params(launch.recipe.model)
    for label, each in (("16-bit", 2), ("fp32", 4)):
        yield Tensor(
            f"the whole model, {label}: nothing is partitioned",
            f"{each} * {total:,} parameters",
            float(each * total),
            True,
        )


def _scores(launch: Launch) -> Iterator[Tensor]:
    model, layout, length = launch.recipe.model, launch.layout, launch.recipe.seq_length
    for label, each in (("16-bit", 2), ("fp32", 4)):
        yield Tensor(
            f"attention scores, {label}",
            f"b {layout.mbs} * heads {model.num_heads} / tp {layout.tp} * s {length} * s {length} *"
            f" {each}",
            layout.mbs * model.num_heads / layout.tp * length * length * each,
        )


def _matrices(launch: Launch) -> Iterator[Tensor]:
    model, tp = launch.recipe.model, launch.layout.tp
    h = model.hidden_size
    shapes = [
        ("an MLP matrix", f"{model.ffn_size} x {h}", model.ffn_size * h),
        ("both branches of an MLP", f"2 x {model.ffn_size} x {h}", 2 * model.ffn_size * h),
        ("the query matrix", f"{model.query_size} x {h}", model.query_size * h),
        ("the embedding table", f"{model.vocab_size} x {h}", model.vocab_size * h),
    ]
    for label, each in (("16-bit", 2), ("fp32", 4)):
        for name, shape, count in shapes:
            yield Tensor(f"{name}, {label}, unsharded", f"{shape} * {each}", float(count * each))
            if tp > 1:
                yield Tensor(
                    f"{name}, {label}, a rank's part",
                    f"{shape} / tp {tp} * {each}",
                    count / tp * each,
                )
        ends = max(float(embedding_params(model, tp)), float(head_params(model, launch.layout)))
        yield Tensor(
            f"embedding or head as padded, {label}",
            f"{ends:,.0f} parameters a GPU * {each}",
            ends * each,
            True,
        )


def _activations(launch: Launch) -> Iterator[Tensor]:
    model, layout = launch.recipe.model, launch.layout
    tokens = float(launch.recipe.tokens_per_rank(layout))
    lead = f"s {launch.recipe.seq_length} * b {layout.mbs} / cp {layout.cp}"
    branches = 2 if model.gated_mlp else 1
    for label, each in (("16-bit", 2), ("fp32", 4)):
        yield Tensor(
            f"hidden states, {label}",
            f"{lead} * h {model.hidden_size} * {each}",
            float(tokens * model.hidden_size * each),
        )
        yield Tensor(
            f"the MLP's activations, {label}",
            f"{lead} * {branches} * {model.ffn_size} / tp {layout.tp} * {each}",
            tokens * branches * model.ffn_size / layout.tp * each,
        )
