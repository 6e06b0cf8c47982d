"""Runs over several datacentres: which groups cross the link between them, and what that costs a
pipeline.
"""

from __future__ import annotations

import numpy as np

from planner.cost.network import collectives
from planner.cost.params.layer import total_params
from planner.cost.params.trained import trained_total
from planner.cost.params.vision import tower_in
from planner.layout import Layout, Layouts, Numeric
from planner.specs.deepspeed import all_reduces
from planner.specs.recipe import Recipe
from planner.units import GB, MICRO


def replicas_cross(recipe: Recipe, layout: Layouts) -> Numeric:
    """Whether the data-parallel groups span the sites; the pipelines do otherwise.

    Formula: dp where its exchange keeps the link busy for less time: bytes / link + latencies, of
             dp: (S-1)/S of what is trained: its gradients, twice without sharding, and its weights
             with it; under ZeRO 3 each micro-batch, with all weights twice;
             pp: hidden states of the batch each way, 2 v - 1 times, and m latencies where transfers
             block, else 2 (2 v - 1); the one of them that S divides, where it does not divide both
    Source:  derived by hand from [patarasuk2009]
    Assumes: hosts are dealt to ranks so that either may cross; all shards cross at once.
    """
    fabric, software = recipe.hardware.fabric, recipe.software
    link, latency = fabric.site_gbytes_per_s * GB, fabric.site_latency_us * MICRO
    part = (fabric.sites - 1) / fabric.sites
    weights = (total_params(recipe.model) + tower_in(recipe)) * part
    trained = trained_total(recipe) * part
    sharded, ranks_at_site = layout.sharded(1), layout.sharded(3)
    summed = software.states.grad_reduce_bytes * np.where(
        sharded & ~all_reduces(recipe, layout), 1.0, 2.0
    )
    bytes_a_step = trained * (summed + recipe.element_bytes * sharded)
    every_micro_batch = layout.m * (
        trained * software.states.grad_reduce_bytes + 2 * weights * recipe.element_bytes
    )
    bytes_a_step = np.where(ranks_at_site, every_micro_batch, bytes_a_step)
    over_dp = bytes_a_step / link + 2 * latency * np.where(ranks_at_site, layout.m, 1)
    hidden = recipe.tokens * recipe.model.hidden_size * recipe.element_bytes
    turns = 2 * layout.v - 1
    over_pp = hidden * turns / link + latency * np.where(layout.interleaved, 2 * turns, layout.m)
    by_dp, by_pp = (np.asarray(degree) % fabric.sites == 0 for degree in (layout.dp, layout.pp))
    return np.where(by_dp & by_pp, over_dp <= over_pp, by_dp | ~by_pp)


def group(recipe: Recipe, layout: Layouts, stride: Numeric, size: Numeric) -> collectives.Group:
    """A data-parallel group: collectives.group(), spread over the sites where replicas cross, but
    for the ranks of one copy of several, which lie at one site.
    """
    count = recipe.hardware.fabric.sites
    if count == 1:
        return collectives.group(recipe.hardware, stride, size)
    reaches = np.asarray(stride * size > layout.gpus / layout.pp / count)
    crosses = np.asarray(replicas_cross(recipe, layout)) & reaches
    sites = np.where(crosses, count, 1)
    return collectives.group(recipe.hardware, stride, size, sites, layout.gpus)


def hop_s(recipe: Recipe, layout: Layouts, near_s: Numeric, message_bytes: Numeric) -> Numeric:
    """A transfer between neighbouring stages as the pipeline feels it, of which near_s is one
    inside a site.

    Formula: c = latency + bytes gpus/p / link; v = 1: (c m + near (m + 2p - 4)) / (2 (m + p - 2)),
             near only with more than two ranks: the ranks at the slow boundary have one such, and a
             near one; v > 1: the mean of p v - 1 hops, S v - 1 of them c, at least the message's
             time on the link
    Source:  [megatron-core] blocking pairs in 1F1B; step.pp_comm_s(); checked against the simulator
    Assumes: boundaries between sites delay one another as one does.
    """
    fabric, pp, v, m = recipe.hardware.fabric, layout.pp, layout.v, layout.m
    if fabric.sites == 1:
        return near_s
    latency, busy = far_hop_s(recipe, layout, message_bytes)
    far = latency + busy
    others = np.where(np.asarray(pp) > 2, m + 2 * pp - 4, 0)
    plain = (far * m + near_s * others) / np.maximum(2 * (m + pp - 2), 1)
    hops = np.maximum(pp * v - 1, 1)
    slow = np.minimum(fabric.sites * v - 1, hops)
    mean = np.maximum((slow * far + (hops - slow) * near_s) / hops, busy)
    here = replicas_cross(recipe, layout) | (np.asarray(pp) == 1)
    return np.where(here, near_s, np.where(np.asarray(v) > 1, mean, plain))


def far_hop_s(recipe: Recipe, layout: Layouts, message_bytes: Numeric) -> tuple[float, Numeric]:
    """Latency between sites, and how long the messages of a stage, one from every GPU, are on the
    link.

    Formula: latency; bytes gpus/p / link
    Source:  derived by hand: what every GPU of a stage sends shares one link
    Assumes: all GPUs of a stage send at once.
    """
    fabric = recipe.hardware.fabric
    return fabric.site_latency_us * MICRO, message_bytes * layout.gpus / layout.pp / (
        fabric.site_gbytes_per_s * GB
    )


def between_ranks(
    recipe: Recipe, layout: Layout, near_s: float, message_bytes: float
) -> float | np.ndarray:
    """For one layout's simulation: seconds of a transfer, or (pp, pp) of them from rank to rank
    where pipelines cross.

    Formula: near inside a site, far_hop_s() between ranks of different ones; ranks lie in order,
             pp/S a site
    Source:  derived by hand from the order of ranks of planner.layout
    Assumes: boundaries between sites delay one another as one does.
    """
    count = recipe.hardware.fabric.sites
    if count == 1 or layout.pp == 1 or replicas_cross(recipe, layout):
        return near_s
    site = np.arange(layout.pp) * count // layout.pp
    return np.where(
        site[:, None] == site, near_s, max(sum(far_hop_s(recipe, layout, message_bytes)), near_s)
    )


def ends_pair(recipe: Recipe, layout: Layouts, stride: Numeric) -> collectives.Group:
    """First and last stage as a group of two: at different sites where pipelines cross."""
    if recipe.hardware.fabric.sites == 1:
        return collectives.group(recipe.hardware, stride, 2)
    apart = np.where(replicas_cross(recipe, layout), 1, 2)
    return collectives.group(recipe.hardware, stride, 2, apart, 2 * layout.gpus / layout.pp)


def notes(recipe: Recipe, layout: Layout) -> tuple[str, ...]:
    """For one layout: what crosses, in a sentence; nothing at one site."""
    fabric = recipe.hardware.fabric
    if fabric.sites == 1:
        return ()
    what = "replicas (dp)" if replicas_cross(recipe, layout) else "pipelines (pp)"
    return (
        (
            f"{fabric.sites} sites joined by {fabric.site_gbytes_per_s:g} GB/s,"
            f" {fabric.site_latency_us:g} us apart: {what} cross; hosts are to be dealt to ranks so"
        ),
    )
