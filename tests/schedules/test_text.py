"""Orders as text and CSV: round trips, and one clear message for what cannot be read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.action import (
    B,
    F,
    Order,
    from_rows,
    from_text,
    grid,
    looped,
    to_csv,
    to_text,
    tokens,
    two_way,
)
from planner.errors import InputError
from planner.schedules import table

words = st.tuples(st.sampled_from("FBIW"), st.integers(0, 99))
turns = st.lists(st.one_of(words, st.tuples(words, words)), max_size=12)


@st.composite
def line_sets(draw):
    """Lines of text in which rank r runs stage r, and pairs stand in torch's notation."""
    lines = []
    for rank in range(draw(st.integers(1, 4))):
        first = [f"{rank}F0"]
        for turn in draw(turns):
            if isinstance(turn[0], tuple):
                first.append("(" + ";".join(f"{rank}{kind}{j}" for kind, j in turn) + ")")
            else:
                first.append(f"{rank}{turn[0]}{turn[1]}")
        lines.append(first)
    return lines


@settings(max_examples=60, deadline=None)
@given(line_sets())
def test_text_and_csv_round_trip(lines):
    text = "\n".join(" ".join(line) for line in lines) + "\n"
    order = from_text(text)
    assert to_text(order) == text
    assert order.rank_of_stage.tolist() == list(range(len(lines)))
    again = from_text(to_csv(order))
    assert [rows.tolist() for rows in again.actions] == [rows.tolist() for rows in order.actions]


@pytest.mark.parametrize(
    "name, p, m, v",
    [("1f1b", 4, 8, 1), ("interleaved", 4, 8, 3), ("zbv", 3, 7, 2), ("dualpipev", 3, 6, 2)],
)
def test_an_order_comes_back_from_its_text(name, p, m, v):
    order = table.order(name, p, m, v)
    again = from_text(to_text(order))
    assert all(np.array_equal(a, b) for a, b in zip(order.actions, again.actions, strict=True))
    assert np.array_equal(order.rank_of_stage, again.rank_of_stage)
    assert np.array_equal(order.previous_stage, again.previous_stage)


def test_two_chains_come_back_when_the_reader_says_so():
    order = table.order("dualpipe", 4, 8, 1)
    again = from_text(to_text(order), two_way(4)[1])
    assert np.flatnonzero(again.previous_stage == -1).tolist() == [0, 4]
    assert again.next_stage.tolist() == [1, 2, 3, -1, 5, 6, 7, -1]


def test_what_an_order_reads_like():
    order = from_rows(
        [[(0, F, 0), (0, F, 1), (0, B, 0)], [(1, F, 0, 0), (1, F, 1, 1), (1, B, 0, 0)]], looped(2)
    )
    assert to_text(order) == "0F0 0F1 0B0\n1F0 (1F1;1B0)\n"
    assert to_csv(order) == "0F0,0F1,0B0\n1F0,(1F1;1B0)OVERLAP_F_B\n"
    assert tokens(order.actions[0]) == ["0F0", "0F1", "0B0"]
    assert grid(order, {1: 1}) == "rank 0: 0F0 0F1 0B0\nrank 1: 1F0 >1F1+< 1B0"


def test_labels_idle_cells_and_blank_lines_are_passed_over():
    text = "\nrank 0: 0F0, ,,0B0\n\nRank 1:1F0  1B0,,\n"
    assert to_text(from_text(text)) == "0F0 0B0\n1F0 1B0\n"


@pytest.mark.parametrize(
    "text, says",
    [
        ("0F0 0X0", "0X0"),
        ("0F", "0F"),
        ("F0", "F0"),
        ("0F0 1.5", "1.5"),
        ("0F0 0F-1", "0F-1"),
        ("(0F0;0B0", "unmatched"),
        ("0F0)", "unmatched"),
        ("(0F0)", "pair"),
        ("(0F0;0B0;0W0)", "pair"),
        ("(0F0;0B0)SOMETHING", "pair"),
        ("0F0\n0B0", "stage 0 is on ranks 0 and 1"),
        ("0F0\n2F0", "stage 1 has no action"),
        ("999999F0", "without a gap"),
        ("", "at least one action"),
        ("\n ,, \n", "at least one action"),
    ],
)
def test_malformed_text_gives_one_clear_message(text, says):
    with pytest.raises(InputError, match=says.replace("(", r"\(").replace(".", r"\.")):
        from_text(text)


def test_the_chain_must_fit_the_stages():
    with pytest.raises(InputError, match="one entry a stage"):
        from_text("0F0", np.array([-1, 0], np.int32))


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789FBIW();, \nrank:", max_size=40))
def test_any_text_is_read_or_refused_with_an_input_error(text):
    try:
        order = from_text(text)
    except InputError as refusal:
        assert str(refusal)
    else:
        assert isinstance(order, Order)
        assert [rows.tolist() for rows in from_text(to_text(order)).actions] == [
            rows.tolist() for rows in order.actions if len(rows)
        ]
