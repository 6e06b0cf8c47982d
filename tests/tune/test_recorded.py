"""Ten trials on recorded times: the prior finds the best of published runs, ten of a blind sampler
are behind it.
"""

from __future__ import annotations

import numpy as np

from planner.tune.study.prior import Seen, next_index
from tests.tune.recorded import Question, questions

TRIALS, FIRST = 10, 5


def regret(question: Question) -> float:
    seen: list[Seen] = []
    for _ in range(TRIALS):
        index = next_index(question.candidates, seen, {one.index for one in seen}, FIRST)
        assert index is not None
        seen.append(Seen(index, question.measured_s[index]))
    return min(one.measured_s or np.inf for one in seen) / min(question.measured_s) - 1


def blind(question: Question) -> float:
    """Mean over draws of ten different layouts."""
    draw, times = np.random.default_rng(0), np.array(question.measured_s)
    return float(
        np.mean([draw.choice(times, TRIALS, replace=False).min() for _ in range(500)]) / times.min()
        - 1
    )


def test_ten_trials_find_the_best_of_published_runs() -> None:
    each = list(questions("vtrain_multi", 20))
    assert len(each) >= 2
    assert max(regret(one) for one in each) <= 0.01
    assert all(
        regret(one) < blind(one) for one in each
    )  # by little where a question has few layouts, or many alike
