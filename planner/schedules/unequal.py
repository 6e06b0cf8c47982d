"""Makespans when the first and the last stage take other times than those between, for the search:
of GPipe exactly; of 1F1B and interleaved 1F1B as follows.

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

from planner.numeric import Numeric


@dataclass(frozen=True, slots=True)
class Chunks:
    """Times of virtual stages, one microbatch: the first (embedding), those between, the last (head
    and loss). Numbers or columns.
    """

    first: Numeric
    middle: Numeric
    last: Numeric

    @property
    def columns(self) -> tuple[Numeric, Numeric, Numeric]:
        return self.first, self.middle, self.last

    def divided(self, v: Numeric) -> Chunks:
        """Times of ranks as times of their v chunks: what an end rank takes beyond a middle rank is
        in its end chunk.
        """
        chunk = self.middle / v
        rest = self.middle - chunk
        first, last = np.maximum(self.first - rest, 0.0), np.maximum(self.last - rest, 0.0)
        return Chunks(first, chunk, last)

    def through(self, p: Numeric) -> Numeric:
        """Of one microbatch through p stages; with p = 1 both ends in one."""
        return self.first + (p - 2) * self.middle + self.last

    def slowest(self, p: Numeric) -> Numeric:
        """Of one microbatch on the slowest of at least two stages."""
        ends = np.maximum(self.first, self.last)
        return np.where(np.greater(p, 2), np.maximum(ends, self.middle), ends)

    def __add__(self, other: Chunks) -> Chunks:
        return Chunks(self.first + other.first, self.middle + other.middle, self.last + other.last)


def one_at_a_time(p: Numeric, m: Numeric, v: Numeric, forward: Chunks, backward: Chunks) -> Numeric:
    """Makespan with unequal ends when one rank works at a time.

    Formula: m sum T, T = f + b
    Source:  [huang2019 sec. 2.3]
    Assumes: no transfer time.
    """
    return m * (forward + backward).through(p)


def gpipe(p: Numeric, m: Numeric, v: Numeric, forward: Chunks, backward: Chunks) -> Numeric:
    """Makespan of GPipe with unequal ends: all forwards, then all backwards.

    Formula: sum f + (m - 1) max f + sum b + (m - 1) max b
    Source:  [huang2019 sec. 2.3], a permutation flow shop of equal jobs each way
    Assumes: no transfer time; exact.
    """
    total = (forward + backward).through(p)
    longest = forward.slowest(p) + backward.slowest(p)
    return np.where(np.equal(p, 1), m * total, total + (m - 1) * longest)


def one_f_one_b(p: Numeric, m: Numeric, v: Numeric, forward: Chunks, backward: Chunks) -> Numeric:
    """Makespan of 1F1B with unequal ends; backward: the full backward.

    Formula: max over ranks i in 0, 1, p-2, p-1 of: m T_i + sum_{j<i} T_j + F + D; sum T + k f_i +
             (m-1) b_i + D; sum T + (m-1) f_i + k b_i + F; sum T + sum_{j>i} T_j + k T_i if k > 0;
             with T = f + b, w = min(m, p - i), k = m - w, F = (w-1) max(0, f_0 - f_i), D = (w-1)
             max(0, b_0 - b_i)
    Source:  [narayanan2021 sec. 2.2], derived from the order and compared with the simulator
    Assumes: no transfer time; a lower bound, exact for equal stages (see the file's head).
    """
    both = forward + backward
    total = both.through(p)
    # Rank 1 of two ranks is the last.
    inner_forward = np.where(np.greater(p, 2), forward.middle, forward.last)
    inner_backward = np.where(np.greater(p, 2), backward.middle, backward.last)
    slower_forward = np.maximum(0, forward.first - inner_forward)
    slower_backward = np.maximum(0, backward.first - inner_backward)
    longest = np.maximum(
        _paths(m, np.minimum(m, p), total, forward.first, backward.first, 0),
        _paths(m, np.minimum(m, 1), total, forward.last, backward.last, total - both.last),
    )
    for rank in (1, np.maximum(p - 2, 1)):
        window = np.minimum(m, p - rank)
        before = both.first + (rank - 1) * both.middle
        fill, drain = (window - 1) * slower_forward, (window - 1) * slower_backward
        path = _paths(m, window, total, inner_forward, inner_backward, before, fill, drain)
        longest = np.maximum(longest, path)
    return np.where(np.equal(p, 1), m * total, longest)


def _paths(
    m: Numeric,
    window: Numeric,
    total: Numeric,
    forward: Numeric,
    backward: Numeric,
    before: Numeric,
    fill: Numeric = 0,
    drain: Numeric = 0,
) -> Numeric:
    """The longest of the four paths of 1F1B over one rank.

    window: microbatches that the rank has in flight at most. total: one microbatch through all
    ranks; before: through the ranks ahead of this one. fill, drain: what rank 0 takes longer.
    """
    later, own = m - window, forward + backward
    without_pause = m * own + before + fill + drain
    wait_for_backward = total + later * forward + (m - 1) * backward + drain
    wait_at_end = total + (m - 1) * forward + later * backward + fill
    both_waits = np.where(later > 0, 2 * total - before - own + later * own, 0)
    waits = np.maximum(wait_for_backward, wait_at_end)
    return np.maximum(np.maximum(without_pause, waits), both_waits)


def interleaved(p: Numeric, m: Numeric, v: Numeric, forward: Chunks, backward: Chunks) -> Numeric:
    """Makespan of Megatron's interleaved 1F1B (group p) with unequal ends; times are of one chunk;
    v >= 2, p >= 2, m >= p.

    Formula: max over the same four paths of ranks 0, 1, p-2, p-1, with n = min(m v, (v-1) p + 2
             (p-1-i) + 1) forwards of rank i up to its first backward, and as many backwards after
             its last forward
    Source:  [narayanan2021 sec. 2.2], derived from the order and compared with the simulator
    Assumes: no transfer time; a lower bound, exact for equal chunks (see the file's head).
    """
    way_down, way_back = _way_down(p, v, forward), _way_down(p, v, backward)
    longest: Numeric = 0.0
    for rank in (0, 1, np.maximum(p - 2, 1), p - 1):
        n = np.minimum(m * v, (v - 1) * p + 2 * (p - 1 - rank) + 1)
        busy = m * (_work(p, v, rank, forward) + _work(p, v, rank, backward))
        filled, drained = _turns(p, v, rank, n, forward), _turns(p, v, rank, n, backward)
        last_forward = _last_chunk(p, rank, forward)
        last_backward = _last_chunk(p, rank, backward)
        enter, leave = _before(rank, forward), _before(rank, backward)
        if not _is_first(rank):
            enter = enter + _through_first(p, v, n, forward, last_forward - filled)
            leave = leave + _through_first(p, v, n, backward, last_backward - drained)
        first_back = way_down + _chain(p, rank, backward) - last_backward - filled
        last_ahead = way_back + _chain(p, rank, forward) - last_forward - drained
        both_waits = np.where(n < m * v, first_back + last_ahead, 0)
        waits = np.maximum(np.maximum(enter, first_back) + leave, last_ahead + enter)
        longest = np.maximum(longest, busy + np.maximum(waits, both_waits))
    return longest


def _is_first(rank: Numeric) -> bool:
    """Whether these are turns of rank 0; a column holds later ranks only."""
    return isinstance(rank, int) and rank == 0


def _work(p: Numeric, v: Numeric, rank: Numeric, times: Chunks) -> Numeric:
    """Of one microbatch through all chunks of a rank; p >= 2."""
    if _is_first(rank):
        return (v - 1) * times.middle + times.first
    return v * times.middle + np.equal(rank, p - 1) * (times.last - times.middle)


def _before(rank: Numeric, times: Chunks) -> Numeric:
    """Of stages 0 to rank - 1."""
    return 0.0 if _is_first(rank) else times.first + (rank - 1) * times.middle


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
    if _is_first(rank):
        firsts = p + np.maximum(0, n - v * p)
        return n * times.middle + firsts * (times.first - times.middle)
    lasts = np.equal(rank, p - 1) * (n - (v - 1) * p)
    return n * times.middle + lasts * (times.last - times.middle)


def _through_first(p: Numeric, v: Numeric, n: Numeric, times: Chunks, own: Numeric) -> Numeric:
    """What the path gains when rank 0 runs the n - 1 forwards of a rank's fill (or its drain's
    backwards) in that rank's stead. own: the rank's last chunk, less its own first n turns.
    """
    return np.maximum(0, _turns(p, v, 0, n, times) - times.first + own)
