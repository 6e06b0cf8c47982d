"""Layouts estimated by several processes: the same answers as one by one, in the same order."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from planner.accuracy import simulated
from planner.accuracy.rows import run
from planner.errors import InputError
from planner.estimate import estimate
from tests.published.runs import row


def asked(count: int) -> list[simulated.Question]:
    runs = [
        run(row(tp=1, pp=2, dp=4, mbs=1, schedule="zb-h1", gbs_sequences=16 * (i + 1)))
        for i in range(count)
    ]
    return [(one.recipe, one.layouts[0]) for one in runs]


def steps(found: Iterator[object]) -> list[float]:
    return [one.step_s for one in found]  # type: ignore[attr-defined]


@pytest.mark.parametrize("count", [0, 1, simulated.MIN_PARALLEL + 4])
def test_as_one_by_one(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    pairs = asked(count)
    assert steps(simulated.each(pairs)) == [estimate(*pair, exact=True).step_s for pair in pairs]


def test_a_refusal_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, exact: bool) -> None:
        raise InputError("not this one")

    monkeypatch.setattr(simulated, "estimate", refuses)
    assert [str(one) for one in simulated.each(asked(2))] == ["not this one"] * 2


def test_a_killed_process_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, here = asked(simulated.MIN_PARALLEL + 4), os.getpid()

    def dies_elsewhere(*pair: object, exact: bool) -> object:
        return estimate(*pair, exact=exact) if os.getpid() == here else os._exit(1)

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(simulated, "estimate", dies_elsewhere)
    assert steps(simulated.each(pairs)) == [estimate(*pair, exact=True).step_s for pair in pairs]
