"""Automatic schedules: legal, within their memory, and as fast as the reference; odd inputs too."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.action import F, I, W
from planner.errors import InputError
from planner.schedules import table
from planner.schedules.automatic.attempts import bounds, prepared
from planner.simulator import simulate
from tests.examples import examples

pytestmark = pytest.mark.slow


DATA = Path(__file__).parents[1] / "data" / "schedules"
NAMES = ("zb-1p", "zb-2p", "zbv-auto", "v-half", "v-min")
REFERENCE = list(csv.DictReader((DATA / "automatic_reference.csv").read_text().splitlines()))


def durations(stages, v, forward, input_grad, weight_grad):
    return np.tile(
        np.array([forward, input_grad + weight_grad, input_grad, weight_grad]) / v, (stages, 1)
    )


def check_order(order, m, durations, transfer, timeline):
    """Every dependency by the clock, without the simulator's own bookkeeping. Returns the end of
    every action.
    """
    end, start = {}, {}
    for rank, rows in enumerate(order.actions):
        previous = 0.0
        for (stage, kind, microbatch, pair), begin, finish in zip(
            rows.tolist(), timeline.start[rank], timeline.end[rank], strict=True
        ):
            assert order.rank_of_stage[stage] == rank and pair == 0
            assert (stage, kind, microbatch) not in end
            assert begin >= previous - 1e-9 and finish == pytest.approx(
                begin + durations[stage, kind]
            )
            start[stage, kind, microbatch], end[stage, kind, microbatch] = begin, finish
            previous = finish
    stages = order.stages
    assert end.keys() == {(s, k, j) for s in range(stages) for k in (F, I, W) for j in range(m)}
    for (stage, kind, microbatch), begin in start.items():
        neighbour = stage - 1 if kind == F else stage + 1
        if kind != W and 0 <= neighbour < stages:
            lag = transfer if order.rank_of_stage[neighbour] != order.rank_of_stage[stage] else 0.0
            assert begin >= end[neighbour, kind, microbatch] + lag - 1e-9
        if kind != F:
            assert begin >= end[stage, F if kind == I else I, microbatch] - 1e-9
    return start, end


def held(order, start, end, retained):
    """The most activations that any rank holds, from the times alone; released before taken at
    equal times.
    """
    worst = 0.0
    for rank in range(order.ranks):
        events = []
        for (stage, kind, microbatch), begin in start.items():
            if order.rank_of_stage[stage] == rank and kind == F:
                events += [
                    (begin, 1, 1.0),
                    (end[stage, I, microbatch], 0, retained - 1),
                    (end[stage, W, microbatch], 0, -retained),
                ]
        level = 0.0
        for _, _, change in sorted(events):
            level += change
            worst = max(worst, level)
    return worst


@pytest.mark.parametrize(
    "row", REFERENCE, ids=lambda row: "-".join([row["schedule"], *list(row.values())[1:8]])
)
def test_as_fast_as_the_reference_within_its_memory(row):
    p, m, v = int(row["p"]), int(row["m"]), int(row["v"])
    times = durations(p * v, v, *(float(row[name]) for name in ("t_f", "t_b", "t_w")))
    transfer, limit = float(row["t_p2p"]), float(row["memory_limit"])
    order = table.order(
        row["schedule"], p, m, v, durations=times, transfer=transfer, memory_limit=limit
    )
    timeline = simulate(order, times, transfer)
    start, end = check_order(order, m, times, transfer, timeline)
    assert held(order, start, end, 1.0) <= limit * v + 1e-9
    assert timeline.makespan <= float(row["makespan"]) * 1.01
    assert timeline.messages == int(row["p2p_messages_total"])


PATTERNED = [row for row in REFERENCE if row["schedule"] in ("v-half", "v-min")]


@pytest.mark.parametrize("row", PATTERNED, ids=lambda row: "-".join(list(row.values())[:8]))
def test_memory_of_the_stable_patterns_is_the_default(row):
    p, m = int(row["p"]), int(row["m"])
    assert table.schedule(row["schedule"]).default_limit(p) == float(row["memory_limit"])
    order = table.order(row["schedule"], p, m, 2)
    timeline = simulate(order, durations(2 * p, 2, 1.0, 1.0, 1.0))
    assert timeline.peak_in_flight.max() <= int(row["peak_inflight_max"])


@st.composite
def questions(draw):
    name = draw(st.sampled_from(NAMES))
    v = 1 if name in ("zb-1p", "zb-2p") else 2
    p, m = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    time_of = st.sampled_from([0.0, 0.3, 0.9, 1.0, 1.1, 2.0])
    times = np.array([[draw(time_of) for _ in range(4)] for _ in range(p * v)])
    limit = draw(st.one_of(st.none(), st.floats(1.0, 2.5 * p)))
    return (
        name,
        p,
        m,
        v,
        times,
        draw(st.sampled_from([0.0, 0.1, 0.7, 3.0])),
        limit,
        draw(st.sampled_from([1.0, 0.4, 0.0])),
    )


@examples(30)
@given(questions())
def test_any_question_has_a_legal_order_within_its_memory(question):
    name, p, m, v, times, transfer, limit, retained = question
    knobs = {
        "durations": times,
        "transfer": transfer,
        "memory_limit": limit,
        "weight_retained": retained,
    }
    order = table.order(name, p, m, v, **knobs)
    timeline = simulate(order, times, transfer, weight_retained=retained)
    start, end = check_order(order, m, times, transfer, timeline)
    allowed = table.schedule(name).default_limit(p) if limit is None else limit
    assert timeline.peak_in_flight.max() <= allowed * v + 1e-6
    work = prepared(
        (order.rank_of_stage, order.previous_stage), m, times, transfer, allowed, retained
    )
    makespan, span = bounds(work)
    assert timeline.makespan >= makespan - 1e-9 and timeline.span >= span - 1e-9
    if (
        times > 0
        # actions without a duration release and take at one instant, where only the order tells
    ).all():
        assert held(order, start, end, retained) <= allowed * v + 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_the_same_question_has_the_same_order(name):
    v = 1 if name in ("zb-1p", "zb-2p") else 2
    times = durations(4 * v, v, 1.0, 1.2, 0.7)
    first, second = (table.order(name, 4, 7, v, durations=times, transfer=0.2) for _ in range(2))
    assert all(
        np.array_equal(one, other) for one, other in zip(first.actions, second.actions, strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_one_microbatch_at_a_time_when_memory_holds_no_more(name):
    """p=3, one stage of memory, equal kinds: every rank is busy for m of its own thirds only."""
    v = 1 if name in ("zb-1p", "zb-2p") else 2
    times = durations(3 * v, v, 1.0, 1.0, 1.0)
    order = table.order(name, 3, 4, v, durations=times, memory_limit=1)
    timeline = simulate(order, times)
    assert timeline.peak_in_flight.max() <= v
    assert 12 < timeline.makespan <= 4 * 9


@pytest.mark.parametrize("name", NAMES)
def test_unequal_stages_lead_to_another_order(name):
    v = 1 if name in ("zb-1p", "zb-2p") else 2
    times = durations(4 * v, v, 1.0, 1.0, 1.0)
    times[-1] *= 1.5
    slow = simulate(table.order(name, 4, 12, v, durations=times), times)
    kept = simulate(table.order(name, 4, 12, v), times)
    assert slow.makespan <= kept.makespan + 1e-9
    assert slow.makespan >= slow.busy.max()


@pytest.mark.parametrize("name", NAMES)
def test_transfer_between_each_pair_of_ranks(name):
    """One time for all pairs and the same in a matrix give the same order; a far pair costs
    time.
    """
    v = 1 if name in ("zb-1p", "zb-2p") else 2
    times = durations(4 * v, v, 1.0, 1.0, 1.0)
    same = [
        table.order(name, 4, 8, v, durations=times, transfer=lag)
        for lag in (0.5, np.full((4, 4), 0.5))
    ]
    assert all(
        np.array_equal(one, other)
        for one, other in zip(same[0].actions, same[1].actions, strict=True)
    )
    far = np.full((4, 4), 0.1)
    far[1, 2] = far[2, 1] = 4.0
    near = simulate(same[0], times, 0.1).makespan
    assert (
        simulate(table.order(name, 4, 8, v, durations=times, transfer=far), times, far).makespan
        > near
    )


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        ({"memory_limit": 0.5}, "memory limit must hold one microbatch"),
        ({"memory_limit": float("nan")}, "memory limit must hold one microbatch"),
        ({"weight_retained": 1.5}, "from 0 to 1"),
        ({"durations": np.ones((3, 4))}, "8 stages by 4 kinds"),
        ({"durations": np.full((8, 4), -1.0)}, "each >= 0"),
        ({"transfer": -1.0}, "transfer must be one time >= 0"),
        ({"transfer": np.ones((2, 2))}, "one a pair of 4 ranks"),
    ],
)
def test_wrong_inputs_are_named(wrong, sentence):
    with pytest.raises(InputError, match=sentence):
        table.order("v-half", 4, 8, 2, **wrong)


@pytest.mark.parametrize("name", NAMES)
def test_chunks_are_fixed(name):
    with pytest.raises(InputError, match="exactly"):
        table.order(name, 4, 8, 3)
    assert simulate(
        table.order(name, 1, 1, *table.schedule(name).chunks[:1]),
        np.ones((table.schedule(name).chunks[0], 4)),
    ).makespan == (3 * table.schedule(name).chunks[0])


def test_zb_1p_of_16_ranks_and_128_microbatches_takes_a_second_at_most():
    times = durations(16, 1, 11.3, 11.2, 8.1)
    took = []
    for _ in range(3):
        began = time.process_time()
        table.order("zb-1p", 16, 128, 1, durations=times, transfer=0.4)
        took.append(time.process_time() - began)
    assert min(took) <= 1.0, took
