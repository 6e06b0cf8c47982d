"""What each implementation refuses, and the way out that the sentence names."""

from __future__ import annotations

import re

import numpy as np
import pytest

from planner.errors import InputError
from planner.layout import SCHEDULES
from planner.schedules import durations, table


@pytest.mark.parametrize(
    "name, p, m, v, knobs, says",
    [
        ("naive", 4, 2, 1, {}, "use m=1"),
        ("1f1b", 4, 8, 2, {}, "exactly 1"),
        ("interleaved", 4, 8, 1, {}, "at least 2"),
        ("interleaved", 1, 8, 2, {}, "at least two pipeline ranks"),
        ("interleaved", 4, 9, 2, {}, "use group=5"),
        ("interleaved", 4, 8, 2, {"group": 3}, "use group=4"),
        ("interleaved", 4, 8, 2, {"group": 9}, "use group=4"),
        ("interleaved", 4, 3, 2, {}, "use m=4 or more"),
        ("interleaved-torch", 4, 9, 2, {}, "use m=8 or m=10"),
        ("interleaved-torch", 4, 11, 2, {}, "use m=10 or m=12"),
        ("interleaved-zb", 4, 9, 2, {}, "use m=8 or m=10"),
        ("zb-h1", 4, 3, 1, {}, "use m=4"),
        ("zb-h2", 4, 7, 1, {}, "use m=8"),
        ("zbv", 4, 8, 3, {}, "exactly 2"),
        ("zbv", 4, 8, 1, {}, "use v=2"),
        ("dualpipe", 3, 8, 1, {}, "even p"),
        ("dualpipe", 4, 9, 1, {}, "even m"),
        ("dualpipe", 4, 6, 1, {}, "use m=8"),
        ("dualpipev", 4, 7, 2, {}, "use m=8"),
        ("gpipe", 0, 4, 1, {}, "at least one rank"),
        ("looped-bfs", 2, 0, 2, {}, "one microbatch"),
    ],
)
def test_a_refusal_names_the_nearest_way_out(name, p, m, v, knobs, says):
    with pytest.raises(InputError, match=re.escape(says)):
        table.schedule(name).legal(p, m, v, **knobs)


@pytest.mark.parametrize(
    "name, p, m, v, knobs",
    [
        ("1f1b", 8, 3, 1, {}),
        ("interleaved", 4, 9, 2, {"group": 5}),
        ("interleaved", 4, 11, 2, {"group": 7}),
        ("interleaved-torch", 4, 10, 2, {}),
        ("interleaved-torch", 4, 3, 2, {}),
        ("zbv", 4, 2, 2, {}),
        ("dualpipev", 3, 7, 2, {}),
    ],
)
def test_what_is_accepted(name, p, m, v, knobs):
    table.schedule(name).legal(p, m, v, **knobs)
    assert table.order(name, p, m, v, **knobs).ranks == p


def test_unknown_names_answer_with_the_nearest():
    with pytest.raises(InputError, match="interleaved"):
        table.schedule("interleave")


def test_the_table_holds_every_schedule_that_a_layout_may_name():
    assert set(table.SCHEDULES) == set(SCHEDULES)


def test_stage_scale_is_one_a_rank_or_a_stage():
    order = table.order("interleaved", 2, 4, 2)
    assert durations.stage_durations(order, 2, 1, 2, 1, [1, 1.5])[:, 0].tolist() == [
        0.5,
        0.75,
        0.5,
        0.75,
    ]
    assert durations.stage_durations(order, 2, 1, 2, 1, [1, 2, 3, 4])[:, 1].tolist() == [
        1.5,
        3,
        4.5,
        6,
    ]
    assert durations.stage_durations(order, 2, 1, 2, 1, None, 0.5)[-1].tolist() == [1, 3, 2, 1]
    assert durations.pair_durations(order, 2, 3.0, None, 0.5).tolist() == [1.5, 1.5, 1.5, 3.0]
    with pytest.raises(InputError, match="one factor a rank"):
        durations.stage_durations(order, 2, 1, 2, 1, [1, 1, 1])


def test_a_head_on_both_chains_of_dualpipe():
    order = table.order("dualpipe", 2, 4, 1)
    assert np.flatnonzero(
        durations.stage_durations(order, 1, 1, 1, 1, None, 0.5)[:, 0] == 1.5
    ).tolist() == [1, 3]
