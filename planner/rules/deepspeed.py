"""DeepSpeed's rules, 0.16 to main: what its configuration, its engines, its PipelineModule and
Megatron-DeepSpeed refuse.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.layout import (
    OFFLOAD_CODE,
    RECOMPUTE_CODE,
    SCHEDULE_CODE,
    Layout,
    Layouts,
    Mask,
    Numeric,
)
from planner.rules import sizes, training
from planner.rules.rule import Rule, divides, quotient, try_knob
from planner.specs.deepspeed import in_megatron, with_autotp
from planner.specs.hardware import AMPERE
from planner.specs.recipe import Recipe

PRECISIONS = ("bf16", "fp16", "fp32")
NVME = (OFFLOAD_CODE["optimizer-nvme"], OFFLOAD_CODE["params-nvme"])
PARAMS = (OFFLOAD_CODE["params-cpu"], OFFLOAD_CODE["params-nvme"])


def _is(column: Any, codes: tuple[int, ...]) -> Any:
    out: Any = False
    for code in codes:
        out = out | (column == code)
    return out


def _plain_split(recipe: Recipe, layout: Layouts) -> Mask:
    own = (
        layout.account_for_embedding
        + layout.account_for_loss
        + layout.first_layers
        + layout.last_layers
        + layout.group
    )
    return (own == 0) & (layout.stage_layout == "")


def _schedule(recipe: Recipe, layout: Layouts) -> Mask:
    zero_bubble = (layout.schedule == SCHEDULE_CODE["zb-h1"]) & (layout.pp > 1) & (layout.sp == 0)
    return (layout.schedule == SCHEDULE_CODE["1f1b"]) | zero_bubble


def _offload(recipe: Recipe, layout: Layouts) -> Mask:
    least = np.where(_is(layout.offload, (*NVME, *PARAMS)), 3, np.where(layout.offload > 0, 1, 0))
    return layout.zero >= least


def _nvme(recipe: Recipe, layout: Layouts) -> Mask:
    return ~np.asarray(_is(layout.offload, NVME)) | (recipe.hardware.node.nvme_gbytes_per_s > 0)


def _hpz_group(recipe: Recipe, layout: Layouts) -> Mask:
    divides_gpus = (
        (layout.hpz >= 1) & (layout.hpz <= recipe.gpus) & divides(layout.hpz, recipe.gpus)
    )
    return divides_gpus & ((layout.hpz == 1) | (layout.tp == 1))


def _ulysses_heads(recipe: Recipe, layout: Layouts) -> Mask:
    heads, kv = recipe.model.num_heads, recipe.model.num_kv_heads
    return divides(layout.cp, heads) & (divides(layout.cp, kv) | divides(kv, layout.cp))


def _full_or_none(recipe: Recipe, layout: Layouts) -> Mask:
    return (layout.recompute != RECOMPUTE_CODE["selective"]) & (layout.recompute_modules == 0)


def _stage_layers(recipe: Recipe, layout: Layouts) -> Numeric:
    return quotient(recipe.model.num_layers, layout.pp)


def _recompute_layers(recipe: Recipe, layout: Layouts) -> Mask:
    some = (layout.recompute == RECOMPUTE_CODE["full"]) & (
        layout.recompute_layers <= _stage_layers(recipe, layout)
    )
    return (layout.recompute_layers == 0) | (some & ~np.asarray(in_megatron(recipe, layout)))


def _recompute_layers_out(recipe: Recipe, layout: Layout) -> str:
    if in_megatron(recipe, layout):
        return "Megatron-DeepSpeed checkpoints all layers: try recompute_layers 0"
    return f"at most {int(_stage_layers(recipe, layout))} with full recomputation, else 0"


def _precision_runs(recipe: Recipe, layout: Layouts) -> Mask:
    return recipe.precision != "bf16" or recipe.hardware.gpu.compute_capability >= AMPERE


ENGINE = (
    Rule(
        "DeepSpeed has the precision",
        lambda recipe, layout: recipe.precision in PRECISIONS,
        "DeepSpeed trains in bf16, fp16 or fp32, but got {recipe.precision}",
        lambda recipe, layout: "try bf16",
    ),
    Rule(
        "GPU runs the precision",
        _precision_runs,
        "bf16 needs a newer GPU, but got {recipe.hardware.gpu.name}",
        lambda recipe, layout: "try fp16",
    ),
    Rule(
        "attention runs in torch",
        lambda recipe, layout: recipe.attention != "fused",
        "attention under DeepSpeed is torch's: flash or unfused, but got fused (cuDNN's)",
        lambda recipe, layout: "try flash",
    ),
    Rule(
        "offload needs shards",
        _offload,
        "the optimizer goes to CPU memory from zero 1, to NVMe and with the parameters under zero 3"
        " alone, but got offload={knobs[offload]} with zero={layout.zero}",
        lambda recipe, layout: (
            "try zero 3"
            if layout.offload != OFFLOAD_CODE["optimizer-cpu"]
            else "try zero 1, 2 or 3"
        ),
    ),
    Rule(
        "nodes have NVMe",
        _nvme,
        "offload to NVMe needs its speed, but the profile {recipe.hardware.name} states none",
        lambda recipe, layout: (
            "add --set node.nvme_gbytes_per_s=N (one node, reads) or offload to cpu"
        ),
    ),
    Rule(
        "hpZ needs zero 3",
        lambda recipe, layout: (layout.hpz <= 1) | (layout.zero == 3),
        "a second copy of the weights (hpz > 1) belongs to zero 3, but got hpz={layout.hpz} with"
        " zero={layout.zero}",
        lambda recipe, layout: "try hpz 1",
    ),
    Rule(
        "hpZ groups split the GPUs",
        _hpz_group,
        "hpz must divide the {recipe.gpus} GPUs, in groups of neighbours without tensor"
        " parallelism, but got hpz={layout.hpz}, tp={layout.tp}",
        lambda recipe, layout: (
            "try hpz 1" if layout.tp > 1 else try_knob("hpz", recipe.gpus, layout.hpz)
        ),
    ),
    Rule(
        "key-value heads split over tp",
        lambda recipe, layout: divides(layout.tp, recipe.model.num_kv_heads),
        "tp must divide the key-value heads, but got tp={layout.tp} and"
        " {recipe.model.num_kv_heads}",
        lambda recipe, layout: try_knob("tp", recipe.model.num_kv_heads, layout.tp),
    ),
    Rule(
        "AutoTP shards no weights before 0.19",
        lambda recipe, layout: ~np.asarray(with_autotp(recipe, layout)) | (layout.zero <= 2),
        "tensor parallelism without a pipeline goes with zero 0 to 2 before DeepSpeed 0.19, but got"
        " zero={layout.zero}",
        lambda recipe, layout: "try zero 2 or version 0.19",
        before=(0, 19),
    ),
)

SEQUENCE = (
    Rule(
        "Ulysses came with 0.17",
        lambda recipe, layout: layout.cp == 1,
        "sequence_parallel_size is read since DeepSpeed 0.17, but got cp={layout.cp} under"
        " {recipe.framework_version}",
        lambda recipe, layout: "try cp 1 or version 0.17",
        before=(0, 17),
    ),
    Rule(
        "Ulysses stands alone",
        lambda recipe, layout: (layout.cp == 1) | ((layout.tp == 1) & (layout.pp == 1)),
        "sequence parallelism (cp > 1: Ulysses) works with neither tensor nor pipeline parallelism,"
        " but got cp={layout.cp}, tp={layout.tp}, pp={layout.pp}",
        lambda recipe, layout: "try cp 1, or tp 1 and pp 1",
    ),
    Rule(
        "heads split over cp",
        _ulysses_heads,
        "cp must divide the attention heads, and the key-value heads or be a multiple of them, but"
        " got cp={layout.cp} with {recipe.model.num_heads} and {recipe.model.num_kv_heads}",
        lambda recipe, layout: try_knob("cp", recipe.model.num_kv_heads, layout.cp),
    ),
    Rule(
        "sequence splits over Ulysses ranks",
        lambda recipe, layout: divides(layout.cp, recipe.seq_length),
        "cp must divide the sequence length, but got cp={layout.cp} and {recipe.seq_length} tokens",
        lambda recipe, layout: try_knob("cp", recipe.seq_length, layout.cp),
    ),
    Rule(
        "sequence parallelism of Megatron-DeepSpeed",
        lambda recipe, layout: (layout.sp == 0) | (in_megatron(recipe, layout) & (layout.tp > 1)),
        "Megatron's sequence parallelism needs Megatron-DeepSpeed (tp > 1 and pp > 1), but got sp"
        " on with tp={layout.tp}, pp={layout.pp}",
        lambda recipe, layout: "turn it off",
    ),
)

PIPELINE = (
    Rule(
        "no virtual stages",
        lambda recipe, layout: layout.v == 1,
        "DeepSpeed's pipeline has no interleaving: v must be 1, but got v={layout.v}",
        lambda recipe, layout: "try v 1, or Megatron-LM",
    ),
    Rule(
        "DeepSpeed runs the schedule",
        _schedule,
        "DeepSpeed's pipeline runs 1f1b, and Megatron-DeepSpeed's zb-h1 with pp > 1 and without sp,"
        " but got {knobs[schedule]} with pp={layout.pp}",
        lambda recipe, layout: "try 1f1b",
    ),
    Rule(
        "pipeline shards no gradients",
        lambda recipe, layout: (layout.pp == 1) | (layout.zero <= 1),
        "a pipeline goes with zero 0 or 1, but got zero={layout.zero} with pp={layout.pp}",
        lambda recipe, layout: "try zero 1, or pp 1",
    ),
    Rule(
        "stages have equal layers",
        lambda recipe, layout: divides(layout.pp, recipe.model.num_layers),
        "pp must divide the layers, since PipelineModule weighs them alike, but got pp={layout.pp}"
        " and {recipe.model.num_layers} layers",
        lambda recipe, layout: try_knob("pp", recipe.model.num_layers, layout.pp),
    ),
    Rule(
        "no other split of the layers",
        _plain_split,
        "stage layout, first/last layers, account-for switches and group are Megatron-LM's, but got"
        " one under DeepSpeed",
        lambda recipe, layout: "leave them out",
    ),
    Rule(
        "recomputes whole layers",
        _full_or_none,
        "DeepSpeed checkpoints whole layers: recompute must be none or full, but got"
        " {knobs[recompute]} {knobs[recompute_modules]}",
        lambda recipe, layout: "try none or full",
    ),
    Rule(
        "recompute layers fit a stage",
        _recompute_layers,
        "recompute_layers belongs to full recomputation and must not exceed the layers of a stage,"
        " but got {layout.recompute_layers} with recompute={knobs[recompute]}",
        _recompute_layers_out,
    ),
)

COMMON = tuple(rule for rule in sizes.RULES if rule not in (sizes.CP, sizes.STATES))
"""Ulysses needs no halves of a rank's share of the sequence, as Megatron's ring does."""

EXPERTS = (
    Rule(
        "experts split over data-parallel ranks",
        lambda recipe, layout: (layout.etp == 1) & divides(layout.ep, layout.dp),
        "ep must divide dp, and etp be 1, since DeepSpeed's expert groups are of data-parallel"
        " ranks, but got ep={layout.ep}, etp={layout.etp}, dp={layout.dp}",
        lambda recipe, layout: try_knob("ep", layout.dp, layout.ep),
    ),
    Rule(
        "split experts shard no weights before 0.19",
        lambda recipe, layout: (layout.ep == 1) | (layout.zero <= 2),
        "deepspeed.moe splits experts under zero 0 to 2, AutoEP of 0.19 under zero 3 too, but got"
        " ep={layout.ep} with zero={layout.zero}",
        lambda recipe, layout: "try zero 2 or version 0.19",
        before=(0, 19),
    ),
    Rule(
        "split experts under zero 3 stand alone",
        lambda recipe, layout: (
            (layout.ep == 1)
            | (layout.zero <= 2)
            | ((layout.tp == 1) & (layout.cp == 1) & (layout.hpz == 1))
        ),
        "AutoEP under zero 3 goes without tp, Ulysses and hpZ, but got ep={layout.ep}, zero=3 with"
        " tp={layout.tp}, cp={layout.cp}, hpz={layout.hpz}",
        lambda recipe, layout: "try zero 2",
        since=(0, 19),
    ),
)

RULES = (*COMMON, *ENGINE, *SEQUENCE, *PIPELINE, *EXPERTS, *training.DEEPSPEED)
