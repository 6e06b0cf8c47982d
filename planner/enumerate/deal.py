"""Layers dealt to the stages of a pipeline: of all cuts into runs of layers that memory allows, one
whose busiest rank has the least work.

A dynamic programme over ranks. A state says where each of a rank's v chunks ends; the next rank's
chunks begin there. So the work of a rank, all its chunks together, is a cost between two states,
and the least work of the busiest is the shortest path by its longest edge. Chunk c + 1 of the first
rank begins where chunk c of the last one ends: a path returns to the state that it started in,
moved by one chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Cost = Callable[[int, list[Floats]], Floats]
"""What a rank, counted from 0, with so many seconds in each of its stages costs."""
TOGETHER = 4
"""Chunks of a rank whose bounds move at once; of more, so many neighbours at a time."""
EDGES = 70_000
"""Edges between two ranks that are looked at: states hold as many bounds around the last cut as
that allows, NEAREST at the least. With v = 1 all of them, up to 260 layers.
"""
NEAREST = 3
TINY = 1e-9
"""Shares of the work that count as nothing."""
BEHIND = 8
"""Ranks after which work costs twice as much where deals are alike: of 140 random questions the
simulated step was least with it.
"""
_LACKS = 1e6
"""Ranks of work that lacking memory counts as."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is dealt: L layers in order, to p ranks with v chunks each."""

    seconds: Floats
    """(L,) of each layer, forward and backward of one micro-batch."""
    ends_s: Floats
    """(p,) what each rank does beside its layers: in its first chunk on the first rank, in its last
    one on the last.
    """
    fewest: Ints
    """(p v,) layers of each stage at the least."""

    @property
    def ranks(self) -> int:
        return len(self.ends_s)

    @property
    def chunks(self) -> int:
        return len(self.fewest) // self.ranks

    @property
    def mean_s(self) -> float:
        """Of a rank, were the work divisible."""
        return float(self.seconds.sum() + self.ends_s.sum()) / self.ranks

    @property
    def least_s(self) -> float:
        """Seconds that the busiest rank has in no deal less of: the mean, or a rank with the fewest
        layers that it may have; where layers are alike, what whole layers leave.
        """
        layer = float(self.seconds.min())
        fewest = self.fewest.reshape(-1, self.ranks).sum(axis=0)
        least = max(self.mean_s, float(np.max(self.ends_s + layer * fewest)))
        if self.seconds.max() > layer:
            return least
        steps = np.sort(np.ceil((least - self.ends_s) / layer - TINY) * layer + self.ends_s)
        held = np.floor((steps[:, None] - self.ends_s) / layer + TINY).sum(axis=1)
        return float(steps[np.argmax(held >= len(self.seconds))])


@dataclass(frozen=True, slots=True)
class Space:
    """The memory that layers are dealt to."""

    bytes: tuple[Floats, ...]
    """Of each rank (moments, v, L): what each layer takes in each of its chunks, with the
    micro-batches in flight there at each moment that may be the fullest.
    """
    room: Floats
    """(p,) bytes for the layers of each rank."""


class Deal(NamedTuple):
    """Layers of each stage, in the order that activations pass them, and the busiest rank's
    seconds.
    """

    sizes: list[int]
    busiest_s: float


def deals(work: Work, space: Space) -> list[Deal]:
    """Of the deals whose busiest rank has the least work, which decides where micro-batches are
    many, the one whose stages differ least, and the one with less work behind, which goes first
    where ranks have one chunk; and that with the most even stages of all, which fills and drains
    faster. None where memory holds none that is found.
    """
    if work.fewest.sum() > len(work.seconds):
        return []
    costs: list[Cost] = [_behind, _uneven] if work.chunks == 1 else [_uneven, _behind]
    ways = [*((cost, False) for cost in costs), (_uneven, True)]
    found = (_deal(work, space, cost, alone) for cost, alone in ways)
    return [each for each in found if each.busiest_s < _LACKS * work.mean_s]


def _deal(work: Work, space: Space, cost: Cost, alone: bool) -> Deal:
    """The best deal that is found.

    Formula: min over cuts of max over ranks of their seconds, then of the sum of the ranks' cost;
             alone: of this alone
    Source:  [megatron-core] pipeline_parallel_layer_layout: rank r has the stages r, r + p, ...
    Assumes: seconds and bytes of a rank are sums over its layers. Exact where EDGES leaves all
             bounds (v = 1; windows of 9 for v = 2, of 3 for v = 4); else no bounds near the cut do
             better together.
    """
    cut, best, improves = _even(work), _Found(np.inf, np.inf, np.inf), True
    while improves:
        improves = False
        for chunks in _neighbours(work.chunks):
            found, moved = _moved(work, space, _Near(cut, chunks), cost, alone)
            if found.less(best):
                best, cut, improves = found, moved, True
    return Deal(np.diff(cut).tolist(), best.busiest_s)


def _uneven(rank: int, stages_s: list[Floats]) -> Floats:
    """The squares of its stages' seconds."""
    first, *rest = (seconds**2 for seconds in stages_s)
    return sum(rest, start=first)


def _behind(rank: int, stages_s: list[Floats]) -> Floats:
    """The squares, the more the further behind the rank is: it is waited for at first."""
    return (1 + rank / BEHIND) * _uneven(rank, stages_s)


class _Near(NamedTuple):
    """Where cuts are looked for."""

    cut: Ints
    """(S + 1,) bounds of stages."""
    chunks: range
    """Those of each rank whose bounds move."""


class _Found(NamedTuple):
    """How good a cut is, first to last."""

    longest: float
    """The busiest rank's seconds where they count."""
    cost: float
    busiest_s: float

    def less(self, other: _Found) -> bool:
        return self.longest < other.longest * (1 - TINY) or (
            self.longest <= other.longest and self.cost < other.cost * (1 - TINY)
        )


def _neighbours(v: int) -> list[range]:
    """Chunks that move together: all, or each TOGETHER of them."""
    return [range(first, min(first + TOGETHER, v)) for first in range(max(v - TOGETHER, 0) + 1)]


def _even(work: Work) -> Ints:
    """(S + 1,) bounds that come nearest to equal work of the ranks, in equal chunks."""
    through = np.cumsum(np.tile(np.maximum(work.mean_s - work.ends_s, 0.0), work.chunks))
    done = np.append(0.0, np.cumsum(work.seconds))
    places = np.interp(through / through[-1] * done[-1], done, np.arange(len(done)))
    least, most = _limits(work)
    bounds = np.clip(np.append(0, np.rint(places)).astype(int), least, most)
    bounds = np.maximum.accumulate(bounds - least) + least
    inside: Ints = np.minimum(bounds, most)
    return inside


def _limits(work: Work) -> tuple[Ints, Ints]:
    """(S + 1,) where each bound can be at the least and at the most."""
    least = np.append(0, np.cumsum(work.fewest))
    most = len(work.seconds) - least[-1] + least
    most[0], least[-1] = 0, most[-1]
    return least, most


def _moved(work: Work, space: Space, near: _Near, cost: Cost, alone: bool) -> tuple[_Found, Ints]:
    """The best cut near another."""
    cut, chunks = near
    ranks, v = work.ranks, work.chunks
    width = max(int(EDGES ** (1 / (3 * len(chunks) - 1))), NEAREST)
    least, most = _limits(work)
    windows = []
    for at, bound in enumerate(cut):
        spread = width if chunks.start * ranks < at < chunks.stop * ranks else 1
        low = max(min(bound - (spread - 1) // 2, most[at] - spread + 1), least[at])
        windows.append(np.arange(low, min(low + spread, most[at] + 1)))
    states = [_grid([windows[c * ranks + rank] for c in range(v)]) for rank in range(ranks + 1)]
    pairs = list(pairwise(states))
    longest = [_rank_s(work, space, rank, *pair) for rank, pair in enumerate(pairs)]
    least_s, _ = _shortest(longest, np.maximum)
    any_that_fits = alone and least_s < _LACKS * work.mean_s
    limit_s = _LACKS * work.mean_s if any_that_fits else least_s * (1 + TINY)
    costs = [
        np.where(seconds <= limit_s, cost(rank, _stage_s(work, rank, *pair)), np.inf)
        for rank, (pair, seconds) in enumerate(zip(pairs, longest, strict=True))
    ]
    total, path = _shortest(costs, np.add)
    steps = zip(longest, pairwise(path), strict=True)
    busiest_s = max(float(seconds[step]) for seconds, step in steps)
    bounds = [states[rank][:, state] for rank, state in enumerate(path)]
    found = _Found(0.0 if any_that_fits else least_s, total, busiest_s)
    return found, np.append(np.array(bounds[:-1]).T.ravel(), len(work.seconds))


def _grid(windows: list[Ints]) -> Ints:
    """(v, states) every combination of a bound from each window."""
    grid = np.zeros((0, 1), int)
    for window in windows:
        grid = np.vstack([np.repeat(grid, len(window), axis=1), np.tile(window, grid.shape[1])])
    return grid


def _stage_s(work: Work, rank: int, begins: Ints, ends: Ints) -> list[Floats]:
    """(states, next states) seconds of each chunk of a rank."""
    done = np.append(0.0, np.cumsum(work.seconds))
    each = [
        done[end][None, :] - done[begin][:, None] for begin, end in zip(begins, ends, strict=True)
    ]
    chunk = -1 if rank == work.ranks - 1 else 0
    each[chunk] = each[chunk] + work.ends_s[rank]
    return each


def _rank_s(work: Work, space: Space, rank: int, begins: Ints, ends: Ints) -> Floats:
    """(states, next states) seconds of a rank; infinite where a chunk has too few layers, beyond
    all others where memory lacks, the more so the more it lacks.
    """
    seconds: Floats = np.sum(_stage_s(work, rank, begins, ends), axis=0)
    lacks = _lacks(space, rank, begins, ends)
    seconds += np.where(lacks > TINY, _LACKS * work.mean_s * (1 + lacks), 0.0)
    for chunk, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        few = end[None, :] - begin[:, None] < work.fewest[chunk * work.ranks + rank]
        seconds[few] = np.inf
    return seconds


def _lacks(space: Space, rank: int, begins: Ints, ends: Ints) -> Floats:
    """(states, next states) share of its room that a rank lacks at its fullest moment, negative
    where it has some left; (1, 1) where that is so of all.
    """
    through = np.insert(np.cumsum(space.bytes[rank], axis=2), 0, 0.0, axis=2)
    chunks, room = np.arange(len(begins))[:, None], max(space.room[rank], 1.0)
    begun, ended = (through[:, chunks, bounds].sum(axis=1) for bounds in (begins, ends))
    most: Floats = (ended.max(axis=1) - begun.min(axis=1)).max()
    if most > room:
        most = (ended[:, None, :] - begun[:, :, None]).max(axis=0)
    return np.atleast_2d(most / room - 1)


def _shortest(
    edges: list[Floats], joined: Callable[[Floats, Floats], Floats]
) -> tuple[float, list[int]]:
    """The shortest path by `joined` edges that ends in the state it began in, and its states.

    edges: (states, next states) of each rank.
    """
    lengths = [edges[0]]
    for each in edges[1:]:
        lengths.append(joined(lengths[-1][:, :, None], each).min(axis=1))
    closed = np.diagonal(lengths[-1])
    start = int(closed.argmin())
    path = [start]
    for length, each in zip(lengths[-2::-1], edges[:0:-1], strict=True):
        path.append(int(joined(length[start], each[:, path[-1]]).argmin()))
    return float(closed[start]), [start, *reversed(path)]
