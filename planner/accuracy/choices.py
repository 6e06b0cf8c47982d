"""The layouts that a measured run may have had: one when it states every knob, else one for each
way to fill the gaps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from planner.accuracy import recomputed
from planner.accuracy.shapes import Row, facts_of
from planner.accuracy.skipped import Skipped
from planner.errors import InputError
from planner.layout import (
    MODULES,
    OFFLOAD_CODE,
    RECOMPUTE,
    RECOMPUTE_CODE,
    SCHEDULE_CODE,
    Layout,
    module_mask,
    module_names,
)
from planner.specs import stage_layout
from planner.specs.recipe import Recipe

MAX_MICRO_BATCH = 64
"""Largest micro-batch that is tried for a row that states none."""
MAX_VIRTUAL_STAGES = 128
"""Most virtual stages a rank that are tried."""
TWO_CHUNKS = ("zbv", "zbv-auto", "v-half", "v-min", "dualpipev")
"""Schedules whose ranks hold two chunks by construction."""


_LAYOUT = re.compile(r"layout string ([EtmL|()*,0-9]+)")
"""Notes that hold --pipeline-model-parallel-layout."""


@dataclass(frozen=True, slots=True)
class Choice:
    layouts: Layout
    """Columns."""
    open: tuple[str, ...]
    """Knobs with several entries in the columns."""
    assumed: tuple[str, ...]


def layouts(row: Row, recipe: Recipe) -> Choice:
    """Every layout that agrees with the row.

    Errors: Skipped when the row contradicts itself.
    """
    fixed = _degrees(row, recipe)
    modules, assumed_modules = _modules(row, recipe)
    options = {
        "mbs": _micro_batch(row, recipe, fixed["dp"]),
        "v": _virtual(row, recipe, fixed["pp"]),
        "recompute": modules,
        "sp": _sequence_parallel(row, recipe, fixed["tp"]),
        "zero": _sharding(row, recipe),
    }
    grid = np.array(list(product(*options.values())), dtype=np.int64).reshape(-1, len(options))
    columns = dict(zip(options, grid.T, strict=True))
    recompute = columns.pop("recompute")
    count = len(grid)
    fields: dict[str, Any] = {
        name: np.full(count, value) for name, value in fixed.items()
    } | columns
    fields |= {
        "recompute": recompute % 4,
        "recompute_modules": recompute // 4,
        "schedule": _schedules(row, columns["v"]),
    }
    fields |= _split(row, recipe, fixed["pp"], columns["v"])
    offload = OFFLOAD_CODE["optimizer-cpu"] * facts_of(row).optimizer_away
    fields["offload"] = np.full(count, offload)
    fields["m"] = recipe.global_batch_size // (fixed["dp"] * columns["mbs"])
    unstated = [name for name, cell in _CELLS.items() if row[cell] is None]
    open_knobs = tuple(name for name in unstated if len(options[name]) > 1)
    alone = tuple(
        _only_choice(name, options[name][0]) for name in unstated if name not in open_knobs
    )
    return Choice(
        Layout(**fields), open_knobs, (*_assumed_degrees(row, fixed), *assumed_modules, *alone)
    )


_CELLS = {"mbs": "mbs", "v": "vpp", "recompute": "recompute", "sp": "sp", "zero": "zero"}


def described(knob: str, layout: Layout) -> str:
    """A knob of one layout in words."""
    if knob == "recompute":
        names = module_names(layout.recompute_modules)
        return RECOMPUTE[layout.recompute] + (f" {'+'.join(names)}" if names else "")
    return str(getattr(layout, knob))


def _only_choice(knob: str, value: int) -> str:
    if knob == "recompute":
        return (
            "recompute"
            f" {described(knob, Layout(recompute=value % 4, recompute_modules=value // 4))}: not"
            " stated"
        )
    return f"{knob} {value}: not stated"


def _degrees(row: Row, recipe: Recipe) -> dict[str, int]:
    """dp follows from the GPUs; where the row's own dp differs and only that one divides the batch,
    cp follows instead.
    """
    tp, pp, cp = int(row["tp"]), int(row["pp"]), int(row["cp"] or 1)
    dp, rest = divmod(recipe.gpus, tp * pp * cp)
    if rest or not dp:
        raise Skipped("gpus is no multiple of tp * pp * cp")
    stated_dp = int(row["dp"] or dp)
    if (
        recipe.global_batch_size % dp
        and recipe.global_batch_size % stated_dp == 0
        and recipe.gpus % (tp * pp * stated_dp) == 0
    ):
        dp, cp = stated_dp, recipe.gpus // (tp * pp * stated_dp)
    return {
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "cp": cp,
        "ep": int(row["ep"] or 1),
        "etp": int(row["etp"] or 1),
    }


def _assumed_degrees(row: Row, fixed: dict[str, int]) -> tuple[str, ...]:
    blank = [f"{name} {fixed[name]}" for name in ("cp", "ep") if row[name] is None]
    sentences = [f"{', '.join(blank)}: not stated"] if blank else []
    if row["dp"] is not None and int(row["dp"]) != fixed["dp"]:
        sentences.append(f"dp {fixed['dp']}: gpus / (tp pp cp), the row says {int(row['dp'])}")
    if row["cp"] is not None and int(row["cp"]) != fixed["cp"]:
        sentences.append(f"cp {fixed['cp']}: gpus / (tp pp dp), the row says {int(row['cp'])}")
    return tuple(sentences)


def _micro_batch(row: Row, recipe: Recipe, dp: int) -> list[int]:
    share, rest = divmod(recipe.global_batch_size, dp)
    if rest or not share:
        raise Skipped("the global batch is no multiple of dp")
    if row["mbs"] is None:
        return [size for size in range(1, min(share, MAX_MICRO_BATCH) + 1) if share % size == 0]
    size = int(row["mbs"])
    if share % size:
        raise Skipped("the global batch is no multiple of dp * mbs")
    return [size]


def _virtual(row: Row, recipe: Recipe, pp: int) -> list[int]:
    schedule = str(row["schedule"] or "").lower()
    if schedule and schedule not in SCHEDULE_CODE:
        raise Skipped(f"unknown schedule: {schedule[:60]}")
    if pp == 1:
        return [1]
    if row["vpp"] is not None:
        return [int(row["vpp"])]
    drawn = _drawn(str(row["notes"] or ""))
    if drawn and drawn % pp == 0:
        return [drawn // pp]
    if schedule in TWO_CHUNKS:
        return [2]
    if schedule and not schedule.startswith("interleaved"):
        return [1]
    first = 2 if schedule else 1
    last = min(recipe.model.num_layers // pp + 1, MAX_VIRTUAL_STAGES)
    return [
        v for v in range(first, last + 1) if _accounted(recipe.model.num_layers, pp, v) is not None
    ] or [1]


def _drawn(notes: str) -> int:
    """Stages of the layout that the notes draw; 0 without one."""
    drawn = _LAYOUT.search(notes)
    try:
        return len(stage_layout.stages(drawn[1])) if drawn else 0
    except InputError:
        return 0


def _accounted(layers: int, pp: int, v: int) -> tuple[int, int] | None:
    """Whether embedding and loss stand for a layer, as they do where the layers do not divide; None
    when no stages come out even.
    """
    pairs = ((0, 0),) if layers % pp == 0 else ((1, 1), (0, 1), (1, 0))
    return next(((e, loss) for e, loss in pairs if (layers + e + loss) % (pp * v) == 0), None)


def _split(row: Row, recipe: Recipe, pp: int, v: np.ndarray) -> dict[str, np.ndarray]:
    """Even stages as far as they go; where nothing makes them even the cost model spreads fractions
    of layers.
    """
    less = facts_of(row).one_less
    pairs = {
        x: (1, 1) if less else _accounted(recipe.model.num_layers, pp, int(x)) or (0, 0)
        for x in set(v.tolist())
    }
    chosen = np.array([pairs[x] for x in v.tolist()], dtype=np.int64).reshape(-1, 2) * (pp > 1)
    out = {"account_for_embedding": chosen[:, 0], "account_for_loss": chosen[:, 1]}
    if recipe.model.moe:
        layers, staged = recipe.model.num_layers, pp > 1 and not less
        ends = [
            (
                fewer_at_ends(layers, pp, int(x))
                if staged and _accounted(layers, pp, int(x)) is None
                else (0, 0)
            )
            for x in v.tolist()
        ]
        out |= dict(
            zip(("first_layers", "last_layers"), np.array(ends, dtype=np.int64).T, strict=True)
        )
    return out


def fewer_at_ends(layers: int, pp: int, v: int) -> tuple[int, int]:
    """Layers of first and last rank where a stage layout gives the others whole chunks: what is
    missing is missing at the ends.
    """
    between = -(-layers // (pp * v)) * v
    rest = layers - between * (pp - 2)
    first = min(-(-rest // 2), between)
    return (first, rest - first) if 0 < rest - first <= between else (0, 0)


def _schedules(row: Row, v: np.ndarray) -> np.ndarray:
    """1F1B and interleaving are one schedule with v stages a rank; the others are as named."""
    named = str(row["schedule"] or "1f1b").lower()
    if named in ("1f1b", "interleaved"):
        return np.where(v > 1, SCHEDULE_CODE["interleaved"], SCHEDULE_CODE["1f1b"])
    return np.full(len(v), SCHEDULE_CODE[named])


def _modules(row: Row, recipe: Recipe) -> tuple[list[int], tuple[str, ...]]:
    """Recomputation as one number: code + 4 * mask of modules."""
    cell = row["recompute"]
    if cell is None:
        return [RECOMPUTE_CODE["none"], *_selective(recipe), RECOMPUTE_CODE["full"]], ()
    name = str(cell).lower()
    if name not in RECOMPUTE_CODE:
        raise Skipped(f"unknown recompute: {name[:60]}")
    if name != "selective":
        return [RECOMPUTE_CODE[name]], ()
    noted = (
        recomputed.modules(str(row["notes"] or ""))
        if recipe.model.moe and row["recompute_modules"] is None
        else ()
    )
    if noted:
        return [RECOMPUTE_CODE[name] + 4 * module_mask(list(noted))], ()
    if recipe.model.moe and row["recompute_modules"] is None:
        return _selective(recipe), ()
    wanted = [
        module.strip()
        for module in str(row["recompute_modules"] or "core_attn").split(",")
        if module.strip()
    ]
    known = [module for module in wanted if module in MODULES]
    assumed = [
        f"recompute module {module[:40]}: not modelled"
        for module in wanted
        if module not in MODULES
    ]
    if row["recompute_modules"] is None:
        assumed.append("recompute_modules core_attn: not stated")
    return [RECOMPUTE_CODE[name] + 4 * module_mask(known)], tuple(assumed)


def _selective(recipe: Recipe) -> list[int]:
    """What a tuned run may recompute: the scores of unfused attention; beside flash attention what
    Megatron of today can name.
    """
    sets = _nested_modules(recipe)
    if sets:
        return [RECOMPUTE_CODE["selective"] + 4 * module_mask(modules) for modules in sets]
    if recipe.attention == "unfused":
        names: tuple[tuple[str, ...], ...] = (("core_attn",),)
    else:
        names = (
            (("layernorm",), ("mlp",), ("layernorm", "mlp"))
            if recipe.framework == "megatron"
            else ()
        )
    return [RECOMPUTE_CODE["selective"] + 4 * module_mask(modules) for modules in names]


def _sequence_parallel(row: Row, recipe: Recipe, tp: int) -> list[int]:
    if tp == 1:
        return [0]
    if row["sp"] is not None:
        return [int(row["sp"])]
    return [1, 0] if recipe.software.sequence_parallel else [0]


def _sharding(row: Row, recipe: Recipe) -> list[int]:
    """A row that shards more than the optimizer would say so; the software's own stage first, which
    stays where another is no faster.
    """
    if recipe.software.sharding.gradients_deferred:
        return [recipe.software.default_stage]  # "fsdp" in the row: the stack says how
    if row["zero"] is not None:
        if row["zero"] not in (0, 1, 2, 3):
            raise Skipped("zero is none of 0, 1, 2, 3")
        return [int(row["zero"])]
    own = recipe.software.default_stage
    return [
        own,
        *(stage for stage in recipe.software.sharding_stages if stage <= 1 and stage != own),
    ]


def _nested_modules(recipe: Recipe) -> list[list[str]]:
    """Sets of modules of experts and latent attention, each saving more for more time than the one
    before.
    """
    model = recipe.model
    if not (model.moe or model.mla) or recipe.framework != "megatron":
        return []
    light = ["layernorm"]
    sets = [light] + [[*light, "moe_act"]] * (model.moe is not None)
    if model.mla:
        sets.append([*sets[-1], "mla_up_proj"])
    if model.moe:
        rest = [name for name in sets[-1] if name != "moe_act"]
        sets += [[*sets[-1], "shared_experts"]] * (model.moe.shared_ffn_size > 0) + [[*rest, "moe"]]
    return sets
