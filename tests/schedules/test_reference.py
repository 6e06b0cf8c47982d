"""Every fixed-order schedule against orders and timelines of the real implementations, and against
the zero bubble paper's tables.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from planner.action import to_text
from planner.schedules import durations, table
from planner.simulator import peak_in_flight, simulate
from tests.schedules.reference import our_name, published_rows, reference_orders, reference_rows

pytestmark = pytest.mark.slow


def _by_schedule() -> dict[str, list[dict[str, str]]]:
    rows: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in reference_rows():
        rows[our_name(row["schedule"], row["implementation"])].append(row)
    return rows


ROWS = _by_schedule()


def _check(name: str, row: dict[str, str]) -> None:
    p, m, v, group = (int(float(row[key] or 0)) for key in ("p", "m", "v", "group"))
    forward, input_grad, weight_grad, transfer, head_extra = (
        float(row[key]) for key in ("t_f", "t_b", "t_w", "t_p2p", "head_extra")
    )
    order = table.order(name, p, m, v, group=group)
    pair = (
        durations.pair_durations(order, v, float(row["t_fb_overlap"]), None, head_extra)
        if row["t_fb_overlap"]
        else None
    )
    spent = durations.stage_durations(order, v, forward, input_grad, weight_grad, None, head_extra)
    found = simulate(order, spent, transfer, pair_durations=pair)
    assert found.makespan == pytest.approx(float(row["makespan"]), rel=1e-8), row
    assert found.span == pytest.approx(float(row["span_max"]), rel=1e-8), row
    assert found.busy.max() == pytest.approx(float(row["work_max_rank"]), rel=1e-8), row
    assert found.bubble_share == pytest.approx(float(row["bubble_ratio"]), abs=6e-9), row
    assert found.span_bubble_share == pytest.approx(float(row["bubble_span"]), abs=6e-9), row
    assert found.peak_in_flight.tolist() == [
        float(row[f"peak_inflight_rank{rank}"]) for rank in range(p)
    ], row
    assert peak_in_flight(order, weight_retained=0.0).tolist() == [
        float(peak) for peak in row["peak_to_I_ranks"].split()
    ], row
    assert found.messages == int(row["p2p_messages_total"]), row


@pytest.mark.parametrize("name", sorted(ROWS))
def test_makespan_span_bubble_peaks_and_messages_of_every_row(name):
    for row in ROWS[name]:
        _check(name, row)


NO_REFERENCE = {"naive": "nobody ships it: gpipe with one micro-batch"}
"""Schedules with a fixed order that tests/data/schedules does not have, and why."""


def test_the_reference_covers_every_fixed_schedule():
    fixed = {name for name, schedule in table.SCHEDULES.items() if not schedule.automatic}
    assert ROWS.keys() == fixed - NO_REFERENCE.keys()
    assert NO_REFERENCE.keys() <= fixed
    assert sum(len(rows) for rows in ROWS.values()) == 1181


def _title(row: dict[str, Any]) -> str:
    return "-".join(str(row[key]) for key in ("implementation", "schedule", "p", "m", "v"))


@pytest.mark.parametrize("row", reference_orders(), ids=_title)
def test_order_start_and_finish_of_every_action(row):
    order = table.order(
        our_name(row["schedule"], row["implementation"]),
        row["p"],
        row["m"],
        row["v"],
        group=row["group"] or 0,
    )
    assert to_text(order).splitlines() == row["orders"]
    assert order.rank_of_stage.tolist() == row["rank_of_stage"]
    assert [np.flatnonzero(order.previous_stage == -1).tolist()] == [
        [chain[0] for chain in row["chains"]]
    ]
    times = [float(row[key]) for key in ("t_f", "t_b", "t_w")]
    found = simulate(order, durations.stage_durations(order, row["v"], *times), float(row["t_p2p"]))
    for rank, rows in enumerate(order.actions):
        whole = rows[:, 3] == 0  # a pair is one entry in the reference
        assert found.start[rank][whole] == pytest.approx(row["start"][rank], abs=1e-9)
        assert found.end[rank][whole] == pytest.approx(row["finish"][rank], abs=1e-9)


def _bubble(row: dict[str, str]) -> float:
    p, m, v = (int(row[key]) for key in ("p", "m", "v"))
    order = table.order(our_name(row["schedule"], "paper"), p, m, v)
    found = simulate(
        order,
        durations.stage_durations(order, v, *(float(row[key]) for key in ("t_f", "t_b", "t_w"))),
        float(row["t_p2p"]),
    )
    return found.span_bubble_share if row["metric"] == "span" else found.bubble_share


HANDCRAFTED = [row for row in published_rows() if row["schedule"] != "Interleaved1F1B"]
FULL_DEPENDENCIES = [row for row in published_rows() if row["metric"] == "makespan, full deps"]


def test_published_bubble_rates_of_1f1b_zb_h1_and_zb_h2_to_four_decimals():
    assert len(HANDCRAFTED) == 37
    for row in HANDCRAFTED:
        assert _bubble(row) == pytest.approx(float(row["published"]), abs=5.1e-5), row


def test_published_interleaving_with_complete_dependencies():
    assert len(FULL_DEPENDENCIES) == 9
    for row in FULL_DEPENDENCIES:
        assert _bubble(row) == pytest.approx(float(row["simulated"]), abs=6e-7), row
        assert _bubble(row) >= float(row["published"])  # the printed figure leaves waits out
