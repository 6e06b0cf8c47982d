"""Published runs of one question as a space to tune in: what a trial would have measured is
known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.accuracy.measures import settings
from planner.accuracy.predict import predicted
from planner.accuracy.rows import run
from planner.accuracy.validate import runs, select
from planner.estimate import estimate
from planner.tune.study.space import Candidate, candidate


@dataclass(frozen=True)
class Question:
    """Candidates with the seconds that were measured of them."""

    name: str
    candidates: tuple[Candidate, ...]
    measured_s: tuple[float, ...]


def questions(source: str, least: int) -> Iterator[Question]:
    """Groups of at least so many different layouts that differ in nothing else; a layout that ran
    twice takes its faster run.
    """
    rows = predicted(select(runs(), source))
    for setting, part in settings(rows):
        found: dict[str, tuple[Candidate, float]] = {}
        for record in part.to_dict("records"):
            one = _candidate(record)
            before = found.get(one.key, (one, np.inf))[1]
            found[one.key] = (one, min(float(record["measured_step_s"]), before))
        if len(found) >= least:
            pairs = sorted(found.values(), key=lambda pair: pair[0].predicted_s)
            yield Question(
                f"{source} {setting}",
                tuple(one for one, _ in pairs),
                tuple(time for _, time in pairs),
            )


def _candidate(record: dict) -> Candidate:  # type: ignore[type-arg]
    """The row's layout; where it leaves knobs open, the fastest that agrees with it."""
    found = run({name: None if cell != cell else cell for name, cell in record.items()})
    each = [
        candidate(layout, estimate(found.recipe, layout))
        for layout in (found.layouts[i] for i in range(len(found.layouts)))
    ]
    return min(each, key=lambda one: one.predicted_s)
