"""Of deals of layers the one whose pipeline takes least: few micro-batches wait for its fill and
drain as much as for its busiest rank, so deals are simulated, and what differs from the best of
them by one layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.cost.pipeline import lengths, order
from planner.enumerate.deal import TINY, Floats, Ints, Space, Work
from planner.layout import Layout
from planner.simulator import makespans

NEIGHBOURS = 64
"""Deals, at most, that are simulated together: those with the least bound of their waits."""
WORTH = 0.001
"""Share of the time that a moved layer must save: less is not worth what it may take of memory."""
STEPS = 4
"""Layers that are moved, at most."""
ACTIONS = 25_000
"""Actions that are simulated, at most, over all steps; of longer orders the first deal is taken."""


@dataclass(frozen=True, slots=True)
class Pipe:
    """What a simulation needs beside the work that is dealt."""

    layout: Layout
    forward_s: Floats
    """(L,) of Work.seconds."""
    ends_forward_s: Floats
    """(p,) of Work.ends_s."""
    transfer_s: float
    blocking: bool

    @property
    def actions(self) -> int:
        return 2 * self.layout.pp * self.layout.v * sum(lengths(self.layout))

    def makespans(self, work: Work, sizes: Ints) -> Floats:
        """(C,) seconds from the first forward to the last backward. sizes: (C, S) of each deal."""
        forward = _stages(sizes, self.forward_s, self.ends_forward_s)
        backward = _stages(sizes, work.seconds, work.ends_s) - forward
        nothing = np.zeros_like(forward)
        spent = np.stack([forward, backward, nothing, nothing], axis=2)
        counts = lengths(self.layout)
        took = [self._makespans(spent, m) for m in counts]
        rest = (self.layout.m - counts[-1]) / (counts[-1] - counts[0] or 1)
        longest: Floats = took[-1] + rest * (took[-1] - took[0])
        return longest

    def _makespans(self, spent: Floats, m: int) -> Floats:
        sequence = order(replace(self.layout, m=m), spent[0], self.transfer_s)
        return makespans(sequence, spent, self.transfer_s, self.blocking)


def quickest(pipe: Pipe, work: Work, space: Space, deals: list[list[int]]) -> list[int]:
    """The quickest of the deals, or one that is a few moved layers away and quicker."""
    steps = min(ACTIONS // pipe.actions - 1, STEPS)
    if steps < 0:
        return deals[0]
    sizes = np.array(deals)
    took = pipe.makespans(work, sizes)
    best, best_s = sizes[took.argmin()], took.min()
    for _ in range(steps):
        near = _near(pipe, work, space, best)
        took = pipe.makespans(work, near) if len(near) else np.array([np.inf])
        if took.min() > best_s * (1 - WORTH):
            break
        best, best_s = near[took.argmin()], took.min()
    return [int(size) for size in best]


def _near(pipe: Pipe, work: Work, space: Space, sizes: Ints) -> Ints:
    """(C, S) deals with one layer on another stage that memory allows.

    Formula: ordered by max over ranks r of (seconds before r's first stage + m seconds of r)
    Source:  [narayanan2021] sec. 2.2: a rank begins when the forwards before have passed, and the
             backwards before are still to come when it ends
    Assumes: nothing beyond the order.
    """
    giver, taker = np.nonzero(~np.eye(len(sizes), dtype=bool))
    moved = np.eye(len(sizes), dtype=int)[taker] - np.eye(len(sizes), dtype=int)[giver]
    near = sizes + moved
    near = near[(near >= work.fewest).all(axis=1)]
    near = near[_held(space, near)]
    stages = _stages(near, work.seconds, work.ends_s)
    ranks = stages.reshape(len(near), work.chunks, work.ranks)
    first = ranks[:, 0]
    waits = np.cumsum(first, axis=1) - first + pipe.layout.m * ranks.sum(axis=1)
    chosen: Ints = near[np.argsort(waits.max(axis=1), kind="stable")[:NEIGHBOURS]]
    return chosen


def _bounds(sizes: Ints) -> Ints:
    """(C, S + 1) where stages begin and end."""
    return np.cumsum(np.pad(sizes, ((0, 0), (1, 0))), axis=1)


def _stages(sizes: Ints, layers_s: Floats, ends_s: Floats) -> Floats:
    """(C, S) seconds of each stage."""
    seconds: Floats = np.diff(np.append(0.0, np.cumsum(layers_s))[_bounds(sizes)], axis=1)
    seconds[:, : len(ends_s) - 1] += ends_s[:-1]
    seconds[:, -1] += ends_s[-1]
    return seconds


def _held(space: Space, sizes: Ints) -> Ints:
    """(C,) whether the memory of every rank holds its stages."""
    bounds, held = _bounds(sizes), np.ones(len(sizes), dtype=bool)
    for rank, (each, room) in enumerate(zip(space.bytes, space.room, strict=True)):
        through = np.insert(np.cumsum(each, axis=2), 0, 0.0, axis=2)
        stages = range(rank, sizes.shape[1], len(space.room))
        taken = sum(
            through[:, chunk, bounds[:, stage + 1]] - through[:, chunk, bounds[:, stage]]
            for chunk, stage in enumerate(stages)
        )
        held &= np.max(taken, axis=0) <= max(room, 1.0) * (1 + TINY)
    return held
