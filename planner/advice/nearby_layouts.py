"""Layouts near the one that a file states: every change of one knob, or of two, judged by the same
rules and the same estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any

import numpy as np

from planner.estimate import closed_form
from planner.interpret.interpret import computes
from planner.layout import (
    MODULES,
    OFFLOAD_CODE,
    RECOMPUTE_CODE,
    SCHEDULE_CODE,
    Layout,
    Layouts,
    module_mask,
)
from planner.rules.experts import modules as expert_modules
from planner.rules.table import mask
from planner.specs.recipe import Recipe
from planner.units import GIB

Move = tuple[str, dict[str, int]]
"""The knob, and the fields of Layout that it changes."""
MAX_MICRO_BATCH = 16
NONE, SELECTIVE, FULL = (RECOMPUTE_CODE[name] for name in ("none", "selective", "full"))
DERIVED = ("dp", "m", "schedule", "sp")


@dataclass(frozen=True, slots=True)
class Near:
    """A layout, what was changed to get there, and what the closed form says of it."""

    words: dict[str, Any]
    """Changed fields; gbs and gpus where the recipe was changed too."""
    layout: Layout
    recipe: Recipe
    step_s: float
    memory_gib: float
    oom_probability: float
    fits: bool


def moves(recipe: Recipe, layout: Layout) -> list[Move]:
    """Every value of one knob that could be another's, the layout's own left out."""
    out: list[Move] = []
    for name, values in _values(recipe, layout).items():
        own, least = getattr(layout, name), 0 if name == "zero" else 1
        out += [(name, {name: value}) for value in values if value != own and value >= least]
    out += _recomputations(recipe, layout) + _ends(recipe, layout) + _offloads(recipe, layout)
    if recipe.software.sequence_parallel and layout.tp > 1 and not layout.sp:
        out.append(("sp", {"sp": 1}))
    return out


def _values(recipe: Recipe, layout: Layout) -> dict[str, list[int]]:
    model, node = recipe.model, max(recipe.hardware.node.gpus, recipe.hardware.node.domain_gpus)
    degrees = _divisors(recipe.gpus)
    chunks = [1]
    if "interleaved" in recipe.software.schedules:
        chunks = _divisors(max(model.num_layers // layout.pp, 1), 32)
    out = {
        "tp": [n for n in degrees if n <= min(node, 64)],
        "pp": [n for n in degrees if n <= model.num_layers],
        "v": chunks,
        "zero": _zeros(recipe, layout),
        "mbs": _divisors(recipe.global_batch_size, MAX_MICRO_BATCH),
        "cp": [n for n in degrees if n in (1, layout.cp * 2, layout.cp // 2)],
    }
    if layout.stage_layout:
        out |= {"pp": [], "v": []}
    if model.moe:
        out["ep"] = [n for n in _divisors(model.moe.num_experts) if n <= recipe.gpus]
        out["etp"] = sorted({1, layout.tp})
    return out


def _zeros(recipe: Recipe, layout: Layout) -> list[int]:
    """Stages of the stack. Under torch weights that are sharded stay so: copies alone are another
    program.
    """
    least = 2 if recipe.framework == "torch" and layout.zero >= 2 else 0
    most = 1 if recipe.framework == "megatron" else 3
    return [stage for stage in recipe.software.sharding_stages if least <= stage <= most]


def _recomputations(recipe: Recipe, layout: Layout) -> list[Move]:
    """none, selective by modules that the model has, full for all layers or for half of a stage."""
    choices = [(NONE, 0, 0), (FULL, 0, 0)]
    if recipe.framework == "megatron":
        known = expert_modules(recipe)
        masks = [1 << at for at in range(1, len(MODULES))]
        if recipe.attention == "unfused":
            masks.insert(0, module_mask(["core_attn"]))
        choices += [(SELECTIVE, modules & known, 0) for modules in masks if modules & known]
        half = -(-recipe.model.num_layers // (layout.pp * layout.v * 2))
        if half > 0 and recipe.model.num_layers >= 2 * layout.pp * layout.v:
            choices.append((FULL, 0, half))
    names = ("recompute", "recompute_modules", "recompute_layers")
    own = (layout.recompute, layout.recompute_modules, layout.recompute_layers)
    return [
        ("recompute", dict(zip(names, choice, strict=True))) for choice in choices if choice != own
    ]


def _ends(recipe: Recipe, layout: Layout) -> list[Move]:
    """Where layers do not divide: a shorter last stage, a shorter first one, embedding and loss
    that count as layers.
    """
    layers, pp = recipe.model.num_layers, layout.pp
    if recipe.framework != "megatron" or layers % pp == 0 or pp == 1 or layout.stage_layout:
        return []
    last = layers - -(-layers // pp) * (pp - 1)
    changes = [{"last_layers": last}, {"first_layers": last}] if last > 0 else []
    if (layers + 1) % pp == 0:
        changes.append({"account_for_embedding": 1})
    if (layers + 2) % pp == 0:
        changes.append({"account_for_embedding": 1, "account_for_loss": 1})
    even = {"first_layers": 0, "last_layers": 0}
    return [(next(iter(change)), even | change) for change in changes]


def _offloads(recipe: Recipe, layout: Layout) -> list[Move]:
    places = {"megatron": ["optimizer-cpu"], "deepspeed": ["optimizer-cpu", "params-cpu"]}
    codes = [OFFLOAD_CODE[place] for place in places.get(recipe.framework, [])]
    return [("offload", {"offload": code}) for code in codes if code != layout.offload]


def _divisors(number: int, most: int = 4096) -> list[int]:
    return [n for n in range(1, min(number, most) + 1) if number % n == 0]


def around(
    recipe: Recipe, layout: Layout, depth: int = 1, waived: tuple[str, ...] = ()
) -> list[Near]:
    """Legal layouts that differ in at most `depth` knobs, and the layout itself where it is legal;
    waived rules may be broken.
    """
    single = moves(recipe, layout) if depth else []
    sets: list[tuple[Move, ...]] = [(), *zip(single)]
    if depth > 1:
        sets += [pair for pair in combinations(single, 2) if pair[0][0] != pair[1][0]]
    batch = _columns(recipe, layout, sets)
    legal, _ = mask(recipe, batch, waived)
    rows = np.flatnonzero(legal)
    if not len(rows):
        return []
    columns = [np.broadcast_to(figure, len(rows)) for figure in _figures(recipe, batch[rows])]
    return [
        Near(
            _words(recipe, layout, sets[row], batch[int(row)]),
            batch[int(row)],
            recipe,
            float(columns[0][column]),
            float(columns[1][column]) / GIB,
            float(columns[2][column]),
            bool(columns[3][column]),
        )
        for column, row in enumerate(rows.tolist())
    ]


def _figures(recipe: Recipe, layouts: Layouts) -> tuple[Any, ...]:
    """Step time, memory, probability of running out of it, and whether it fits; where the GPU has
    no such precision there is nothing to time, and only the rules judge.
    """
    if not computes(recipe):
        return 0.0, 0.0, 0.0, True
    estimated = closed_form(recipe, layouts)
    return estimated.step_s, estimated.memory_bytes, estimated.oom_probability, estimated.fits


def _words(
    recipe: Recipe, layout: Layout, chosen: tuple[Move, ...], near: Layout
) -> dict[str, Any]:
    """The fields that differ; under DeepSpeed, which is told the accumulation, m with them."""
    words: dict[str, Any] = {}
    for _, change in chosen:
        for name, value in change.items():
            if value != getattr(layout, name) or name == "recompute":
                words[name] = value
    if near.sp > layout.sp:
        words["sp"] = near.sp
    if recipe.framework in ("deepspeed", "torch") and near.m != layout.m:
        words["m"] = near.m
    return words


def _columns(recipe: Recipe, layout: Layout, sets: list[tuple[Move, ...]]) -> Layouts:
    """One row for each set of moves; dp, m, schedule and sp follow."""
    count = len(sets)
    varied = {f.name for f in fields(layout) if f.name != "stage_layout"} - set(DERIVED)
    if layout.stage_layout:
        varied -= {"pp", "v"}
    columns: dict[str, Any] = {
        name: np.full(count, getattr(layout, name), dtype=np.int64) for name in varied
    }
    sp = np.full(count, layout.sp, dtype=np.int64)
    for row, chosen in enumerate(sets):
        for _, change in chosen:
            for name, value in change.items():
                (sp if name == "sp" else columns[name])[row] = value
    tp, pp, v = columns["tp"], columns.get("pp", layout.pp), columns.get("v", layout.v)
    wanted = np.asarray(sp) | (recipe.model.moe is not None and recipe.framework == "megatron")
    dp = np.maximum(recipe.gpus // (tp * pp * columns["cp"]), 1)
    m = np.maximum(recipe.global_batch_size // (dp * columns["mbs"]), 1)
    plain = (
        SCHEDULE_CODE["1f1b"]
        if layout.schedule == SCHEDULE_CODE["interleaved"]
        else layout.schedule
    )
    schedule = np.where(np.asarray(v) > 1, SCHEDULE_CODE["interleaved"], plain) + np.zeros(
        count, dtype=np.int64
    )
    if layout.stage_layout and layout.v > 1:
        schedule = np.full(count, layout.schedule)
    columns |= {"dp": dp, "m": m, "sp": wanted * (tp > 1), "schedule": schedule}
    return replace(layout, **columns)


def batches(recipe: Recipe, layout: Layout, waived: tuple[str, ...] = ()) -> list[Near]:
    """The layout with a global batch that it can share, just below and just above the stated
    one.
    """
    unit = layout.dp * layout.mbs * (layout.pp if layout.v > 1 else 1)
    size = recipe.global_batch_size
    out = []
    for batch in sorted({max(size // unit, 1) * unit, -(-size // unit) * unit} - {size}):
        other = recipe.model_copy(update={"global_batch_size": batch})
        shared = replace(layout, m=batch // (layout.dp * layout.mbs))
        for neighbour in around(other, shared, 0, waived):
            if neighbour.layout.gbs == batch:
                out.append(replace(neighbour, words={"gbs": batch}))
    return out


def more_gpus(recipe: Recipe, layout: Layout, max_nodes: int = 16) -> Near | None:
    """The fewest GPUs, in whole nodes above the stated count, on which a change of at most one knob
    fits; dp takes the rest.
    """
    unit = min(recipe.hardware.node.gpus, max(recipe.gpus, 1))
    for count in range(recipe.gpus + unit, recipe.gpus + unit * max_nodes + 1, unit):
        for batch in (recipe.global_batch_size, _shared(recipe, count)):
            other = recipe.model_copy(update={"gpus": count, "global_batch_size": batch})
            fits = [neighbour for neighbour in around(other, layout, 1) if neighbour.fits]
            if fits:
                best = min(fits, key=lambda neighbour: (len(neighbour.words), neighbour.step_s))
                words = {"gpus": count}
                if batch != recipe.global_batch_size:
                    words["gbs"] = batch
                return replace(best, words=words | best.words)
    return None


def _shared(recipe: Recipe, gpus: int) -> int:
    """The batch with as many sequences a GPU as before."""
    return max(recipe.global_batch_size * gpus // recipe.gpus, 1)
