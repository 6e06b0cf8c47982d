"""The prior: a posterior checked against its textbook form, and what it learns of a machine that
the profile does not describe.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from planner.tune.study import prior
from planner.tune.study.prior import Seen, belief, best_next, improvement, next_index
from planner.tune.study.space import knobs
from tests.tune.simulated import question, real_s


def test_before_any_trial_the_belief_is_the_prediction() -> None:
    _, space = question()
    now = belief(space.candidates, [])
    assert np.exp(now.mean) == pytest.approx([one.predicted_s for one in space.candidates])
    assert (now.deviation > prior.LEVEL).all()


def test_the_posterior_is_that_of_gaussian_conditioning() -> None:
    """Mean and covariance of a joint normal, conditioned by its own formula: m + K (K + S)^-1 r, K
    - K (K + S)^-1 K.
    """
    _, space = question()
    each = space.candidates[:12]
    seen = [
        Seen(1, each[1].predicted_s * 1.3),
        Seen(4, each[4].predicted_s * 1.1, noise_share=0.05),
        Seen(7, each[7].predicted_s * 1.2),
    ]
    shares = np.array([one.shares for one in each])
    points = np.array([knobs(one.layout) for one in each])
    near = np.ones((12, 12))
    for a in range(12):
        for b in range(12):
            numbers = ((points[a, :9] - points[b, :9]) ** 2).sum()
            near[a, b] = math.exp(-(numbers + (points[a, 9:] != points[b, 9:]).sum()) / 2)
    covariance = prior.LEVEL**2 + prior.TERM**2 * shares @ shares.T + prior.LOCAL**2 * near
    rows = [1, 4, 7]
    inverse = np.linalg.inv(covariance[np.ix_(rows, rows)] + np.diag([0.02**2, 0.05**2, 0.02**2]))
    gain = covariance[:, rows] @ inverse
    now = belief(each, seen)
    assert now.mean == pytest.approx(
        np.log([one.predicted_s for one in each]) + gain @ np.log([1.3, 1.1, 1.2])
    )
    assert now.deviation**2 == pytest.approx(
        np.diag(covariance - gain @ covariance[rows]), abs=1e-9
    )


def test_the_expected_improvement_is_the_integral() -> None:
    best, mean, deviation = 0.2, 0.25, 0.1
    values = np.linspace(mean - 1.2, mean + 1.2, 400_001)
    integral = np.trapezoid(
        np.maximum(best - values, 0) * norm.pdf(values, mean, deviation), values
    )
    assert improvement(best, np.array([mean]), np.array([deviation]))[0] == pytest.approx(
        integral, rel=1e-6
    )


def test_measurements_correct_the_predictions_of_layouts_that_were_not_measured() -> None:
    _, space = question()
    seen = [Seen(index, real_s(space.candidates[index])) for index in range(0, 16, 2)]
    others = [index for index in range(len(space.candidates)) if index % 2 or index >= 16]
    real = np.log([real_s(space.candidates[index]) for index in others])
    before = np.abs(np.log([space.candidates[index].predicted_s for index in others]) - real)
    after = np.abs(belief(space.candidates, seen).mean[others] - real)
    assert np.median(before) > 0.2
    assert np.median(after) < 0.04


def test_one_run_that_was_slow_by_itself_does_not_slow_all_others() -> None:
    _, space = question()
    fair = [Seen(index, space.candidates[index].predicted_s) for index in range(1, 5)]
    slow = [*fair, Seen(0, space.candidates[0].predicted_s * 20)]
    change = belief(space.candidates, slow).mean[5:] - belief(space.candidates, fair).mean[5:]
    assert np.abs(change).max() < 0.1


def test_after_memory_ran_out_layouts_that_need_as_much_come_last() -> None:
    _, space = question()
    hungry = max(
        range(len(space.candidates)), key=lambda index: space.candidates[index].memory_bytes
    )
    modest = min(
        range(len(space.candidates)), key=lambda index: space.candidates[index].memory_bytes
    )
    runs = belief(space.candidates, [Seen(modest, None, oom=True)]).runs
    assert runs.max() <= 0.05 + 1e-9
    runs = belief(space.candidates, [Seen(hungry, None, oom=True)]).runs
    assert runs[hungry] < 0.05 < runs[modest]


def test_the_first_come_first_then_nothing_twice() -> None:
    _, space = question()
    assert next_index(space.candidates, [], set(), 3) == 0
    assert next_index(space.candidates, [Seen(0, 1.0)], {0}, 3) == 1
    taken: set[int] = set()
    seen: list[Seen] = []
    while (index := best_next(space.candidates, seen, taken)) is not None:
        assert index not in taken
        taken.add(index)
        seen.append(Seen(index, real_s(space.candidates[index])))
    assert len(taken) == len(space.candidates)
