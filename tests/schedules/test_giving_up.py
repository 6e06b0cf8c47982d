"""Attempts that are given up on the way never are the shortest: the choice equals that among whole
timelines.
"""

from __future__ import annotations

import numpy as np
import pytest

from planner.action import looped
from planner.schedules.automatic.attempts import CLOSE_ENOUGH, best, bounds, prepared, tails
from planner.schedules.automatic.eager import TASTES, _attempts, eager
from planner.schedules.automatic.list_scheduling import Most, length, run

QUESTIONS = [
    (p, m, lag, limit, retained, seed)
    for p, m in ((2, 3), (4, 10), (5, 21), (8, 16))
    for lag in (0.0, 0.3)
    for limit in (1.0, p + 0.0, 2.0 * p)
    for retained, seed in ((1.0, 0), (0.5, 1), (0.0, 2))
]


def work(p, m, lag, limit, retained, seed):
    times = np.random.default_rng(seed).uniform(0.5, 1.5, (p, 4)) if seed else np.ones((p, 4))
    return prepared(looped(p), m, times, lag, limit, retained)


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_no_whole_attempt_is_shorter_than_the_one_chosen(question):
    asked = work(*question)
    whole = [run(asked, picker) for picker in _attempts(asked)]
    assert (
        length(best(asked, _attempts(asked), effort=float("inf")))
        <= min(map(length, whole)) * CLOSE_ENOUGH
    )


@pytest.mark.parametrize("question", QUESTIONS[::3], ids=str)
def test_given_up_are_those_that_would_have_been_longer(question):
    asked = work(*question)
    caps = [int(min(asked.limit, 2 * (asked.p - rank))) or 1 for rank in range(asked.p)]
    lengths = [length(run(asked, eager(taste, caps))) for taste in TASTES]
    most = Most(sorted(lengths)[len(lengths) // 2], *bounds(asked), tails(asked))
    for taste, whole in zip(TASTES, lengths, strict=True):
        built = run(asked, eager(taste, caps), most)
        assert (length(built) == whole) if built is not None else (whole > most.length)


def test_an_attempt_that_idles_is_given_up():
    """Two ranks that hold one activation each wait for each other: 5 units a microbatch at least,
    where their work alone takes 3.
    """
    asked = work(2, 50, 0.0, 1.0, 1.0, 0)
    assert run(asked, eager(TASTES[0], [1, 1])).makespan >= 5 * 50
    assert run(asked, eager(TASTES[0], [1, 1]), Most(1.5 * 160, 150.0, 150.0, tails(asked))) is None
