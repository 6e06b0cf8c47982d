"""One layout's pipeline, simulated: the schedule's order with the true time of every stage."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.action import KIND, STAGE, B, F, Order, W
from planner.cost import schedule_terms
from planner.cost.layer.embedding_and_head import EndsTime
from planner.cost.layer.kinds import Times, mean_time
from planner.cost.memory.activations import Activations
from planner.cost.memory.rank_memory import Rank, kept_bytes, rank_of
from planner.cost.network.sites import between_ranks
from planner.cost.params.layer import norm_params
from planner.cost.params.stages import Layers, chunk_kinds, chunk_layers
from planner.cost.step.step import Pace, Pipeline, near_transfer_s, tensor_bytes
from planner.errors import InputError
from planner.layout import SCHEDULES, Layout
from planner.schedules.table import order as order_of
from planner.schedules.table import schedule
from planner.simulator import peak_in_flight, simulate
from planner.specs.recipe import Recipe

MOST_ACTIONS = 400_000
"""Larger orders are left to the closed form: their simulation would take longer than a second."""
REPEATS = 4
"""Groups of micro-batches after which an order is taken to have settled."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """What the order says of a layout: its pace, and every pipeline rank as time and as memory see
    it.
    """

    pipeline: Pipeline
    ranks: Rank
    """Columns, one value a pipeline rank."""
    forward_s: np.ndarray
    backward_s: np.ndarray
    """Per rank and micro-batch."""


def refused(recipe: Recipe, layout: Layout) -> str:
    """Why the order of a layout is not simulated; empty when it is."""
    count = 2 * layout.pp * layout.v * max(lengths(layout))
    if count > MOST_ACTIONS:
        return (
            f"pipeline by closed form: {count:,} actions are more than the {MOST_ACTIONS:,} that"
            " are simulated"
        )
    if (
        sum(map(sum, chunk_layers(recipe.model, layout, recipe.software.quirks.stage_head_share)))
        != recipe.model.num_layers
    ):
        return "pipeline by closed form: the layers do not divide over the stages"
    try:
        schedule(SCHEDULES[layout.schedule]).legal(layout.pp, layout.m, layout.v, **_group(layout))
    except InputError as fault:
        return f"pipeline by closed form: {fault}"
    return ""


def _group(layout: Layout) -> dict[str, int]:
    known = schedule(SCHEDULES[layout.schedule]).knobs
    return {"group": layout.group} if layout.group and "group" in known else {}


def order(layout: Layout, spent: np.ndarray, transfer: float) -> Order:
    """The order of the layout's schedule; automatic ones look at the durations."""
    name = SCHEDULES[layout.schedule]
    return order_of(
        name, layout.pp, layout.m, layout.v, durations=spent, transfer=transfer, **_group(layout)
    )


def stage_layers(recipe: Recipe, layout: Layout) -> Layers:
    """(S,) layers of each kind of every virtual stage in the order that activations pass them; S =
    p v.
    """
    rows = chunk_kinds(recipe, layout)
    order = [rows[stage % layout.pp][stage // layout.pp] for stage in range(layout.pp * layout.v)]
    return Layers(tuple(np.array(column) for column in zip(*(x.of for x in order), strict=True)))


def blocking(recipe: Recipe, layout: Layout) -> bool:
    """Whether transfers hold up the sender."""
    return schedule_terms.blocking(schedule(SCHEDULES[layout.schedule]), recipe.software)


def durations(recipe: Recipe, layout: Layout, times: Times, ends: EndsTime) -> np.ndarray:
    """(S, 4) seconds of a forward, a fused backward, an input gradient and a weight gradient of
    every virtual stage.

    Formula: layers of the stage, of each kind, * layer + embedding on the first + head on the last
    Source:  [narayanan2021] sec. 2.2
    Assumes: layers of a kind alike; only matrix products have delayable weight gradients.
    """
    layers = stage_layers(recipe, layout)
    forward, weight, inputs = (
        np.asarray(times.total(layers, of))
        for of in (
            lambda layer: layer.forward_s,
            lambda layer: layer.gemm_weight_s,
            lambda layer: layer.backward_s - layer.gemm_weight_s,
        )
    )
    forward[0] += ends.embedding_forward_s
    inputs[0] += ends.embedding_backward_s
    forward[-1] += ends.head_forward_s
    weight[-1] += ends.head_weight_s
    inputs[-1] += ends.head_backward_s - ends.head_weight_s
    return np.stack([forward, inputs + weight, inputs, weight], axis=1)


def simulated(
    recipe: Recipe, layout: Layout, times: Times, ends: EndsTime, acts: Activations
) -> Simulated:
    """Pace, bubble, exposed transfers and the ranks' memory of one layout.

    Formula: bubble = makespan without transfers - work of the busiest rank; transfers = makespan
             with them - without
    Source:  the order of the schedule; [megatron-core] exchanges in blocking pairs unless
             interleaved and overlapped
    Assumes: transfers of one size between all neighbours.
    """
    runs, more = _runs(recipe, layout, durations(recipe, layout, times, ends))
    run = runs[-1]
    free_s, slow_s = (
        value + more * (value - other)
        for value, other in ((run.free_s, runs[0].free_s), (run.slow_s, runs[0].slow_s))
    )
    rank_of_stage, pp = run.sequence.rank_of_stage, layout.pp
    copies = run.sequence.stages // (pp * layout.v)  # DualPipe holds the model twice
    counts = Layers(tuple(np.tile(of, copies) for of in stage_layers(recipe, layout).of))
    layers = _by_rank(counts, rank_of_stage, pp)
    each = run.work.sum(axis=1)
    busiest = int(np.argmax(each))
    own = Layers(tuple(np.asarray(of)[busiest] for of in layers.of)) / copies
    layer = mean_time(times.kinds, own)
    inside = times.total(own, lambda kind: kind.forward_s + kind.backward_s)
    ends_s = max(float(each[busiest] - inside), 0.0)  # not below 0 by rounding
    first, last = (
        (stages < 0).astype(float)
        for stages in (run.sequence.previous_stage, run.sequence.next_stage)
    )
    fronts = np.bincount(rank_of_stage, first, minlength=pp)
    pace = Pace(each[busiest], own.total, ends_s, layer, float(fronts[busiest] > 0))
    # What rounding leaves of sums over many micro-batches is no time.
    pipeline = Pipeline(
        pace, max(free_s - layout.m * each[busiest], 0.0), max(slow_s - free_s, 0.0)
    )
    kept = np.asarray(kept_bytes(layout, acts, counts, first, last))
    peaks = [peak_in_flight(simulated.sequence, stage_weight=kept) for simulated in runs]
    peak = peaks[-1] + more * (peaks[-1] - peaks[0])
    return Simulated(
        pipeline,
        _ranks(recipe, layout, run.sequence, counts, kept, peak),
        run.work[:, 0],
        run.work[:, 1],
    )


def _by_rank(layers: Layers, rank_of: np.ndarray, pp: int) -> Layers:
    """Layers of every pipeline rank, from those of every stage."""
    return Layers(tuple(np.bincount(rank_of, of, minlength=pp) for of in layers.of))


@dataclass(frozen=True, slots=True)
class _Run:
    sequence: Order
    work: np.ndarray
    """(p, 2) forward and backward seconds of a rank and micro-batch."""
    free_s: float
    """Makespan (or span, with post-validation) without transfers."""
    slow_s: float
    """The same with them."""


def _runs(recipe: Recipe, layout: Layout, spent: np.ndarray) -> tuple[list[_Run], float]:
    """The simulation, or of many micro-batches two shorter ones, and how many times their
    difference is still to be added.

    An order repeats itself: beyond its fill the makespan, and where it grows the memory in flight,
    grow evenly with m.
    """
    transfer = between_ranks(
        recipe,
        layout,
        float(near_transfer_s(recipe, layout)),
        float(tensor_bytes(recipe, layout)),
    )
    counts = lengths(layout)
    runs = [_once(recipe, replace(layout, m=m), spent, transfer) for m in counts]
    return runs, (layout.m - counts[-1]) / (counts[1] - counts[0]) if len(counts) == 2 else 0.0


def lengths(layout: Layout) -> tuple[int, ...]:
    """Numbers of micro-batches to simulate: all of them, or two that are long after the fill and
    leave the same remainder.
    """
    turn = layout.group or layout.pp
    short = layout.m % turn + REPEATS * turn
    longer = short + max(REPEATS // 2, 1) * turn
    return (layout.m,) if longer >= layout.m else (short, longer)


def _once(recipe: Recipe, layout: Layout, spent: np.ndarray, transfer: float | np.ndarray) -> _Run:
    sequence = order(layout, spent, float(np.max(transfer)))
    spent = np.tile(spent, (sequence.stages // len(spent), 1))
    rows = np.concatenate(sequence.actions)
    passes = np.bincount(rows[rows[:, KIND] == F, STAGE], minlength=sequence.stages) / layout.m
    work = np.stack(
        [
            np.bincount(sequence.rank_of_stage, passes * spent[:, k], minlength=layout.pp)
            for k in (F, B)
        ],
        axis=1,
    )
    ends = (
        "span"
        if recipe.software.quirks.post_validation and (rows[:, KIND] == W).any()
        else "makespan"
    )
    free = simulate(sequence, spent)
    slow = (
        simulate(sequence, spent, transfer=transfer, blocking=blocking(recipe, layout))
        if np.any(transfer)
        else free
    )
    return _Run(sequence, work, getattr(free, ends), getattr(slow, ends))


def _ranks(
    recipe: Recipe,
    layout: Layout,
    sequence: Order,
    counts: Layers,
    kept: np.ndarray,
    peak: np.ndarray,
) -> Rank:
    rank_of_stage = sequence.rank_of_stage
    first = (sequence.previous_stage < 0).astype(float)
    last = (sequence.next_stage < 0).astype(float)
    kept_by_rank = np.bincount(rank_of_stage, kept, minlength=layout.pp)
    layers = _by_rank(counts, rank_of_stage, layout.pp)
    has_first, has_last = (
        np.bincount(rank_of_stage, column, minlength=layout.pp) for column in (first, last)
    )
    in_flight = peak / np.maximum(kept_by_rank, 1.0)
    rank = rank_of(recipe, layout, layers, in_flight, has_first, has_last)
    if (
        layout.stage_layout and not np.asarray(counts.total)[-1]
    ):  # then the final norm stands behind the last layer, wherever that is
        norm = norm_params(recipe.model)
        behind = rank_of_stage[np.flatnonzero(counts.total)[-1]] == np.arange(layout.pp)
        rank = replace(rank, params=rank.params + norm * behind - norm * has_last)
    return rank
