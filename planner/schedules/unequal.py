"""1F1B and interleaved 1F1B when the first and the last stage take other times than those between: columns for the search.

Each estimate is the longest of a few paths through the order, so it is a lower bound of the exact makespan, and equals it when the
stages are equal. Paths of a rank i: it works without a pause from its first to its last action; it waits for its first backward; its last
forward has to travel down and back before it can end; or both.
Against the simulator (forward 1, backward 2, p 2 to 16, m p to 8p, v 2 to 4; a test repeats it): 1F1B is exact when one end differs from the
middle, and at most 2% low when both do, at 0.3 to 3 times the middle. Interleaved is exact when the first is not slower than the middle
and the last not faster, at most 4% low with one slower first chunk, at most 8% low over the whole range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.layout import Numeric


@dataclass(frozen=True, slots=True)
class Chunks:
    """Times of virtual stages, one microbatch: the first (embedding), those between, the last (head and loss). Numbers or columns."""

    first: Numeric
    middle: Numeric
    last: Numeric

    def __add__(self, other: Chunks) -> Chunks:
        return Chunks(self.first + other.first, self.middle + other.middle, self.last + other.last)


def one_f_one_b(p: Numeric, m: Numeric, forward: Chunks, backward: Chunks) -> Numeric:
    """Makespan of 1F1B with unequal ends; backward: the full backward.

    Formula: max over paths of ranks 0, 1, p-2, p-1: m T_i + sum_{j<i} T_j; sum T + k f_i + (m-1) b_i; sum T + (m-1) f_i + k b_i;
             sum T + sum_{j>i} T_j + k T_i (k > 0), with k = max(0, m - (p - i)), T = f + b
    Source:  [narayanan2021 sec. 2.2], derived from the order and compared with the simulator
    Assumes: no transfer time; a lower bound, exact for equal stages (see the file's head).
    """
    both = forward + backward
    total = _before(p - 1, both) + _own(p, p - 1, both)
    paths = []
    for rank in _ranks(p):
        time, later = _own(p, rank, both), np.maximum(0, m - (p - rank))
        ahead, back = _own(p, rank, forward), _own(p, rank, backward)
        paths += [
            m * time + _before(rank, both),
            total + later * ahead + (m - 1) * back,
            total + (m - 1) * ahead + later * back,
            np.where(later > 0, 2 * total - _before(rank, both) - time + later * time, 0),
        ]
    return _longest(paths)


def interleaved(p: Numeric, m: Numeric, v: Numeric, forward: Chunks, backward: Chunks) -> Numeric:
    """Makespan of Megatron's interleaved 1F1B (group p) with unequal ends; times are of one chunk; v >= 2, p >= 2, m >= p.

    Formula: max over paths of ranks 0, 1, p-2, p-1 as in the file's head, with n = min(m v, (v-1) p + 2 (p-1-i) + 1) forwards of rank i
             before its first backward and as many backwards after its last forward
    Source:  [narayanan2021 sec. 2.2], derived from the order and compared with the simulator
    Assumes: no transfer time; a lower bound, exact for equal chunks (see the file's head).
    """
    both = forward + backward
    paths = []
    for rank in _ranks(p):
        start, end = _before(rank, forward), _before(rank, backward)
        busy_ahead, busy_back = m * _work(p, v, rank, forward), m * _work(p, v, rank, backward)
        first_back = _way_down(p, v, forward) + _chain(p, rank, backward)
        last_ahead = _way_down(p, v, backward) + _chain(p, rank, forward)
        ahead_done, back_left = _filled(p, m, v, rank, forward), _filled(p, m, v, rank, backward)
        both_left = busy_ahead - ahead_done + busy_back - back_left - _last_chunk(p, rank, both)
        paths += [
            m * _work(p, v, rank, both) + start + end,
            first_back + busy_ahead - ahead_done + busy_back - _last_chunk(p, rank, backward) + end,
            last_ahead + busy_back - back_left + busy_ahead - _last_chunk(p, rank, forward) + start,
            np.where(ahead_done < busy_ahead, first_back + last_ahead + both_left, 0),
        ]
    return _longest(paths)


def _longest(paths: list[Numeric]) -> Numeric:
    longest = paths[0]
    for path in paths[1:]:
        longest = np.maximum(longest, path)
    return longest


def _ranks(p: Numeric) -> tuple[Numeric, ...]:
    """Where a path can be longest: the ends and their neighbours (between them every path is linear in the rank)."""
    return 0 * p, np.minimum(1, p - 1), np.maximum(p - 2, 0), p - 1


def _own(p: Numeric, rank: Numeric, times: Chunks) -> Numeric:
    """Of the one stage of a rank, v = 1; with p = 1 both ends in one."""
    return _work(p, 1, rank, times)


def _work(p: Numeric, v: Numeric, rank: Numeric, times: Chunks) -> Numeric:
    """Of one microbatch through all chunks of a rank."""
    at_first, at_last = np.equal(rank, 0), np.equal(rank, p - 1)
    return v * times.middle + at_first * (times.first - times.middle) + at_last * (times.last - times.middle)


def _before(rank: Numeric, times: Chunks) -> Numeric:
    """Of stages 0 to rank - 1."""
    return rank * times.middle + np.greater(rank, 0) * (times.first - times.middle)


def _last_chunk(p: Numeric, rank: Numeric, times: Chunks) -> Numeric:
    """Of a rank's chunk v - 1, v >= 2."""
    return times.middle + np.equal(rank, p - 1) * (times.last - times.middle)


def _chain(p: Numeric, rank: Numeric, times: Chunks) -> Numeric:
    """Of one microbatch through chunk v - 1 of ranks `rank` to p - 1."""
    return times.last + (p - 1 - rank) * times.middle


def _way_down(p: Numeric, v: Numeric, times: Chunks) -> Numeric:
    """From the step's start until the last stage has run its first microbatch (or, backward, from its last one to the step's end).

    The first rank sends its round of p microbatches through v - 1 chunks, or the last one does, whichever is slower.
    """
    through_last = _before(p - 1, times) + (v - 1) * p * times.middle + times.last
    through_first = p * times.first + ((v - 2) * p + p - 1) * times.middle + times.last
    return np.maximum(through_last, through_first)


def _filled(p: Numeric, m: Numeric, v: Numeric, rank: Numeric, times: Chunks) -> Numeric:
    """Of the n actions of one direction that a rank runs on its own: forwards of the fill, or, mirrored, backwards of the drain."""
    n = np.minimum(m * v, (v - 1) * p + 2 * (p - 1 - rank) + 1)
    firsts = np.equal(rank, 0) * (p + np.maximum(0, n - v * p))
    lasts = np.equal(rank, p - 1) * (n - (v - 1) * p)
    return n * times.middle + firsts * (times.first - times.middle) + lasts * (times.last - times.middle)
