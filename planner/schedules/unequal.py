"""1F1B and interleaved 1F1B when the first and the last stage take other times than those between:
columns for the search.

Each estimate is the longest of a few paths through the order, so it is a lower bound of the exact
makespan, and equals it when the stages are equal. Paths of a rank: it works without a pause from
its first to its last action; it waits for its first backward; its last forward has to travel down
and back before it can end; or both. In the fill and the drain the first rank may be in its place.
Against the simulator (forward 1, backward 2, ends at 0.3 to 3 times the middle, p 2 to 16, m p to
8p, v 2 to 4; a test repeats it): 1F1B is exact when one end differs from the middle, and at most 4%
low when both do. Interleaved is exact when the first is not slower and the last not faster than the
middle; else at most 8% low for p > 2 (typically 0), and up to 12% for p = m = 2 with both ends far
lighter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.layout import Numeric


@dataclass(frozen=True, slots=True)
class Chunks:
    """Times of virtual stages, one microbatch: the first (embedding), those between, the last (head
    and loss). Numbers or columns.
    """

    first: Numeric
    middle: Numeric
    last: Numeric

    def __add__(self, other: Chunks) -> Chunks:
        return Chunks(self.first + other.first, self.middle + other.middle, self.last + other.last)


def one_f_one_b(p: Numeric, m: Numeric, forward: Chunks, backward: Chunks) -> Numeric:
    """Makespan of 1F1B with unequal ends; backward: the full backward.

    Formula: max over ranks i in 0, 1, p-2, p-1 of: m T_i + sum_{j<i} T_j + F + D; sum T + k f_i +
             (m-1) b_i + D; sum T + (m-1) f_i + k b_i + F; sum T + sum_{j>i} T_j + k T_i if k > 0;
             with T = f + b, w = min(m, p - i), k = m - w, F = (w-1) max(0, f_0 - f_i), D = (w-1)
             max(0, b_0 - b_i)
    Source:  [narayanan2021 sec. 2.2], derived from the order and compared with the simulator
    Assumes: no transfer time; a lower bound, exact for equal stages (see the file's head).
    """
    both = forward + backward
    total = _before(p - 1, both) + _work(p, 1, p - 1, both)
    paths = []
    for rank in _ranks(p):
        window = np.minimum(m, p - rank)
        ahead, back, before = (
            _work(p, 1, rank, forward),
            _work(p, 1, rank, backward),
            _before(rank, both),
        )
        later, fill = m - window, (window - 1) * np.maximum(0, _work(p, 1, 0, forward) - ahead)
        drain = (window - 1) * np.maximum(0, _work(p, 1, 0, backward) - back)
        paths += [
            m * (ahead + back) + before + fill + drain,
            total + later * ahead + (m - 1) * back + drain,
            total + (m - 1) * ahead + later * back + fill,
            np.where(later > 0, 2 * total - before - ahead - back + later * (ahead + back), 0),
        ]
    return _longest(paths)


def interleaved(p: Numeric, m: Numeric, v: Numeric, forward: Chunks, backward: Chunks) -> Numeric:
    """Makespan of Megatron's interleaved 1F1B (group p) with unequal ends; times are of one chunk;
    v >= 2, p >= 2, m >= p.

    Formula: max over the same four paths of ranks 0, 1, p-2, p-1, with n = min(m v, (v-1) p + 2
             (p-1-i) + 1) forwards of rank i up to its first backward, and as many backwards after
             its last forward
    Source:  [narayanan2021 sec. 2.2], derived from the order and compared with the simulator
    Assumes: no transfer time; a lower bound, exact for equal chunks (see the file's head).
    """
    paths = []
    for rank in _ranks(p):
        n = np.minimum(m * v, (v - 1) * p + 2 * (p - 1 - rank) + 1)
        ahead, back = m * _work(p, v, rank, forward), m * _work(p, v, rank, backward)
        filled, drained = _turns(p, v, rank, n, forward), _turns(p, v, rank, n, backward)
        enter = _before(rank, forward) + _through_first(p, v, rank, n, forward)
        leave = _before(rank, backward) + _through_first(p, v, rank, n, backward)
        first_back = (
            _way_down(p, v, forward)
            + _chain(p, rank, backward)
            - _last_chunk(p, rank, backward)
            - filled
        )
        last_ahead = (
            _way_down(p, v, backward)
            + _chain(p, rank, forward)
            - _last_chunk(p, rank, forward)
            - drained
        )
        paths += [
            ahead + back + enter + leave,
            ahead + back + first_back + leave,
            ahead + back + last_ahead + enter,
            np.where(n < m * v, ahead + back + first_back + last_ahead, 0),
        ]
    return _longest(paths)


def _longest(paths: list[Numeric]) -> Numeric:
    longest = paths[0]
    for path in paths[1:]:
        longest = np.maximum(longest, path)
    return longest


def _ranks(p: Numeric) -> tuple[Numeric, ...]:
    """Where a path can be longest: the ends and their neighbours (between them every path is linear
    in the rank).
    """
    return 0 * p, np.minimum(1, p - 1), np.maximum(p - 2, 0), p - 1


def _work(p: Numeric, v: Numeric, rank: Numeric, times: Chunks) -> Numeric:
    """Of one microbatch through all chunks of a rank; with p = 1 both ends in one."""
    at_first, at_last = np.equal(rank, 0), np.equal(rank, p - 1)
    return (
        v * times.middle
        + at_first * (times.first - times.middle)
        + at_last * (times.last - times.middle)
    )


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
    """From the step's start until the last stage has run its first microbatch (or, backward, from
    its last one to the step's end).

    The first rank sends its round of p microbatches through v - 1 chunks, or the last one does,
    whichever is slower.
    """
    through_last = _before(p - 1, times) + (v - 1) * p * times.middle + times.last
    through_first = p * times.first + ((v - 2) * p + p - 1) * times.middle + times.last
    return np.maximum(through_last, through_first)


def _turns(p: Numeric, v: Numeric, rank: Numeric, n: Numeric, times: Chunks) -> Numeric:
    """Of the first n forwards of a rank, or, mirrored, its last n backwards; n > (v - 1) p, at most
    the fill of rank 0.
    """
    firsts = np.equal(rank, 0) * (p + np.maximum(0, n - v * p))
    lasts = np.equal(rank, p - 1) * (n - (v - 1) * p)
    return (
        n * times.middle
        + firsts * (times.first - times.middle)
        + lasts * (times.last - times.middle)
    )


def _through_first(p: Numeric, v: Numeric, rank: Numeric, n: Numeric, times: Chunks) -> Numeric:
    """What the path gains when rank 0 runs the n - 1 forwards of a rank's fill (or its drain's
    backwards) in that rank's stead.
    """
    gain = (
        _turns(p, v, 0 * p, n, times)
        + _last_chunk(p, rank, times)
        - times.first
        - _turns(p, v, rank, n, times)
    )
    return np.greater(rank, 0) * np.maximum(0, gain)
