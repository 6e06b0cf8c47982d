"""The simulator against derivations by hand, against laws that any timeline obeys, and against
broken orders.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.action import KIND, MICROBATCH, PAIR, STAGE, B, F, I, W, from_rows, from_text, looped
from planner.errors import InputError
from planner.schedules import durations, table
from planner.simulator import makespans, peak_in_flight, simulate

FUSED = np.array([[1.0, 2.0, 1.0, 1.0]])


def ends(order, timeline):
    """The end of every action by its text, such as 2F0."""
    return {
        f"{row[STAGE]}{'FBIW'[row[KIND]]}{row[MICROBATCH]}": end
        for rows, times in zip(order.actions, timeline.end, strict=True)
        for row, end in zip(rows, times, strict=True)
    }


@pytest.mark.parametrize("c", [0.0, 0.1, 0.177, 0.5, 1.0])
def test_blocking_1f1b_of_two_ranks_by_hand(c):
    """Forward 1, backward 2. Rank 0 sends 0F0 until 1+c, so 0F1 ends at 2+c and is there at 2+2c.
    Rank 1 runs 1F0 from 1+c, 1B0 until 4+c, sends until 4+2c, 1F1 until 5+2c, 1B1 until 7+2c. Rank
    0 runs 0B0 from 4+2c, 0B1 from 7+3c.
    """
    order = table.order("1f1b", 2, 2, 1)
    found = simulate(order, np.repeat(FUSED, 2, axis=0), c, blocking=True)
    by_hand = {
        "0F0": 1,
        "0F1": 2 + c,
        "1F0": 2 + c,
        "1B0": 4 + c,
        "1F1": 5 + 2 * c,
        "1B1": 7 + 2 * c,
        "0B0": 6 + 2 * c,
        "0B1": 9 + 3 * c,
    }
    assert ends(order, found) == pytest.approx(by_hand)
    assert found.makespan == pytest.approx(9 + 3 * c)
    assert found.idle == pytest.approx([3 + 3 * c, 3 + 3 * c])


@pytest.mark.parametrize("c", [0.0, 0.1, 0.5, 1.0])
def test_blocking_1f1b_of_four_ranks_by_hand(c):
    """Forward 1, backward 2, two microbatches. Down: rank i starts xF0 at i (1+c) and xF1 one
    forward and one send later. Rank 3 runs 3B0 until 6+3c, sends until 6+4c, 3F1 until 7+4c, 3B1
    until 9+4c. Up: 3B0's gradient is on rank 2 at 6+4c, on 1 at 8+5c, on 0 at 10+6c; 3B1's on rank
    2 at 9+5c, on 1 at 11+6c, on 0 at 13+7c."""
    order = table.order("1f1b", 4, 2, 1)
    found = simulate(order, np.repeat(FUSED, 4, axis=0), c, blocking=True)
    down = {f"{i}F0": i * (1 + c) + 1 for i in range(4)} | {
        f"{i}F1": (i + 1) * (1 + c) + 1 for i in range(3)
    }
    up = {"3B0": 6 + 3 * c, "2B0": 8 + 4 * c, "1B0": 10 + 5 * c, "0B0": 12 + 6 * c}
    last = {
        "3F1": 7 + 4 * c,
        "3B1": 9 + 4 * c,
        "2B1": 11 + 5 * c,
        "1B1": 13 + 6 * c,
        "0B1": 15 + 7 * c,
    }
    assert ends(order, found) == pytest.approx(down | up | last)


def _blocking_makespan(name: str, p: int, m: int, v: int, c: float) -> float:
    order = table.order(name, p, m, v)
    return simulate(order, durations.stage_durations(order, v, 1, 1, 1), c, blocking=True).makespan


@pytest.mark.parametrize("p, m, v, even", [(4, 16, 2, 0.177), (8, 32, 4, 0.085)])
def test_where_interleaving_stops_paying_when_sends_block(p, m, v, even):
    """The transfer time at which blocking interleaved and plain 1F1B take as long, T = 3."""
    gain = [
        _blocking_makespan("1f1b", p, m, 1, c) - _blocking_makespan("interleaved", p, m, v, c)
        for c in (even - 0.001, even + 0.001)
    ]
    assert gain[0] > 0 > gain[1]


@pytest.mark.parametrize("p, m, v, even", [(4, 16, 2, 1.95), (8, 32, 4, 0.471)])
def test_where_interleaving_stops_paying_when_transfers_are_asynchronous(p, m, v, even):
    def gain(c):
        plain, chunks = table.order("1f1b", p, m, 1), table.order("interleaved", p, m, v)
        return (
            simulate(plain, durations.stage_durations(plain, 1, 1, 1, 1), c).makespan
            - simulate(chunks, durations.stage_durations(chunks, v, 1, 1, 1), c).makespan
        )

    assert gain(even - 0.006) > 0 > gain(even + 0.006)


def test_the_picture_of_four_stages_and_eight_microbatches():
    for name, peak in (("gpipe", 8), ("1f1b", 4)):
        order = table.order(name, 4, 8, 1)
        found = simulate(order, durations.stage_durations(order, 1, 1, 1, 1))
        assert found.makespan == 33
        assert found.bubble_share == pytest.approx(3 / 11)
        assert found.peak_in_flight[0] == peak


@pytest.mark.parametrize(
    "name, v, c, makespan",
    [
        ("gpipe", 1, 0.5, 124),
        ("1f1b", 1, 0.5, 151),
        ("interleaved", 2, 0.5, 121.5),
        ("interleaved", 4, 0.5, 153.75),
        ("interleaved-zb", 4, 0.5, 192),
        ("zb-h2", 1, 0.5, 106.5),
        ("1f1b", 1, 0.0, 117),
        ("zb-h1", 1, 0.0, 103),
        ("zbv", 2, 0.0, 99.5),
        ("dualpipe", 1, 0.0, 102),
        ("dualpipev", 2, 0.0, 103),
    ],
)
def test_latency_reverses_rankings_at_eight_ranks_and_32_microbatches(name, v, c, makespan):
    order = table.order(name, 8, 32, v)
    assert simulate(
        order, durations.stage_durations(order, v, 1, 1, 1), c
    ).makespan == pytest.approx(makespan)


def test_transfer_times_may_differ_between_ranks():
    order = from_text("0F0 0B0\n1F0 1B0\n2F0 2B0")
    slow_last = np.array([[0, 0.1, 9], [0.2, 0, 0.3], [9, 0.4, 0]])
    found = simulate(order, np.repeat(FUSED, 3, axis=0), slow_last)
    assert found.makespan == pytest.approx(9 + 0.1 + 0.3 + 0.4 + 0.2)
    assert found.messages == 4


def test_a_pair_starts_and_ends_as_one_and_saves_the_mean_of_its_stages():
    order = from_rows(
        [[(0, F, 0), (1, F, 0), (1, B, 0), (0, F, 1, 1), (0, B, 0)]],
        (np.zeros(2, np.int32), np.array([-1, 0], np.int32)),
    )
    spent = np.array([[1.0, 2.0, 1.0, 1.0], [2.0, 4.0, 2.0, 2.0]])
    summed = simulate(order, spent)
    assert summed.start[0].tolist() == [0, 1, 3, 7, 7] and summed.end[0].tolist() == [
        1,
        3,
        7,
        10,
        10,
    ]
    assert simulate(order, spent, pair_durations=np.array([2.5, 5.0])).makespan == 9.5
    assert (
        simulate(order, spent, pair_durations=np.array([0.0, 6.0])).makespan == 9
    )  # never below its longer half
    assert summed.peak_in_flight.tolist() == [2]


def test_a_pair_over_two_stages():
    rows = [[(0, F, 0), (1, F, 0), (1, I, 0), (1, W, 0), (0, F, 1), (1, F, 1, 1), (0, B, 0, 0)]]
    order = from_rows(rows, (np.zeros(2, np.int32), np.array([-1, 0], np.int32)))
    spent = np.array([[1.0, 2.0, 1.0, 1.0], [2.0, 4.0, 2.0, 2.0]])
    assert simulate(order, spent).makespan == 8 + 2 + 2
    assert (
        simulate(order, spent, pair_durations=np.array([2.0, 5.0])).makespan == 8 + 4 - (1 + 1) / 2
    )


def test_activations_are_held_until_the_weight_gradient_in_part():
    """Rank 1 of ZB-H2 holds one activation in full and two that wait for their weight gradient."""
    order = table.order("zb-h2", 2, 4, 1)
    assert peak_in_flight(order).tolist() == [3, 3]
    assert peak_in_flight(order, 0.0).tolist() == [3, 1]
    assert peak_in_flight(order, 0.4) == pytest.approx([3, 1 + 2 * 0.4])
    assert peak_in_flight(order, 1.0, np.array([10.0, 7.0])) == pytest.approx([30, 21])
    assert simulate(order, np.ones((2, 4)), weight_retained=0.4).peak_in_flight == pytest.approx(
        [3, 1.8]
    )


SPLIT_BATCHES = [
    name for name, schedule in table.SCHEDULES.items() if not schedule.automatic and name != "naive"
]
"""Schedules with a fixed order; naive has one micro-batch, which the sizes below do not."""


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(SPLIT_BATCHES),
    st.integers(1, 3),
    st.integers(0, 6),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.3, 2.0]),
    st.booleans(),
)
def test_laws_of_any_timeline(name, half, more, v, seed, transfer, blocking):
    schedule = table.schedule(name)
    p, m = 2 * half, 4 * half + more
    least, most = schedule.chunks
    v = max(least, min(v, most or v))
    try:
        schedule.legal(p, m, v)
    except InputError:
        m = 4 * half * 2
    order = schedule.order(p, m, v)
    spent = np.random.default_rng(seed).uniform(0.1, 3.0, (order.stages, 4))
    found = simulate(order, spent, transfer, blocking)
    _check_every_action_once(order, m if name != "dualpipe" else m // 2)
    _check_dependencies(order, found, transfer)
    work = np.array([spent[rows[:, STAGE], rows[:, KIND]].sum() for rows in order.actions])
    assert found.busy == pytest.approx(work)
    assert found.makespan >= work.max() - 1e-9 and found.makespan >= found.span - 1e-9
    assert found.idle == pytest.approx(found.makespan - work)
    assert found.bubble_share == pytest.approx(1 - work.mean() / found.makespan)
    free = simulate(order, spent)
    assert found.makespan >= free.makespan - 1e-9
    if not blocking:
        assert found.makespan <= free.makespan + transfer * found.messages + 1e-9


def _check_every_action_once(order, m):
    rows = np.concatenate(order.actions)
    for stage in range(order.stages):
        mine = rows[rows[:, STAGE] == stage]
        kinds = {
            kind: sorted(mine[mine[:, KIND] == kind, MICROBATCH].tolist()) for kind in (F, B, I, W)
        }
        assert kinds[F] == list(range(m))
        assert sorted(kinds[B] + kinds[I]) == list(range(m)) and kinds[W] == kinds[I]


def _check_dependencies(order, found, transfer):
    done, rank_of = {}, order.rank_of_stage
    start = {}
    for rows, begins, finishes in zip(order.actions, found.start, found.end, strict=True):
        alone = rows[:, PAIR] == 0
        assert (begins[1:] >= finishes[:-1] - 1e-9)[alone[:-1]].all(), (
            "a rank does one thing at a time"
        )
        for (stage, kind, j, _), begin, finish in zip(rows.tolist(), begins, finishes, strict=True):
            done["B" if kind in (B, I) else "FBIW"[kind], stage, j] = finish
            start["B" if kind in (B, I) else "FBIW"[kind], stage, j] = begin
    following = order.next_stage
    for (kind, stage, j), begin in start.items():
        if kind == "W":
            assert begin >= done["B", stage, j] - 1e-9
            continue
        other = order.previous_stage[stage] if kind == "F" else following[stage]
        if kind == "B":
            assert begin >= done["F", stage, j] - 1e-9
        if other >= 0:
            assert (
                begin >= done[kind, other, j] + transfer * (rank_of[other] != rank_of[stage]) - 1e-9
            )


def test_a_deadlock_says_who_waits_for_whom():
    with pytest.raises(InputError) as refusal:
        simulate(from_text("0F0 0B1 0F1 0B0\n1F0 1B0 1F1 1B1"), np.ones((2, 4)))
    message = str(refusal.value)
    assert message.startswith("deadlock: rank 0 waits at 0B1, rank 1 waits at 1F1\n")
    assert "0B1 needs 0F1 of rank 0" in message and "1F1 needs 0F1 of rank 0" in message
    assert "rank 0: 0F0 >0B1< 0F1 0B0" in message and "rank 1: 1F0 1B0 >1F1< 1B1" in message


def test_a_deadlock_across_two_ranks():
    with pytest.raises(InputError, match="deadlock: rank 0 waits at 0B0, rank 1 waits at 1B0"):
        simulate(from_text("0B0 0F0\n1B0 1F0"), np.ones((2, 4)))


@pytest.mark.parametrize(
    "text, says",
    [
        ("0F0 0B0\n1B0", "1B0 needs 1F0, which is missing"),
        ("0B0\n1F0 1B0", "0B0 needs 0F0, which is missing"),
        ("0F0 0B0\n1F0", "0B0 needs 1B0, which is missing"),
        ("0F0 0I0\n1F0 1I0 1W0 1W1", "1W1 needs 1I1, which is missing"),
        ("0F0 0F0", "0F0 is there twice"),
        ("0F0 0B0 0I0 0W0", "is there twice"),
        ("0F0 0I0 0W0 0W0", "0W0 is there twice"),
        ("0F9 0B9", "microbatch 9 to 9"),
        ("(0F0;0B0)", "deadlock: rank 0 waits at 0B0"),
    ],
)
def test_an_incomplete_order_is_refused(text, says):
    order = from_text(text)
    with pytest.raises(InputError, match=says):
        simulate(order, np.ones((order.stages, 4)))


@pytest.mark.parametrize("transfer", [-1.0, float("nan"), float("inf"), np.zeros((3, 3))])
def test_transfers_must_be_times(transfer):
    with pytest.raises(InputError, match="transfer must be"):
        simulate(from_text("0F0\n1F0"), np.ones((2, 4)), transfer)


@pytest.mark.parametrize(
    "spent", [np.ones((1, 4)), np.ones(4), -np.ones((2, 4)), np.full((2, 4), np.nan)]
)
def test_durations_must_fit_the_stages(spent):
    with pytest.raises(InputError, match="durations must be 2 stages by 4 kinds"):
        simulate(from_text("0F0\n1F0"), spent)


def test_actions_must_be_where_their_stage_lives():
    order = from_rows([[(1, F, 0)], [(0, F, 0)]], looped(2))
    with pytest.raises(InputError, match="1F0 is on rank 0"):
        simulate(order, np.ones((2, 4)))


def test_pairs_must_be_of_two():
    for rows in ([(0, F, 0, 1)], [(0, F, 0, 1), (0, F, 1, 1), (0, F, 2, 0)]):
        with pytest.raises(InputError, match="a pair must be two actions"):
            simulate(from_rows([rows], looped(1)), np.ones((1, 4)))


def test_a_rank_without_actions_is_idle():
    found = simulate(from_rows([[(0, F, 0)], []], looped(1)), np.ones((1, 4)))
    assert found.idle.tolist() == [0, 1] and found.peak_in_flight.tolist() == [1, 0]


def test_an_empty_order_is_refused():
    with pytest.raises(InputError, match="at least one action"):
        simulate(from_rows([[], []], looped(2)), np.ones((2, 4)))


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize(("name", "v"), [("1f1b", 1), ("interleaved", 2), ("zb-h1", 1)])
def test_many_durations_at_once_are_as_each_alone(name, v, blocking):
    order = table.order(name, 4, 8, v)
    spent = np.random.default_rng(1).uniform(0.0, 2.0, (5, 4 * v, 4))
    alone = [simulate(order, each, 0.3, blocking).makespan for each in spent]
    assert makespans(order, spent, 0.3, blocking) == pytest.approx(alone)
