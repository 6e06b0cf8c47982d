"""Lower bounds of a step and of a rank's memory, by the cost model's own formulas with what is not
decided yet at its best: what cannot be faster, or cannot fit, is not looked at.

They hold for the simulated pipeline, whose stages are what they are, as for the closed form; but
that of virtual stages beside ends of their own can be less than any order takes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.cost.layer.embedding_and_head import EndsTime
from planner.cost.memory import rank_memory
from planner.cost.memory.activations import Activations, Kept
from planner.cost.memory.rank_memory import Rank
from planner.cost.params.per_rank import layers_params
from planner.cost.params.stages import Layers
from planner.cost.step import step
from planner.cost.terms import ACCEPTED_OOM_PROBABILITY, StepTime
from planner.estimate import Parts, limit_bytes, parts
from planner.layout import SCHEDULE_CODE, Layouts, Mask, Numeric
from planner.specs.layers import below, counts
from planner.specs.recipe import Recipe
from planner.units import MICRO

IN_TURN = tuple(SCHEDULE_CODE[name] for name in ("1f1b", "gpipe", "interleaved"))
"""Schedules in which the last rank waits for a forward pass of a chunk of each rank before it, and
these for a backward pass after it.
"""


def _all_s(ends: EndsTime) -> Numeric:
    return (
        ends.embedding_forward_s
        + ends.embedding_backward_s
        + ends.head_forward_s
        + ends.head_backward_s
    )


def split_s(recipe: Recipe, splits: Layouts) -> Numeric:
    """Seconds that no layout of a split can beat, whatever its stages, sharding, recomputation.

    Formula: (m (layers + ends) / p + step overhead) (1 + straggler share)
    Source:  the busiest rank works no less than the mean of them
    Assumes: neither sharding nor recomputation makes a layer faster.
    """
    _, times, ends, _ = parts(recipe, splits)
    whole = Layers(counts(recipe.model)).times(times.seconds)
    work = splits.m * (whole + _all_s(ends)) / splits.pp
    rest = recipe.software.launch.step_overhead_us * MICRO
    return (work + rest) * (1 + step.straggler_share(recipe, splits))


def step_s(recipe: Recipe, layout: Layouts, known: Parts) -> Numeric:
    """Seconds that neither closed form nor simulated pipeline of a layout can beat, whatever its
    sharding and recomputation: length_s() and the step's overhead.
    """
    rest = recipe.software.launch.step_overhead_us * MICRO
    return (length_s(recipe, layout, known) + rest) * (1 + step.straggler_share(recipe, layout))


def simulated_s(recipe: Recipe, layout: Layouts, known: Parts, time: StepTime) -> Numeric:
    """Seconds that the simulated pipeline of a layout cannot beat. time: its closed form.

    Formula: the closed form with length_s() in place of work, bubble and transfers of the pipeline
    Source:  planner.cost.step
    Assumes: as length_s().
    """
    layers, times, ends, _ = known
    forward, backward = step.rank_times(recipe, layout, layers, times, ends)
    pace = step.pace(layout, layers, times, ends, forward + backward)
    closed = layout.m * pace.slowest_s + time.bubble_s + time.pp_comm_s
    less = np.minimum(length_s(recipe, layout, known) - closed, 0.0)
    return time.step_s + less * (1 + step.straggler_share(recipe, layout))


def length_s(recipe: Recipe, layout: Layouts, known: Parts) -> Numeric:
    """Seconds that the pipeline takes at least.

    Formula: m (the busiest of first, last and mean middle rank); where stages take turns m times
             the last rank, or the one before it, and a forward and a backward pass of the first
             chunk of each rank before that with their transfers
    Source:  [narayanan2021] sec. 2.2
    Assumes: chunks of a rank alike but for what counts for the embedding.
    """
    layers, times, ends, _ = known
    forward, backward = step.rank_times(recipe, layout, layers, times, ends)
    ranks = forward + backward
    counted = layout.account_for_embedding
    first = np.maximum((layers.first.total + counted) / layout.v - counted, 0.0)
    each = times.seconds
    hop = 2 * step.transfer_s(recipe, layout)
    entered = ends.embedding_forward_s + ends.embedding_backward_s

    def after(others: Numeric) -> Numeric:
        """The first rank's pass and those of so many others before a rank's own work begins, and
        after it ends.
        """
        before = first + layers.middle.total / layout.v * others
        passed = Layers(below(recipe.model, before)).times(each) + entered
        return passed + (others + 1) * hop

    turns = np.isin(layout.schedule, IN_TURN)
    last = layout.m * ranks.last + after(np.maximum(layout.pp - 2, 0)) * turns
    inner = layout.m * layers.middle.times(each) + after(np.maximum(layout.pp - 3, 0)) * turns
    several = turns & (np.asarray(layout.pp) > 2)
    longest = np.maximum(np.where(layout.pipelined, last, 0.0), np.where(several, inner, 0.0))
    return np.maximum(layout.m * ranks.slowest(layout.pp), longest)


def _thriftiest(acts: Activations) -> Activations:
    """What any recomputation keeps at least, with no working set of its own."""
    return replace(acts, kinds=tuple(map(_input_alone, acts.kinds)), mtp_bytes=0.0)


def _input_alone(kind: Kept) -> Kept:
    least = np.minimum(kind.input_bytes, kind.layer_bytes)
    return replace(kind, layer_bytes=least, whole_bytes=least)


def may_fit(recipe: Recipe, layout: Layouts, known: Parts) -> Mask:
    """Whether layouts without recomputation could fit with any.

    Formula: rank_memory() of inputs of layers alone
    Source:  [korthikanti2022] sec. 5
    Assumes: no recomputation keeps less.
    """
    split, _, _, acts = known
    ranks = rank_memory.ranks(recipe, layout, split)
    memory = rank_memory.worst(rank_memory.rank_memories(recipe, layout, _thriftiest(acts), ranks))
    chance = rank_memory.oom_probability(recipe, memory, limit_bytes(recipe))
    return np.asarray(chance < ACCEPTED_OOM_PROBABILITY)


def split_may_fit(recipe: Recipe, layout: Layouts) -> Mask:
    """Whether splits with a sharding could fit with some stages and some recomputation.

    Formula: rank_memory() of the mean rank, 1/p of all layers, inputs alone, one micro-batch in
             flight; without the parameters of embedding and head
    Source:  the fullest rank holds no less than the mean of them
    Assumes: kinds of layers shared evenly by the mean rank.
    """
    layers = Layers(counts(recipe.model)) / layout.pp
    dense, routed = layers_params(recipe.model, layout, layers)
    end = np.asarray(1 / layout.pp)
    mean = Rank(layers, dense + routed, 1.0, end, end, routed)
    acts = _thriftiest(parts(recipe, layout)[3])
    [memory] = rank_memory.rank_memories(recipe, layout, acts, (mean,))
    chance = rank_memory.oom_probability(recipe, memory, limit_bytes(recipe))
    return np.asarray(chance < ACCEPTED_OOM_PROBABILITY)
