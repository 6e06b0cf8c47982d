"""Stage layouts: layers dealt to the stages by what they take, where no even split is as fast.

Columns cannot hold them (a layout string belongs to one layout), so they are made of the best
layouts that a search has found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.memory.activations import Activations
from planner.cost.memory.rank_memory import most_allocated_bytes, rank_memory, rank_of
from planner.cost.params.stages import Layers
from planner.cost.pipeline import blocking, order
from planner.cost.schedule_terms import in_flight
from planner.cost.step.step import transfer_s
from planner.cost.unique_rows import broadcast, unique_rows
from planner.enumerate.deal import Floats, Ints, Space, Work, deals
from planner.enumerate.quickest import Pipe, quickest
from planner.estimate import closed_form, estimate, limit_bytes, parts
from planner.layout import SCHEDULE_CODE, Layout, Layouts
from planner.numeric import distinct
from planner.rules.table import breaches
from planner.rules.together import taking
from planner.simulator import fullest_moments
from planner.specs.layers import counts, kinds, layer_kinds
from planner.specs.megatron_letters import by_letters
from planner.specs.recipe import Recipe
from planner.specs.stage_layout import written

VIRTUAL = (1, 2, 4)
"""Virtual stages that are tried, beside those of the even split up to MOST_VIRTUAL."""
MOST_VIRTUAL = 4
BASES = 2
"""Layouts that are dealt anew for each number of pipeline ranks."""
BASES_OF_RUNS = 16
"""The same where layers must lie together: the fastest and the roomiest of each split, since what
fits with even stages may not with such runs.
"""
_LAYOUT_KNOBS = (
    "stage_layout",
    "first_layers",
    "last_layers",
    "account_for_embedding",
    "account_for_loss",
)
_PLAIN: dict[str, Any] = dict.fromkeys(_LAYOUT_KNOBS[1:], 0)
"""Layouts that say nothing of how their layers are split."""
_SPLIT = ("pp", "tp", "cp", "ep", "etp", "mbs")
_RECOMPUTATION = ("recompute", "recompute_modules")
"""How layouts use the GPUs, however their layers are split."""
_ROUNDS = 3
"""Groups of micro-batches after which no more are in flight."""


@dataclass(frozen=True, slots=True)
class Undealt:
    """A layout whose layers are still to be dealt, and what decides how."""

    layout: Layout
    pipe: Pipe
    work: Work
    """Its layers are runs of the model's layers that lie together."""
    runs: Ints
    """(L,) the first layer of each run."""
    kinds: Ints
    """Of each layer of the model, by index."""
    state_bytes: Floats
    """(p, kinds) of a layer on each rank, whatever is in flight."""
    kept_bytes: Floats
    """(p, kinds) of a layer on each rank and micro-batch in flight."""
    room: Floats
    """(p,) bytes for layers."""
    other_s: float
    """Of a step, beside the work of the busiest rank."""

    def step_s(self, busiest_s: float) -> float:
        """Seconds of a step, about, whose busiest rank works so long on a micro-batch."""
        return self.other_s + self.layout.m * busiest_s

    @property
    def least_s(self) -> float:
        """Seconds of a step, about, that no deal falls below."""
        return self.step_s(self.work.least_s)

    @property
    def space(self) -> Space:
        """Memory by rank, with what the order has in flight."""
        layout = replace(self.layout, m=min(self.layout.m, _ROUNDS * self.layout.pp))
        moments = fullest_moments(order(layout, np.zeros((0, 4)), 0.0))
        held = [
            state[self.kinds] + count[:, :, None] * kept[self.kinds]
            for state, kept, count in zip(self.state_bytes, self.kept_bytes, moments, strict=True)
        ]
        return Space(tuple(np.add.reduceat(each, self.runs, axis=2) for each in held), self.room)

    def layers(self, sizes: list[int]) -> list[int]:
        """The model's layers of each stage, from its runs."""
        bounds = np.append(self.runs, len(self.kinds))[np.cumsum([0, *sizes])]
        return [int(size) for size in np.diff(bounds)]


def may_deal(recipe: Recipe) -> bool:
    """Whether the framework takes a layout string and the question leaves the split of layers."""
    fixed = {"schedule", "group", *_LAYOUT_KNOBS} & recipe.knobs.keys()
    some = any(recipe.allows("v", v) for v in VIRTUAL)
    return recipe.framework == "megatron" and some and not fixed


def undealt(
    recipe: Recipe, layouts: Layouts, step_s: Floats, memory_bytes: Floats, fits: NDArray[np.bool_]
) -> list[Undealt]:
    """The fastest fitting layouts of every pp with several numbers of virtual stages, to be dealt,
    those that may be fastest first.

    layouts: columns; step_s, memory_bytes, fits: of each of them.
    """
    rows = np.flatnonzero(fits & np.greater(layouts.pp, 1) & np.equal(layouts.recompute_layers, 0))
    fastest = rows[np.argsort(step_s[rows], kind="stable")]
    if not len(rows):
        return []
    if taking(recipe).any():
        roomiest = rows[np.argsort(memory_bytes[rows], kind="stable")]
        kept = {*_first(layouts, fastest, _SPLIT), *_first(layouts, roomiest, _SPLIT)}
        bases = [row for row in fastest.tolist() if row in kept]
    else:
        bases = _first(layouts, fastest, (*_SPLIT, *_RECOMPUTATION))
    pp = np.broadcast_to(layouts.pp, len(fits))[bases]
    most = BASES_OF_RUNS if taking(recipe).any() else BASES
    chosen = np.concatenate([np.array(bases)[pp == each][:most] for each in distinct(pp)])
    chunked = _with_chunks(recipe, layouts[chosen])
    return sorted(to_deal(recipe, chunked), key=attrgetter("least_s")) if len(chunked) else []


def _first(layouts: Layouts, rows: Ints, knobs: tuple[str, ...]) -> list[int]:
    """Of the rows, in order, the first of each way to set the knobs."""
    ways = unique_rows(layouts[rows], knobs)
    first: list[int] = (rows if ways is None else rows[np.sort(ways[0])]).tolist()
    return first


def _with_chunks(recipe: Recipe, layouts: Layouts) -> Layouts:
    """Each layout with every number of virtual stages; nothing said yet of how its layers are
    split.
    """
    turns = np.broadcast_to(np.equal(np.mod(layouts.m, layouts.pp), 0), len(layouts)).tolist()
    pairs = [
        (row, v)
        for row, own in enumerate(np.broadcast_to(layouts.v, len(layouts)).tolist())
        for v in sorted({*VIRTUAL, min(own, MOST_VIRTUAL)})
        if recipe.allows("v", v) and (v == 1 or turns[row])
    ]
    rows, v = np.array(pairs, int).reshape(-1, 2).T
    schedule = np.where(v > 1, SCHEDULE_CODE["interleaved"], SCHEDULE_CODE["1f1b"])
    return replace(layouts[rows], **_PLAIN, v=v, schedule=schedule)


def dealt(recipe: Recipe, layout: Layout) -> Layout | None:
    """The layout with its layers dealt to its stages, the simulated step as short as may be; None
    where memory holds no deal or a rule forbids it.
    """
    [found] = to_deal(recipe, replace(layout, **_PLAIN, stage_layout=""))
    held = [made for made in faster(recipe, found) if estimate(recipe, made, exact=True).fits]
    return held[0] if held else None


def faster(recipe: Recipe, undealt: Undealt, limit_s: float = np.inf) -> list[Layout]:
    """The layout with its layers dealt, where a step may take less than the limit; none where it
    cannot, memory holds no deal, or a rule forbids it.
    """
    if undealt.least_s >= limit_s:
        return []
    work, space = undealt.work, undealt.space
    found = [each for each in deals(work, space) if undealt.step_s(each.busiest_s) < limit_s]
    if not found:
        return []
    sizes = undealt.layers(quickest(undealt.pipe, work, space, [each.sizes for each in found]))
    made = replace(undealt.layout, stage_layout=written(sizes, recipe.model.mtp_layers))
    return [] if breaches(recipe, made) else [made]


def to_deal(recipe: Recipe, layouts: Layouts) -> list[Undealt]:
    """What is dealt, of each layout.

    Formula: forward + backward of each layer's kind; embedding on the first rank, head, loss and
             multi-token prediction on the last
    Source:  [narayanan2021] sec. 2.2
    Assumes: what stands before the first layer, a vision tower too, is in the embedding's time and
             in the memory of a rank that has it.
    """
    model, count = recipe.model, len(layouts)
    named = list(kinds(model))
    of_layer = np.array([named.index(name) for name in layer_kinds(model)])
    closed = closed_form(recipe, layouts)
    _, times, ends, acts = parts(recipe, layouts)
    forward, backward = (
        np.array([np.broadcast_to(seconds, count) for seconds in passes])
        for passes in (
            (*(of.forward_s for of in times.kinds), ends.embedding_forward_s, ends.head_forward_s),
            (
                *(of.backward_s for of in times.kinds),
                ends.embedding_backward_s,
                ends.head_backward_s,
            ),
        )
    )
    other = np.broadcast_to(closed.step_s - closed.time.busy_s, count)
    runs = np.flatnonzero(~taking(recipe))
    out = []
    for row, bytes_ in enumerate(_bytes(recipe, layouts, acts)):
        layout = layouts[row]
        fewest: Ints = np.ones(layout.pp * layout.v, np.int64)
        fewest[0], fewest[-1] = int(by_letters(model)), 0
        (forward_s, ends_forward_s), (backward_s, ends_backward_s) = (
            (np.add.reduceat(seconds[of_layer, row], runs), _ends(seconds[-2:, row], layout.pp))
            for seconds in (forward, backward)
        )
        pipe = Pipe(
            layout,
            forward_s,
            ends_forward_s,
            float(transfer_s(recipe, layout)),
            blocking(recipe, layout),
        )
        work = Work(forward_s + backward_s, ends_forward_s + ends_backward_s, fewest)
        out.append(Undealt(layout, pipe, work, runs, of_layer, *bytes_, float(other[row])))
    return out


def _ends(first_and_last: Floats, pp: int) -> Floats:
    """(p,) what each rank does beside its layers."""
    ends: Floats = np.zeros(pp)
    np.add.at(ends, [0, pp - 1], first_and_last)
    return ends


def _bytes(
    recipe: Recipe, layouts: Layouts, acts: Activations
) -> list[tuple[Floats, Floats, Floats]]:
    """state_bytes, kept_bytes and room of each layout.

    Formula: rank_memory() of a rank with an even share of each kind; what it grows by with one
             layer more of a kind, and with one more in flight; room: most_allocated_bytes() less
             what is left without layers
    Source:  planner.cost.memory
    Assumes: bytes of a rank are linear in its layers and in what is in flight, as all but working
             sets and buckets are.
    """
    held = np.array(counts(recipe.model), float)
    samples = np.vstack([np.zeros(len(held)), np.eye(len(held))])
    pp = np.broadcast_to(layouts.pp, len(layouts))
    size = 2 * len(samples)  # of a rank: with what is in flight, and with one more
    row = np.repeat(np.arange(len(pp)), pp * size)
    place = np.concatenate([np.arange(ranks * size) for ranks in pp.tolist()])
    rank, sample, more = place // size, place % size // 2, place % 2
    columns = len(layouts) > 1
    several = layouts[row] if columns else layouts
    share = held[:, None] / pp[row]
    flying = in_flight(several, rank)
    of_rank = rank_of(
        recipe,
        several,
        Layers(tuple(share + samples[sample].T)),
        flying + more,
        (rank == 0).astype(float),
        (rank == pp[row] - 1).astype(float),
    )
    kept = broadcast(acts, row) if columns else acts
    memory = rank_memory(recipe, several, kept, of_rank)
    most = most_allocated_bytes(recipe, memory, limit_bytes(recipe))
    values = [np.broadcast_to(x, len(row)) for x in (memory.allocated_bytes, most, flying)]
    out = []
    for layout, ranks in enumerate(pp.tolist()):
        shape = (ranks, len(samples), 2)
        taken, most, flying = (x[row == layout].reshape(shape) for x in values)
        layer, one_more = (taken[:, 1:, at] - taken[:, :1, at] for at in (0, 1))
        room = most[:, 0, 0] - (taken[:, 0, 0] - layer @ (held / ranks))
        kept_bytes = one_more - layer
        out.append((layer - kept_bytes * flying[:, 1:, 0], kept_bytes, room))
    return out
