"""A closed form is a claim, the simulator is the proof: every formula of every schedule over a
grid.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from planner.errors import InputError
from planner.schedules import durations, gpipe, interleaved, one_f_one_b, table, unequal, zb_h1
from planner.simulator import simulate

pytestmark = pytest.mark.slow


TIMES = [(1.0, 1.0, 1.0), (1.0, 1.5, 0.5), (2.0, 1.0, 1.0), (1.0, 3.0, 0.4), (0.3, 0.2, 1.7)]
FIXED = [name for name, schedule in table.SCHEDULES.items() if not schedule.automatic]


def cases(name):
    """(p, m, v, group) that the schedule's implementation accepts."""
    schedule = table.schedule(name)
    least, most = schedule.chunks
    for p, m, v in itertools.product(
        (1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 24), range(least, (most or 3) + 1)
    ):
        for group in {0, p, p + 1, m} if name == "interleaved" else {0}:
            knobs = {"group": group} if group else {}
            try:
                schedule.legal(p, m, v, **knobs)
            except InputError:
                continue
            yield p, m, v, knobs


def _makespan(order, v, times, **modes):
    return simulate(order, durations.stage_durations(order, v, *times), **modes).makespan


@pytest.mark.parametrize("name", FIXED)
def test_makespan_span_and_bubble_where_they_claim_to_be_exact(name):
    schedule, exact = table.schedule(name), 0
    for p, m, v, knobs in cases(name):
        order = schedule.order(p, m, v, **knobs)
        for times in TIMES:
            if not schedule.exact(p, m, v, *times):
                continue
            found, exact = simulate(order, durations.stage_durations(order, v, *times)), exact + 1
            assert schedule.makespan(p, m, v, *times) == pytest.approx(found.makespan, rel=1e-12), (
                p,
                m,
                v,
                knobs,
                times,
            )
            if schedule.span is not None:
                assert schedule.span(p, m, v, *times) == pytest.approx(found.span, rel=1e-12), (
                    p,
                    m,
                    v,
                    knobs,
                    times,
                )
            if schedule.bubble_share is not None:
                assert schedule.bubble_share(p, m, v) == pytest.approx(
                    found.bubble_share, abs=1e-12
                ), (p, m, v, knobs, times)
    assert exact >= 12


@pytest.mark.parametrize("name", FIXED)
def test_peaks_and_messages_hold_wherever_the_order_is_legal(name):
    schedule = table.schedule(name)
    for p, m, v, knobs in cases(name):
        order = schedule.order(p, m, v, **knobs)
        found = simulate(order, durations.stage_durations(order, v, 1, 1, 1))
        peaks = [float(schedule.peak_in_flight(p, m, v, rank, **knobs)) for rank in range(p)]
        assert peaks == found.peak_in_flight.tolist(), (p, m, v, knobs)
        assert schedule.messages(p, m, v) == found.messages, (p, m, v, knobs)


@pytest.mark.parametrize("schedule", [gpipe.SCHEDULE, one_f_one_b.SCHEDULE])
@pytest.mark.parametrize(
    "form, blocking", [("exposed_transfer", False), ("blocking_transfer", True)]
)
def test_transfers_of_gpipe_and_1f1b_at_any_latency(schedule, form, blocking):
    for p, m, c, times in itertools.product(
        (1, 2, 3, 4, 7), (1, 2, 3, 4, 5, 9, 16), (0.01, 0.7, 4.0), TIMES[:4]
    ):
        order = schedule.order(p, m)
        extra = _makespan(order, 1, times, transfer=c, blocking=blocking) - _makespan(
            order, 1, times
        )
        assert getattr(schedule, form)(p, m, 1, c) == pytest.approx(extra, abs=1e-9), (
            p,
            m,
            c,
            times,
        )


def test_transfers_of_interleaved_and_zb_h1_in_their_domain():
    for p, rounds, v, times in itertools.product((2, 3, 4, 8), (1, 2, 5), (2, 3), TIMES[:4]):
        order, c = interleaved.order(p, rounds * p, v), min(times[0], times[1] + times[2]) / v
        extra = _makespan(order, v, times, transfer=c) - _makespan(order, v, times)
        assert interleaved.exposed_transfer(p, rounds * p, v, c) == pytest.approx(
            extra, abs=1e-9
        ), (p, rounds, v, times)
    for p, m, (forward, back, weight) in itertools.product(
        (2, 4, 6), (12, 17), ((1, 1, 1), (1, 1.5, 0.5), (2, 1, 1))
    ):
        order, c = zb_h1.order(p, m), weight / 2
        extra = _makespan(order, 1, (forward, back, weight), transfer=c) - _makespan(
            order, 1, (forward, back, weight)
        )
        assert zb_h1.exposed_transfer(p, m, 1, c) == pytest.approx(extra, abs=1e-9), (p, m)


@pytest.mark.parametrize(
    "schedule, v", [(gpipe.SCHEDULE, 1), (one_f_one_b.SCHEDULE, 1), (interleaved.SCHEDULE, 2)]
)
def test_columns_give_what_numbers_give(schedule, v):
    p, m = np.array([2, 4, 8, 3]), np.array([8, 16, 8, 9])
    forward, back, weight = (
        np.array([1.0, 2.0, 0.5, 1.0]),
        np.array([1.0, 0.2, 0.5, 2.0]),
        np.array([1.0, 1.0, 0.25, 0.1]),
    )
    vs, ranks, c = np.full(4, v), np.array([0, 3, 2, 1]), np.array([0.1, 0.2, 0.0, 1.0])

    def terms(p, m, v, forward, back, weight, rank, c):
        return [
            schedule.makespan(p, m, v, forward, back, weight),
            schedule.bubble_share(p, m, v),
            schedule.peak_in_flight(p, m, v, rank),
            schedule.messages(p, m, v),
            schedule.exposed_transfer(p, m, v, c),
        ]

    columns = terms(p, m, vs, forward, back, weight, ranks, c)
    for i in range(4):
        numbers = terms(
            int(p[i]), int(m[i]), v, forward[i], back[i], weight[i], int(ranks[i]), c[i]
        )
        assert [column[i] for column in columns] == pytest.approx(
            [float(number) for number in numbers], rel=1e-12
        )


def _unequal(p, m, v, first, last):
    """Estimate and simulated makespan: forward 1, backward 2, the ends scaled."""
    scale = np.ones(p * v)
    scale[0] *= first
    scale[-1] *= last
    order = one_f_one_b.order(p, m) if v == 1 else interleaved.order(p, m, v)
    simulated = simulate(order, scale[:, None] * np.array([1.0, 2.0, 1.0, 1.0])).makespan
    forward, backward = unequal.Chunks(first, 1.0, last), unequal.Chunks(2 * first, 2.0, 2 * last)
    estimate = (
        unequal.one_f_one_b(p, m, 1, forward, backward)
        if v == 1
        else unequal.interleaved(p, m, v, forward, backward)
    )
    return float(estimate), simulated


SHAPES = list(itertools.product((2, 3, 4, 8, 16), (1, 2, 4)))


@pytest.mark.parametrize("ends", [(1, 1), (1, 1.5), (1, 3), (0.3, 1), (0.6, 1)])
def test_unequal_ends_exactly_where_the_first_is_light_or_the_last_heavy(ends):
    for (p, rounds), v in itertools.product(SHAPES, (1, 2, 4)):
        estimate, simulated = _unequal(p, rounds * p, v, *ends)
        assert estimate == pytest.approx(simulated, rel=1e-12), (p, rounds, v)


def test_unequal_ends_of_1f1b_with_one_end_off_either_way():
    for (p, rounds), ends in itertools.product(SHAPES, ((2.5, 1), (1, 0.4))):
        estimate, simulated = _unequal(p, rounds * p, 1, *ends)
        assert estimate == pytest.approx(simulated, rel=1e-12), (p, rounds, ends)


def test_unequal_ends_are_a_close_lower_bound_everywhere():
    errors = {}
    for (p, rounds), v, first, last in itertools.product(
        SHAPES, (1, 2, 4), (0.3, 0.8, 1.3, 3), (0.3, 0.8, 1.3, 3)
    ):
        estimate, simulated = _unequal(p, rounds * p, v, first, last)
        errors.setdefault(
            "1f1b" if v == 1 else "two ranks" if p == 2 else "interleaved", []
        ).append(estimate / simulated - 1)
    estimate, simulated = _unequal(16, 64, 2, 2.84, 2.14)  # the worst found among random ends
    errors["interleaved"].append(estimate / simulated - 1)
    assert max(max(column) for column in errors.values()) <= 1e-12
    assert (
        min(errors["1f1b"]) >= -0.04
        and min(errors["interleaved"]) >= -0.08
        and min(errors["two ranks"]) >= -0.125
    )
    assert all(np.median(column) == pytest.approx(0, abs=1e-9) for column in errors.values())


def test_a_loss_head_on_the_last_of_four_ranks():
    """Half a stage more on the last rank, m = 16: 57 becomes 81, sum T + (m - 1) max T."""
    forward, backward = unequal.Chunks(1.0, 1.0, 1.5), unequal.Chunks(2.0, 2.0, 3.0)
    assert (
        unequal.one_f_one_b(4, 16, 1, unequal.Chunks(1.0, 1.0, 1.0), unequal.Chunks(2.0, 2.0, 2.0))
        == 57
    )
    assert unequal.one_f_one_b(4, 16, 1, forward, backward) == 81


def test_unequal_columns_give_what_numbers_give():
    p, m, v = np.array([2, 4, 8]), np.array([8, 16, 8]), np.array([2, 3, 4])
    first, middle, last = (
        np.array([0.5, 1.2, 1.0]),
        np.array([1.0, 1.0, 2.0]),
        np.array([1.5, 0.7, 3.0]),
    )
    forward, backward = (
        unequal.Chunks(first, middle, last),
        unequal.Chunks(2 * first, 2 * middle, 3 * last),
    )
    plain, chunked = (
        unequal.one_f_one_b(p, m, 1, forward, backward),
        unequal.interleaved(p, m, v, forward, backward),
    )
    for i in range(3):
        one = (
            unequal.Chunks(first[i], middle[i], last[i]),
            unequal.Chunks(2 * first[i], 2 * middle[i], 3 * last[i]),
        )
        assert plain[i] == pytest.approx(
            float(unequal.one_f_one_b(int(p[i]), int(m[i]), 1, *one)), rel=1e-12
        )
        assert chunked[i] == pytest.approx(
            float(unequal.interleaved(int(p[i]), int(m[i]), int(v[i]), *one)), rel=1e-12
        )


def test_one_rank_holds_both_ends():
    assert unequal.one_f_one_b(
        1, 5, 1, unequal.Chunks(1.5, 1.0, 1.25), unequal.Chunks(2.0, 2.0, 2.0)
    ) == 5 * (1.75 + 2.0)
