"""What to measure next: predicted times, corrected by what was measured, and where a faster layout
may hide.

NOTE: written by hand rather than with optuna's GPSampler or scikit-learn. The mean is the cost
model, neighbours are layouts whose steps have like shares of the cost model's terms, and the chance
to run out of memory weighs the gain; neither library takes these three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.tune.study.space import CODES, NUMBERS, Candidate, knobs

LEVEL = 0.5
"""Standard deviation of log(measured / predicted) that all layouts share: a machine slower or
faster than its profile.
"""
TERM = 0.2
"""The same of one group of terms of the step: a network slower than its profile."""
LOCAL = 0.1
"""The same of a layout and its neighbours alone."""
NOISE = 0.02
"""The least that a measurement may be off."""
OUTLIER = 0.35
"""A ratio farther than this from the median of all says no more than one at this distance: some
runs are slow by themselves.
"""
FAILED = 0.95
"""How far a failure speaks against the layout beside it; against one a doubling away it speaks 0.6
of that.
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of a candidate."""

    index: int
    measured_s: float | None
    """None where it failed."""
    oom: bool = False
    noise_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Belief:
    """Of each candidate: log of the step's seconds as mean and standard deviation, and the chance
    that it runs at all.
    """

    mean: np.ndarray
    deviation: np.ndarray
    runs: np.ndarray


def belief(candidates: Sequence[Candidate], seen: Sequence[Seen]) -> Belief:
    """A Gaussian process over log(measured / predicted), whose mean before any measurement is 0.

    Formula: k(a, b) = LEVEL^2 + TERM^2 * sum_g share_g(a) share_g(b) + LOCAL^2 * exp(-distance^2 /
             2)
    Source:  Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1
    Assumes: errors of the cost model are errors of its terms, alike for layouts in which a term
             weighs alike.
    """
    points = np.array([knobs(candidate.layout) for candidate in candidates])
    shares = np.array([candidate.shares for candidate in candidates])
    predicted = np.log([candidate.predicted_s for candidate in candidates])
    timed = [trial for trial in seen if trial.measured_s is not None]
    variance = LEVEL**2 + TERM**2 * (shares**2).sum(axis=1) + LOCAL**2
    if not timed:
        return Belief(predicted, np.sqrt(variance), _runs(candidates, points, seen))
    rows = np.array([trial.index for trial in timed])
    ratio = np.log([trial.measured_s or math.nan for trial in timed]) - predicted[rows]
    ratio = np.clip(ratio, np.median(ratio) - OUTLIER, np.median(ratio) + OUTLIER)
    noise = np.array([max(NOISE, trial.noise_share) for trial in timed])
    between = _kernel(points, shares, rows)
    solved = np.linalg.solve(between[rows] + np.diag(noise**2), np.column_stack([ratio, between.T]))
    mean = predicted + between @ solved[:, 0]
    left = variance - np.einsum("ij,ji->i", between, solved[:, 1:])
    return Belief(mean, np.sqrt(np.maximum(left, 1e-12)), _runs(candidates, points, seen))


def _kernel(points: np.ndarray, shares: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(candidates, measured) covariances."""
    return np.asarray(LEVEL**2 + TERM**2 * shares @ shares[rows].T + LOCAL**2 * _near(points, rows))


def _near(points: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """1 for the same layout, 0.6 one doubling or one other name away, then falling off."""
    numbers, codes = points[:, : len(NUMBERS)], points[:, -len(CODES) :]
    doublings = ((numbers[:, None] - numbers[None, rows]) ** 2).sum(axis=2)
    other_names = (codes[:, None] != codes[None, rows]).sum(axis=2)
    return np.asarray(np.exp(-(doublings + other_names) / 2))


def _runs(candidates: Sequence[Candidate], points: np.ndarray, seen: Sequence[Seen]) -> np.ndarray:
    """The cost model's chance to fit, less what failures beside a layout say, and those of layouts
    that need less memory.
    """
    out = np.array([1 - candidate.oom_probability for candidate in candidates])
    failed = [trial for trial in seen if trial.measured_s is None]
    if failed:
        near = _near(points, np.array([trial.index for trial in failed]))
        out = out * np.prod(1 - FAILED * near, axis=1)
    memory = np.array([candidate.memory_bytes for candidate in candidates])
    for trial in failed:
        if trial.oom:
            out = np.where(memory >= memory[trial.index], out * (1 - FAILED), out)
    return out


def next_index(
    candidates: Sequence[Candidate], seen: Sequence[Seen], taken: set[int], first: int
) -> int | None:
    """The first candidates in their order, then the best next."""
    for index in range(min(first, len(candidates))):
        if index not in taken:
            return index
    return best_next(candidates, seen, taken)


def best_next(candidates: Sequence[Candidate], seen: Sequence[Seen], taken: set[int]) -> int | None:
    """The untaken candidate with the largest expected improvement over the best measured; None when
    all are taken.

    Formula: EI = (best - mean) * Phi(z) + deviation * phi(z), z = (best - mean) / deviation, in log
             seconds
    Source:  Jones, Schonlau and Welch, Efficient Global Optimization of Expensive Black-Box
             Functions, 1998, equation 15
    Assumes: a failed trial gains nothing.
    """
    free = np.setdiff1d(np.arange(len(candidates)), list(taken))
    if not len(free):
        return None
    now = belief(candidates, seen)
    times = [trial.measured_s for trial in seen if trial.measured_s is not None]
    if not times:
        likely = now.mean[free] - np.log(np.maximum(now.runs[free], 1e-9))
        return int(free[np.argmin(likely)])
    gain = improvement(math.log(min(times)), now.mean[free], now.deviation[free]) * now.runs[free]
    return int(free[np.argmax(gain)])


def improvement(best: float, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    z = (best - mean) / deviation
    phi = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    below = 0.5 * np.vectorize(math.erfc)(-z / math.sqrt(2))
    return np.asarray((best - mean) * below + deviation * phi)
