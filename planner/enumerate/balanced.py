"""Stage layouts for models whose layers no even split fits: layers dealt one by one to the rank
that has the least work.

Columns cannot hold them (a layout string belongs to one layout), so they are made of the best
layouts that a search has found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, combinations
from operator import attrgetter

import numpy as np

from planner.estimate import parts
from planner.layout import SCHEDULE_CODE, Layout, Layouts
from planner.rules.table import breaches
from planner.specs.layers import kinds, layer_kinds
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.specs.stage_layout import written

VIRTUAL = (1, 2, 4)
"""Virtual stages that are tried."""
BASES = 2
"""Layouts that are cut anew for each number of pipeline ranks."""
_LAYOUT_KNOBS = (
    "stage_layout",
    "first_layers",
    "last_layers",
    "account_for_embedding",
    "account_for_loss",
)


def cuts(recipe: Recipe, legal: Layouts, step_s: np.ndarray, fits: np.ndarray) -> Iterator[Layout]:
    """The fastest fitting layouts of every pp that does not divide the layers, with their layers
    dealt anew; only those that hold.

    legal: columns; step_s, fits: of each of them.
    """
    if recipe.framework != "megatron" or any(knob in recipe.knobs for knob in _LAYOUT_KNOBS):
        return
    layers = recipe.model.num_layers
    stages = np.broadcast_to(legal.pp, len(fits))
    for pp in np.unique(stages[fits]).tolist():
        if layers % pp == 0:
            continue
        rows = np.flatnonzero(fits & (stages == pp) & (legal.recompute_layers == 0))
        best = rows[np.argsort(step_s[rows], kind="stable")]
        for base in _different([legal[int(row)] for row in best[: 8 * BASES]]):
            yield from _cut(recipe, base)


def _different(layouts: list[Layout]) -> list[Layout]:
    """The first of each way to use the GPUs: how its layers are split does not matter here."""
    key = attrgetter("tp", "cp", "ep", "etp", "mbs", "recompute", "recompute_modules")
    out: dict[tuple[int, ...], Layout] = {}
    for layout in layouts:
        out.setdefault(key(layout), layout)
    return list(out.values())[:BASES]


def _cut(recipe: Recipe, base: Layout) -> Iterator[Layout]:
    plain = replace(
        base,
        v=1,
        schedule=SCHEDULE_CODE["1f1b"],
        first_layers=0,
        last_layers=0,
        account_for_embedding=0,
        account_for_loss=0,
    )
    model = recipe.model
    _, times, ends, _ = parts(recipe, plain)
    each = [float(layer.forward_s + layer.backward_s) for layer in times.kinds]
    named = list(kinds(model))
    weights = [each[named.index(name)] for name in layer_kinds(model)]
    work = sum(weights) / len(weights)
    head = float(ends.head_forward_s + ends.head_backward_s)
    embedding = float(ends.embedding_forward_s + ends.embedding_backward_s)
    for v in VIRTUAL:
        if not recipe.allows("v", v):
            continue
        texts = [stage_layout(model, base.pp, v, embedding / work, head / work)]
        if v == 1:
            stages = contiguous(weights, base.pp, embedding, head)
            texts.append(written(stages, model.mtp_layers) if 0 not in stages[:-1] else "")
        schedule = SCHEDULE_CODE["interleaved" if v > 1 else "1f1b"]
        for text in dict.fromkeys(texts):
            made = replace(plain, v=v, schedule=schedule, stage_layout=text)
            if text and not breaches(recipe, made):
                yield made


def contiguous(weights: list[float], stages: int, embedding: float, head: float) -> list[int]:
    """How many layers each stage has, so that the busiest has the least work; of such splits that
    with most in the last stages, since the first hold more micro-batches.

    weights: work of each layer, in order; embedding, head: of the ends, in the same unit.
    """
    bounds = sorted(_sums(weights, embedding, head))
    low, high = 0, len(bounds) - 1
    while low < high:
        middle = (low + high) // 2
        if _filled(weights, stages, embedding, head, bounds[middle]) is None:
            low = middle + 1
        else:
            high = middle
    split = _filled(weights, stages, embedding, head, bounds[low])
    assert split is not None, "one stage holds all within the largest bound"
    return split


def _sums(weights: list[float], embedding: float, head: float) -> set[float]:
    """Every work that a stage may have."""
    through = [0.0, *accumulate(weights)]
    inside = {end - begin for begin, end in combinations(through, 2)}
    first = {total + embedding for total in through}
    last = {through[-1] - total + head for total in through}
    return inside | first | last | {through[-1] + embedding + head}


def _filled(
    weights: list[float], stages: int, embedding: float, head: float, bound: float
) -> list[int] | None:
    """Stages filled up to the bound from the last one on; None where they do not hold all."""
    left, slack = list(weights), bound * (1 + 1e-12)
    split: list[int] = []
    for stage in reversed(range(stages)):
        load = head * (stage == stages - 1) + embedding * (stage == 0)
        count = 0
        while len(left) > stage and load + left[-1] <= slack:
            load += left.pop()
            count += 1
        if load > slack:
            return None
        split.append(count)
    return None if left else split[::-1]


def stage_layout(model: ModelSpec, pp: int, v: int, embedding: float, head: float) -> str:
    """The layout string of stages as even as can be; empty when a stage before the last would have
    no layer.

    embedding, head: their work over that of a layer; the head's with all that the last stage does
    beside layers.
    """
    load = [0.0] * pp
    load[0] += embedding
    load[-1] += head
    stages = [0] * (pp * v)
    work = [0.0] * (pp * v)
    work[0] += embedding
    work[-1] += head
    for _ in range(model.num_layers):
        rank = min(range(pp), key=lambda rank: (load[rank], rank == pp - 1, rank == 0))
        stage = min(range(rank, pp * v, pp), key=lambda stage: (work[stage], stage))
        stages[stage] += 1
        work[stage] += 1.0
        load[rank] += 1.0
    if 0 in stages[:-1]:
        return ""
    return written(stages, model.mtp_layers)
