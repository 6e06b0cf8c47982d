"""Rules of every framework: degrees, GPUs, batch, and how the model's widths split."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.layout import SCHEDULES, Layout, Layouts, Mask
from planner.rules import experts
from planner.rules.rule import Rule, divides, near_divisors, try_knob
from planner.specs.recipe import Recipe

DEGREES = ("tp", "pp", "dp", "cp", "ep", "etp", "v", "mbs", "m", "hpz", "cp_a2a")
COUNTS = ("group", "recompute_layers", "first_layers", "last_layers")


def _positive(recipe: Recipe, layout: Layouts) -> Mask:
    ok: Any = True
    for name in DEGREES:
        ok = ok & (getattr(layout, name) >= 1)
    for name in COUNTS:
        ok = ok & (getattr(layout, name) >= 0)
    return ok


def _product(*factors: Any) -> Any:
    """In floats: a column of small integers would wrap silently."""
    out: Any = 1.0
    for factor in factors:
        out = out * factor
    return out


def _gpus(recipe: Recipe, layout: Layouts) -> Mask:
    return _product(layout.tp, layout.pp, layout.dp, layout.cp) == recipe.gpus


def _gpus_out(recipe: Recipe, layout: Layout) -> str:
    rest = layout.tp * layout.pp * layout.cp
    if recipe.gpus % rest == 0:
        return f"with these, dp must be {recipe.gpus // rest}"
    return f"or use {max(recipe.gpus // rest, 1) * rest} GPUs, a multiple of tp * pp * cp = {rest}"


def _batch(recipe: Recipe, layout: Layouts) -> Mask:
    return _product(layout.dp, layout.mbs, layout.m) == recipe.global_batch_size


def _batch_out(recipe: Recipe, layout: Layout) -> str:
    rest = layout.dp * layout.mbs
    if recipe.global_batch_size % rest == 0:
        return f"with these, m must be {recipe.global_batch_size // rest}"
    near = sorted(
        {
            max(recipe.global_batch_size // rest, 1) * rest,
            -(-recipe.global_batch_size // rest) * rest,
        }
    )
    return (
        f"or use a global batch of {' or '.join(map(str, near))}, a multiple of dp * mbs = {rest}"
    )


def _schedule_known(recipe: Recipe, layout: Layouts) -> Mask:
    known = np.array([name in recipe.software.schedules for name in SCHEDULES])
    return known[np.asarray(layout.schedule)]


def _zero_known(recipe: Recipe, layout: Layouts) -> Mask:
    ok: Any = False
    for stage in recipe.software.sharding_stages:
        ok = ok | (layout.zero == stage)
    return ok


def _sequence_over_cp(recipe: Recipe, layout: Layouts) -> Mask:
    return (layout.cp == 1) | divides(2 * layout.cp, recipe.seq_length)


def _cp_out(recipe: Recipe, layout: Layout) -> str:
    near = near_divisors(recipe.seq_length // 2, layout.cp) if recipe.seq_length % 2 == 0 else [1]
    return f"try cp {' or '.join(map(str, near))}"


def _sequence_over_tp(recipe: Recipe, layout: Layouts) -> Mask:
    return (layout.sp == 0) | divides(layout.cp * layout.tp, recipe.seq_length)


def _positions(recipe: Recipe, layout: Layouts) -> Mask:
    return recipe.model.position != "learned" or recipe.model.position_rows >= recipe.seq_length


POSITIVE = Rule(
    "counts are positive",
    _positive,
    "degrees, mbs and m must be at least 1 and counts at least 0, but got tp={layout.tp}"
    " pp={layout.pp} dp={layout.dp} cp={layout.cp} ep={layout.ep} etp={layout.etp} v={layout.v}"
    " mbs={layout.mbs} m={layout.m} hpz={layout.hpz} cp_a2a={layout.cp_a2a}",
)

CP = Rule(
    "sequence splits over cp",
    _sequence_over_cp,
    "2 * cp must divide the sequence length, but got cp={layout.cp} and {recipe.seq_length} tokens",
    _cp_out,
)

EXCHANGE = Rule(
    "cp_a2a is Megatron's",
    lambda recipe, layout: layout.cp_a2a == 1,
    "cp_a2a is a knob of Megatron-LM, but got cp_a2a={layout.cp_a2a} under {recipe.framework}",
    lambda recipe, layout: "leave it out, or try --framework megatron",
)

SITES = Rule(
    "sites hold whole replicas or stages",
    lambda recipe, layout: (
        divides(recipe.hardware.fabric.sites, layout.dp)
        | divides(recipe.hardware.fabric.sites, layout.pp)
    ),
    "dp or pp must be a multiple of the {recipe.hardware.fabric.sites} sites, but got"
    " dp={layout.dp}, pp={layout.pp}",
)

STATES = Rule(
    "offload and hpZ are DeepSpeed's",
    lambda recipe, layout: (layout.offload == 0) & (layout.hpz == 1),
    "offload and hpz are knobs of DeepSpeed, but got offload={knobs[offload]}, hpz={layout.hpz}"
    " under {recipe.framework}",
    lambda recipe, layout: "leave them out, or try --framework deepspeed",
)

RULES = (
    POSITIVE,
    Rule(
        "gpus are tp * pp * dp * cp",
        _gpus,
        "tp * pp * dp * cp must be {recipe.gpus} GPUs, but got {layout.tp} * {layout.pp} *"
        " {layout.dp} * {layout.cp} = {layout.gpus}",
        _gpus_out,
    ),
    Rule(
        "batch is dp * mbs * m",
        _batch,
        "dp * mbs * m must be the global batch of {recipe.global_batch_size}, but got "
        "{layout.dp} * {layout.mbs} * {layout.m} = {layout.gbs}",
        _batch_out,
    ),
    SITES,
    *experts.SIZES,
    Rule(
        "heads split over tp",
        lambda recipe, layout: divides(layout.tp, recipe.model.num_heads),
        "tp must divide the attention heads, but got tp={layout.tp} and {recipe.model.num_heads}"
        " heads",
        lambda recipe, layout: try_knob("tp", recipe.model.num_heads, layout.tp),
    ),
    Rule(
        "ffn splits over tp",
        lambda recipe, layout: divides(layout.tp, experts.dense_width(recipe)),
        "tp must divide the MLP width, but got tp={layout.tp} and ffn_size={recipe.model.ffn_size}",
        lambda recipe, layout: try_knob("tp", recipe.model.ffn_size, layout.tp),
    ),
    CP,
    STATES,
    EXCHANGE,
    Rule(
        "sequence splits over tp",
        _sequence_over_tp,
        "with sequence parallelism tp * cp must divide the sequence length, but got tp={layout.tp},"
        " cp={layout.cp} and {recipe.seq_length} tokens",
        lambda recipe, layout: "or turn sequence parallelism off",
    ),
    Rule(
        "positions reach the sequence",
        _positions,
        "the learned position table must have a row for every token, but got"
        " {recipe.model.position_rows} rows and {recipe.seq_length} tokens",
        lambda recipe, layout: f"use a sequence length of {recipe.model.position_rows} or less",
    ),
    Rule(
        "stack shards this way",
        _zero_known,
        "the stack {recipe.software.name} must shard this way, but got zero={layout.zero}",
        lambda recipe, layout: (
            f"it knows zero {', '.join(map(str, recipe.software.sharding_stages))}"
        ),
    ),
    Rule(
        "stack runs the schedule",
        _schedule_known,
        "the stack {recipe.software.name} must know the schedule, but got {knobs[schedule]}",
        lambda recipe, layout: f"it runs {', '.join(recipe.software.schedules)}",
    ),
    Rule(
        "stack has sequence parallelism",
        lambda recipe, layout: (layout.sp == 0) | recipe.software.sequence_parallel,
        "the stack {recipe.software.name} has no sequence parallelism, but got sp on",
        lambda recipe, layout: "turn it off",
    ),
)
