"""Statements that a Layout cannot hold as they stand: it keeps them rounded, or drops them. They
are judged here, on the reading, since no rule of a layout can see them.
"""

from __future__ import annotations

import math
from dataclasses import replace

from planner.advice.findings import Finding, Way, caught
from planner.advice.flag_names import STAGE, VIRTUAL
from planner.interpret import layout_knobs
from planner.interpret.interpret import Launch
from planner.interpret.numbers import whole_number
from planner.layout import MODULES, SCHEDULE_CODE
from planner.rules.rule import near_divisors
from planner.rules.table import breaches

CHUNK = VIRTUAL[0]
CP_SIZES = "hierarchical_context_parallel_sizes"
ALLOWED_MODULES = (*MODULES, "gdn_norm_out")
"""Source: [megatron-core] core/transformer/transformer_config.py."""


def findings(launch: Launch) -> list[Finding]:
    """All statements that the framework refuses and the layout does not show."""
    judges = {
        "megatron": (_layers_per_virtual_stage, _cp_sizes, _recompute_modules, _granularity),
        "deepspeed": (_zero_stage,),
        "torch": (_layers_per_stage, _local_batch),
    }[launch.recipe.framework]
    return caught(launch, judges)


def _layers_per_virtual_stage(launch: Launch) -> Finding | None:
    """Source: [megatron-core] training/arguments.py validate_args; in 2021 all layers had to be
    divisible, and what was left of a stage was dropped.
    """
    chunk = whole_number(launch.plain, CHUNK, 0)
    if chunk < 1 or not (launch.sized or launch.plain.get("num_layers")):
        return None
    layout, layers = launch.layout, launch.recipe.model.num_layers
    if layout.first_layers or layout.last_layers:
        return Finding(
            "error",
            "layers of a stage split over virtual stages",
            "--num-layers-per-virtual-pipeline-stage must go with stages of equal size, but"
            " --decoder-first-pipeline-num-layers or --decoder-last-pipeline-num-layers is given;"
            f" --num-virtual-stages-per-pipeline-rank {layout.v} says the same of unequal ones",
            (Way({CHUNK: None, VIRTUAL[1]: layout.v if layout.v > 1 else None}),),
        )
    counted = layers + layout.account_for_embedding + layout.account_for_loss
    if launch.recipe.software.name == "megatron-2021":
        per_stage, words = layers, "the layers"
    elif counted % layout.pp:
        return None  # the rule of stages says so
    else:
        per_stage, words = counted // layout.pp, "the layers of a pipeline stage"
    if per_stage % chunk == 0 or _breaks(launch, "layers of a stage split over v"):
        return None
    near = near_divisors(counted // layout.pp, chunk)
    ways = tuple(
        Way({CHUNK: size}) for size in near if _legal(launch, counted // layout.pp // size)
    )
    tried = " or ".join(str(way.values[CHUNK]) for way in ways)
    return Finding(
        "error",
        "layers of a stage split over virtual stages",
        f"--num-layers-per-virtual-pipeline-stage must divide {words}, but got {chunk} and"
        f" {per_stage}; {f'try {tried}' if tried else 'leave it out'}",
        ways or (Way({CHUNK: None}),),
    )


def _breaks(launch: Launch, rule: str) -> bool:
    """Whether the layout, rounded as it is, breaks the rule, whose finding then says it."""
    return any(breach.rule == rule for breach in breaches(launch.recipe, launch.layout))


def _legal(launch: Launch, v: int) -> bool:
    schedule = SCHEDULE_CODE["interleaved" if v > 1 else "1f1b"]
    return not breaches(launch.recipe, replace(launch.layout, v=v, schedule=schedule))


def _cp_sizes(launch: Launch) -> Finding | None:
    """Source: [megatron-core] training/arguments.py validate_args."""
    sizes, kind = launch.plain.get(CP_SIZES), launch.plain.get("cp_comm_type")
    kinds = kind if isinstance(kind, list) else [kind]
    cp = launch.layout.cp
    if sizes is None:
        if "a2a+p2p" not in kinds:
            return None
        message = f"--cp-comm-type a2a+p2p must come with {_flag(CP_SIZES)}, but it is not given"
        return Finding("error", "levels of context parallelism", message)
    listed = sizes if isinstance(sizes, list) else [sizes]
    counts = [whole_number({CP_SIZES: size}, CP_SIZES) for size in listed]
    if math.prod(counts) == cp:
        return None
    fits = counts[0] > 0 and cp % counts[0] == 0
    message = (
        f"{_flag(CP_SIZES)} must multiply to --context-parallel-size {cp}, but got"
        f" {' * '.join(map(str, counts))} = {math.prod(counts)}"
    )
    if not fits:
        return Finding("error", "levels of context parallelism", message)
    new = [counts[0], cp // counts[0]]
    message += f"; try {new[0]} {new[1]}"
    return Finding("error", "levels of context parallelism", message, (Way({CP_SIZES: new}),))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _recompute_modules(launch: Launch) -> Finding | None:
    """Source: [megatron-core] core/transformer/transformer_config.py."""
    modules = launch.plain.get("recompute_modules")
    if not modules or launch.plain.get("recompute_granularity") != "selective":
        return None
    names = modules if isinstance(modules, list) else str(modules).replace(",", " ").split()
    unknown = [str(name) for name in names if name not in ALLOWED_MODULES]
    if not unknown:
        return None
    kept = [name for name in names if name in ALLOWED_MODULES]
    return Finding(
        "error",
        "recompute modules are known",
        f"--recompute-modules must be of {', '.join(ALLOWED_MODULES)}, but got"
        f" {', '.join(unknown)[:80]}",
        (Way({"recompute_modules": kept or None}),),
    )


def _granularity(launch: Launch) -> Finding | None:
    """Source: [megatron-core] training/arguments.py, the choices of the flag."""
    granularity = launch.plain.get("recompute_granularity")
    if granularity in (None, "", "full", "selective") or str(granularity).lower() in (
        "none",
        "null",
    ):
        return None
    return Finding(
        "error",
        "granularity of recomputation",
        f"--recompute-granularity must be full or selective, but got {str(granularity)[:40]}",
    )


def _zero_stage(launch: Launch) -> Finding | None:
    """Source: [deepspeed] runtime/zero/config.py, ZeroStageEnum."""
    stage = layout_knobs.stage(launch.plain)
    if 0 <= stage <= 3:
        return None
    message = f"the ZeRO stage must be 0, 1, 2 or 3, but got {stage}; 3 shards everything"
    return Finding("error", "ZeRO stage is known", message, (Way({STAGE: 3}),))


def _layers_per_stage(launch: Launch) -> Finding | None:
    """Source: [torchtitan] distributed/pipeline_parallel.py."""
    stages = layout_knobs.torchtitan_stages(launch.plain, launch.recipe.model.num_layers)
    pp = launch.layout.pp
    if stages == 0 or pp == 1:
        return None
    several = layout_knobs.multi_stage(launch.plain)
    if stages % pp == 0 and (stages // pp > 1) == several:
        return None
    wanted = f"a multiple of {pp}, at least {2 * pp}" if several else f"{pp}"
    size = -(
        -layout_knobs.weighted_layers(launch.plain, launch.recipe.model.num_layers)
        // (pp * (1 + several))
    )
    return Finding(
        "error",
        "layers of a stage split over virtual stages",
        f"parallelism.pipeline_parallel_layers_per_stage must make {wanted} stages, but"
        f" {whole_number(launch.plain, CHUNK)} layers a stage make {stages}; try {size}",
        (Way({CHUNK: size}),),
    )


def _local_batch(launch: Launch) -> Finding | None:
    """Source: [torchtitan] distributed/pipeline_parallel.py."""
    local, mbs = whole_number(launch.plain, "local_batch_size", 0), launch.layout.mbs
    if launch.layout.pp == 1 or local % mbs == 0:
        return None
    return Finding(
        "error",
        "micro-batches split the local batch",
        "parallelism.pipeline_parallel_microbatch_size must divide training.local_batch_size, but"
        f" got {mbs} and {local}",
    )
