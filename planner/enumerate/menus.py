"""What a layout can be made of, as menus whose product is the space of the search: splits of the
GPUs and of the batch, splits of the layers over stages, shardings of the states, recomputations.

Nothing here asks whether a choice is worth it: the search discards by bounds (planner.search).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.layout import (
    OFFLOAD_CODE,
    RECOMPUTE_CODE,
    SCHEDULE_CODE,
    SCHEDULES,
    Layout,
    Layouts,
    module_mask,
    module_names,
)
from planner.numeric import distinct
from planner.rules import experts
from planner.schedules.table import schedule
from planner.specs.recipe import Recipe
from planner.specs.versions import version_of

Column = NDArray[np.int64]

SPLIT = ("tp", "pp", "cp", "mbs", "sp", "cp_a2a", "ep", "etp", "dp", "m")
"""Knobs that say how GPUs and batch are split."""
SHARDING = ("zero", "offload", "hpz")
STAGING = (
    "v",
    "schedule",
    "account_for_embedding",
    "account_for_loss",
    "first_layers",
    "last_layers",
)
"""Knobs that say how layers are split over the stages, and how these take turns."""
RECOMPUTATION = ("recompute", "recompute_modules", "recompute_layers")

MODULES_SINCE = (0, 12)
"""Megatron-core that has modules to recompute beside the attention's core."""
LEAST_END_SHARE = 0.5
"""Layers of a first rank of its own size, of a middle rank's, at least."""


def divisors(number: int) -> Column:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return np.array(sorted({*small, *(number // n for n in small)}))


def within(recipe: Recipe, knob: str, values: Column) -> Column:
    """The candidates that the question allows; a single value that it fixes is always one."""
    fixed = recipe.fixed(knob)
    if fixed is not None:
        return np.array([fixed])
    return values[recipe.allows(knob, values)] if knob in recipe.knobs else values


def crossed(rows: Layouts, more: dict[str, Column]) -> Layouts:
    """Every row with every row of a menu, the menu's changing fastest."""
    others = len(next(iter(more.values())))
    repeated = rows[np.repeat(np.arange(len(rows)), others)]
    columns: dict[str, Any] = {name: np.tile(x, len(rows)) for name, x in more.items()}
    return replace(repeated, **columns)


def kept(rows: Layouts, which: Any) -> Layouts:
    """The rows where a column is true; all or none of them where it is one truth."""
    return rows[np.flatnonzero(np.broadcast_to(which, len(rows)))]


def splits(recipe: Recipe, whole: bool = True) -> Layouts:
    """Every split of the GPUs and the batch, as columns: SPLIT.

    whole: only those in which the degrees divide GPUs and batch; else all, for the rules to say
    what is wrong.
    """
    gpus, batch = recipe.gpus, recipe.global_batch_size
    stages = divisors(gpus)
    degrees = {
        "tp": divisors(recipe.model.num_heads),
        "pp": stages[stages <= recipe.model.num_layers + 2],
        "cp": divisors(gpus),
    }
    ones: Any = np.ones(1, int)
    rows: Layouts = Layout(**dict.fromkeys(SPLIT, ones))
    for name, values in degrees.items():
        rows = crossed(rows, {name: within(recipe, name, values[values <= gpus])})
        rows = kept(rows, gpus % (rows.tp * rows.pp * rows.cp) == 0) if whole else rows
    rows = replace(rows, dp=np.maximum(gpus // (rows.tp * rows.pp * rows.cp), 1))
    rows = crossed(rows, {"mbs": within(recipe, "mbs", divisors(batch))})
    rows = kept(rows, batch % (rows.dp * rows.mbs) == 0) if whole else rows
    rows = replace(rows, m=np.maximum(batch // (rows.dp * rows.mbs), 1))
    for name in ("dp", "m"):
        rows = kept(rows, recipe.allows(name, getattr(rows, name)))
    rows = _exchanged_heads(recipe, _sequence_parallel(recipe, rows))
    return _experts(recipe, rows, whole)


def _sequence_parallel(recipe: Recipe, rows: Layouts) -> Layouts:
    """With and without sequence parallelism, where there is a tensor split; torchtitan always has
    it there.
    """
    both = np.array([1, 0]) if recipe.software.sequence_parallel else np.array([0])
    rows = crossed(rows, {"sp": within(recipe, "sp", both)})
    if recipe.versions.torchtitan and recipe.software.sequence_parallel:
        return kept(rows, rows.sequence_split == rows.tensor_split)
    return kept(rows, rows.tensor_split | ~rows.sequence_split)


def _exchanged_heads(recipe: Recipe, rows: Layouts) -> Layouts:
    """Of the cp ranks how many exchange heads all to all: Megatron's alone."""
    ranks = divisors(int(np.max(rows.cp, initial=1)))
    values = within(recipe, "cp_a2a", ranks if recipe.framework == "megatron" else ranks[:1])
    rows = crossed(rows, {"cp_a2a": values})
    return rows if recipe.fixed("cp_a2a") is not None else kept(rows, rows.cp % rows.cp_a2a == 0)


def _experts(recipe: Recipe, rows: Layouts, whole: bool) -> Layouts:
    """Every way to split the experts: ep divides them, etp divides tp, both with pp the GPUs."""
    moe, none = recipe.model.moe, np.array([1])
    each = divisors(moe.num_experts) if moe else none
    rows = crossed(rows, {"ep": within(recipe, "ep", each[each <= recipe.gpus])})
    apart = moe is not None and recipe.framework == "megatron"
    widths = np.array(distinct(np.append(rows.tp, 1))) if apart else none
    rows = crossed(rows, {"etp": within(recipe, "etp", widths)})
    if recipe.fixed("etp") is None:
        rows = kept(rows, rows.tp % rows.etp == 0)
    return kept(rows, recipe.gpus % (rows.ep * rows.etp * rows.pp) == 0) if whole else rows


def shardings(recipe: Recipe) -> dict[str, Column]:
    """zero, offload and hpz together: what the software has. NVMe where the profile states its
    speed; hpZ copies the weights over the GPUs of a node.
    """
    stages = list(recipe.software.sharding_stages)
    if "zero" in recipe.knobs:
        stages = within(recipe, "zero", np.array(stages)).tolist()
    choices = [(zero, 0, 1) for zero in stages]
    node = recipe.hardware.node
    if recipe.framework == "deepspeed":
        kinds = ("cpu", "nvme") if node.nvme_gbytes_per_s else ("cpu",)
        places = [code for name, code in OFFLOAD_CODE.items() if name.endswith(kinds)]
        for zero in stages:
            reached = places if zero == 3 else places[: int(zero > 0)]
            choices += [(zero, code, 1) for code in reached]
        if 3 in stages and node.gpus < recipe.gpus:
            choices.append((3, 0, node.gpus))
    elif recipe.framework == "megatron" and 1 in stages:
        choices.append((1, OFFLOAD_CODE["optimizer-cpu"], 1))
    for name, at in (("offload", 1), ("hpz", 2)):
        allowed = [choice for choice in choices if recipe.allows(name, choice[at])]
        if choices and not allowed:  # as the question states it, for the rules to judge
            low = recipe.knobs[name].low
            allowed = [(z, low, hpz) if at == 1 else (z, place, low) for z, place, hpz in choices]
        choices = allowed
    return _table(SHARDING, choices)


def stagings(recipe: Recipe, pp: int) -> dict[str, Column]:
    """Splits of the layers over so many ranks, with the schedules that run them: STAGING."""
    rows = [
        (v, code, *ends)
        for v in _virtual_stages(recipe, pp)
        for code in _schedules(recipe, pp, v)
        for ends in _ends(recipe, pp, v)
    ]
    return _table(STAGING, rows)


def _table(knobs: tuple[str, ...], rows: list[Any]) -> dict[str, Column]:
    table = np.array(rows, int).reshape(-1, len(knobs))
    return {name: table[:, at] for at, name in enumerate(knobs)}


def _virtual_stages(recipe: Recipe, pp: int) -> list[int]:
    """1, and with a pipeline what divides the layers, counted with or without embedding and loss.

    NOTE: layers that are not alike in number on all ranks need no such divisor, but ends of their
    own are multiples of v.
    """
    layers = recipe.model.num_layers
    most = {schedule(name).chunks[1] for name in recipe.software.schedules}
    every = np.array(distinct(np.concatenate([divisors(layers + more) for more in range(3)])))
    every = every[every * pp <= layers + 2]
    if pp == 1 or most == {1}:
        every = np.array([1])
    if recipe.fixed("group"):  # a group of micro-batches means nothing without virtual stages
        every = every[every > 1]
    return within(recipe, "v", every).tolist()  # type: ignore[no-any-return]


def _schedules(recipe: Recipe, pp: int, v: int) -> list[int]:
    """Those of the software that take so many virtual stages; another when the question fixes it,
    for the rules to judge.
    """
    fixed = recipe.fixed("schedule")
    names = recipe.software.schedules if fixed is None else [SCHEDULES[fixed]]
    if fixed is None and pp == 1:
        return [SCHEDULE_CODE["1f1b"]]
    codes = []
    for name in names:
        least, most = schedule(name).chunks
        alike = fixed is None and v == 1 != most  # one virtual stage is no interleaving
        if least <= v <= (most or v) and not alike:
            codes.append(SCHEDULE_CODE[name])
    return codes


_ENDS = STAGING[2:]


def _ends(recipe: Recipe, pp: int, v: int) -> list[tuple[int, ...]]:
    """How the first and the last rank differ: not, by what counts for embedding and loss, by layers
    of their own. Where the question says it, as it does, for the rules to judge.
    """
    layers = recipe.model.num_layers
    if any(name in recipe.knobs for name in _ENDS):
        own = tuple(recipe.fixed(name) or 0 for name in _ENDS[2:])
        counted = [(embedding, loss) for embedding in (0, 1) for loss in (0, 1)]
        rows = [(*pair, *own) for pair in counted if all(map(recipe.allows, _ENDS, pair))]
        even = [row for row in rows if any(own) or (layers + sum(row[:2])) % (pp * v) == 0]
        return even or rows
    if recipe.framework == "deepspeed" or pp == 1:
        return [(0, 0, 0, 0)] * (layers // pp % v == 0)
    counted = [(0, 0), (1, 1), (1, 0), (0, 1)]
    even = [(*pair, 0, 0) for pair in counted if (layers + sum(pair)) % (pp * v) == 0]
    if (pp, v) == (2, 1):  # with both ends counted, two stages are as without
        even = [row for row in even if row[:2] != (1, 1)]
    uneven = _own_ends(layers, pp, v) if recipe.framework == "megatron" else []
    return even + [(0, 0, *own) for own in uneven]


@lru_cache(maxsize=4096)
def _own_ends(layers: int, pp: int, v: int) -> list[tuple[int, int]]:
    """Layers of a first and a last rank that hold no more than each of the others between, the
    first no less than LEAST_END_SHARE of it.
    """
    found = []
    for middle in range(v, layers // max(pp - 2, 1) + 1, v):
        rest = layers - middle * (pp - 2)
        least = max(v, -(-int(middle * LEAST_END_SHARE) // v) * v)
        for first in range(least, middle + 1, v):
            last = rest - first
            if v <= last <= middle and last % v == 0 and first + last < 2 * middle:
                found.append((first, last))
    return found if pp > 2 else []


def recomputations(recipe: Recipe) -> dict[str, Column]:
    """None, every set of modules, all of a stage: RECOMPUTATION without how many layers, which
    follows from the memory that is left.
    """
    none, selective, full = (RECOMPUTE_CODE[name] for name in ("none", "selective", "full"))
    fixed = recipe.fixed("recompute_modules")
    sets = [fixed] if fixed else _module_sets(recipe)
    choices = [(selective, modules) for modules in sets]
    if not fixed:
        choices = [(none, 0), *choices, (full, 0)]
        if recipe.fixed("recompute") == selective and not sets:
            choices.append((selective, module_mask(["core_attn"])))
    layers = recipe.fixed("recompute_layers") or 0
    if layers:
        choices = [(full, 0)]
    return _table(
        RECOMPUTATION, [(*c, layers) for c in choices if recipe.allows("recompute", c[0])]
    )


def _module_sets(recipe: Recipe) -> list[int]:
    """Masks of modules that can be recomputed together."""
    if recipe.framework == "torch":
        return [module_mask(["ops"])]
    if recipe.framework != "megatron":
        return []
    parts = module_names(experts.modules(recipe))
    if version_of(recipe.framework, recipe.framework_version) < MODULES_SINCE:
        parts = ["core_attn"]
    sets = [chosen for count in range(1, len(parts) + 1) for chosen in combinations(parts, count)]
    inside = {"moe_act", "shared_experts"}  # of what moe recomputes anyway
    return [module_mask(list(s)) for s in sets if not ("moe" in s and inside & set(s))]


def group(recipe: Recipe, pp: int, m: int) -> int:
    """Megatron's group of micro-batches where the default, pp, leaves a rest that it does not take:
    the smallest that leaves none, or one of pp at least; 0 = the default.
    """
    if m % pp == 0 or m % pp >= pp or m < pp:
        return 0
    return next(size for size in range(pp, m + 1) if m % size == 0 or m % size >= pp)


def requested(recipe: Recipe) -> str:
    """The schedule that the question fixes although the stack does not run it; empty when there is
    none.
    """
    fixed = recipe.fixed("schedule")
    if fixed is None or SCHEDULES[fixed] in recipe.software.schedules:
        return ""
    return SCHEDULES[fixed]
