"""The search's pipeline terms against the simulator: bubble, transfers and activations in flight of
every schedule over a grid.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from planner.cost import schedule_terms
from planner.errors import InputError
from planner.estimate import closed_form, estimate
from planner.layout import SCHEDULE_CODE, Layout
from planner.schedules import durations, table
from planner.schedules.unequal import Chunks
from planner.simulator import simulate
from planner.specs import library
from tests.documents import recipe

MEGATRON = library.stack("megatron")
FIXED = [name for name, schedule in table.SCHEDULES.items() if not schedule.automatic]
EQUAL = Chunks(3.0, 3.0, 3.0)
TRANSFER_LOOSE = {"zb-h2": 2.0, "dualpipe": 1.15}
"""An upper bound that equal times halve; low by two transfers for eight ranks."""


def legal(name: str, sizes: tuple[int, ...], turns: tuple[int, ...]) -> Iterator[Layout]:
    """Layouts of a schedule with m a multiple of p."""
    schedule = table.schedule(name)
    least, most = schedule.chunks
    for p, turn, v in itertools.product(sizes, turns, range(least, min(most or 3, 3) + 1)):
        m = 1 if name == "naive" else p * turn
        try:
            schedule.legal(p, m, v)
        except InputError:
            continue
        yield Layout(pp=p, m=m, v=v, schedule=SCHEDULE_CODE[name])


def makespan(
    name: str, layout: Layout, transfer: float, times: tuple[float, float, float]
) -> float:
    schedule = table.schedule(name)
    order = schedule.order(layout.pp, layout.m, layout.v)
    spent = durations.stage_durations(order, layout.v, *times)
    blocks = schedule_terms.blocking(schedule, MEGATRON)
    return simulate(order, spent, transfer=transfer, blocking=blocks).makespan


def test_the_transfer_term_of_two_ranks_by_hand() -> None:
    """Two ranks, eight micro-batches, blocking: a send after each of eight forwards and the first
    backward: 0.9 with transfers of 0.1.
    """
    layout = Layout(pp=2, m=8, schedule=SCHEDULE_CODE["1f1b"])
    assert schedule_terms.exposed_transfer_s(MEGATRON, layout, 0.1, EQUAL) == pytest.approx(0.9)


@pytest.mark.parametrize("name", FIXED)
def test_transfers_are_what_the_simulator_finds(name: str) -> None:
    """Short transfers, equal stages, f = b = w."""
    c, times, seen = 1e-3, (1.0, 1.0, 1.0), 0
    for layout in legal(name, (2, 3, 4, 8), (2, 3, 5)):
        extra = makespan(name, layout, c, times) - makespan(name, layout, 0.0, times)
        term = schedule_terms.exposed_transfer_s(MEGATRON, layout, c, EQUAL)
        loose = TRANSFER_LOOSE.get(name, 1.0)
        assert extra / loose - 1e-9 <= term <= extra * loose + 1e-9, layout
        seen += 1
    assert seen >= 3


@pytest.mark.parametrize("overlap", [False, True])
def test_interleaved_transfers_block_unless_the_stack_overlaps_them(overlap: bool) -> None:
    stack = MEGATRON.with_figures({"overlap.p2p": overlap})
    for layout in legal("interleaved", (2, 4, 8), (1, 2, 4)):
        order = table.order("interleaved", layout.pp, layout.m, layout.v)
        spent = durations.stage_durations(order, layout.v, 1.0, 1.0, 1.0)
        extra = (
            simulate(order, spent, transfer=1e-3, blocking=not overlap).makespan
            - simulate(order, spent).makespan
        )
        term = schedule_terms.exposed_transfer_s(stack, layout, 1e-3, EQUAL)
        assert term == pytest.approx(extra, abs=1e-9), layout


@pytest.mark.parametrize("name", FIXED)
def test_bubble_and_activations_in_flight_are_what_the_simulator_finds(name: str) -> None:
    times = (1.0, 1.0, 1.0)
    for layout in legal(name, (1, 2, 3, 4, 8), (1, 2, 5)):
        schedule = table.schedule(name)
        order = schedule.order(layout.pp, layout.m, layout.v)
        spent = durations.stage_durations(order, layout.v, *times)
        found = simulate(order, spent)
        held = [schedule_terms.in_flight(layout, rank) * layout.v for rank in range(layout.pp)]
        assert held == pytest.approx(found.peak_in_flight.tolist()), layout
        if schedule.exact is None or not schedule.exact(layout.pp, layout.m, layout.v, *times):
            continue
        forward, backward = Chunks(1.0, 1.0, 1.0), Chunks(2.0, 2.0, 2.0)
        bubble = schedule_terms.idle_s(MEGATRON, layout, forward, backward, 1.0)
        assert bubble == pytest.approx(found.makespan - 3 * layout.m, abs=1e-9), layout


def test_gpipe_with_unequal_ends_exactly() -> None:
    gpipe = table.schedule("gpipe")
    assert gpipe.unequal is not None
    for p, m, first, last in itertools.product((2, 3, 6), (1, 2, 9), (0.3, 1, 2.5), (0.3, 1, 2.5)):
        scale = np.ones(p)
        scale[0], scale[-1] = first, last
        found = simulate(gpipe.order(p, m), scale[:, None] * np.array([1.0, 2.0, 1.0, 1.0]))
        forward, backward = Chunks(first, 1.0, last), Chunks(2 * first, 2.0, 2 * last)
        assert gpipe.unequal(p, m, 1, forward, backward) == pytest.approx(found.makespan)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize("hardware", ["h100-sxm", "a100-80g-pcie"])
def test_columns_of_a_model_are_close_to_its_simulation(name: str, hardware: str) -> None:
    """Llama 3 8B with its head on the last stage."""
    question = recipe("llama3-8b", hardware=hardware, gpus=64)
    v = 2 if name == "interleaved" else 1
    for pp, m in ((2, 8), (4, 16), (8, 16)):
        layout = Layout(tp=2, pp=pp, v=v, m=m, dp=32 // pp, schedule=SCHEDULE_CODE[name])
        columns, exact = closed_form(question, layout), estimate(question, layout, exact=True)
        assert float(columns.step_s) == pytest.approx(exact.step_s, rel=0.01), (pp, m)
        if name != "interleaved":
            assert float(columns.time.pp_comm_s) == pytest.approx(exact.time.pp_comm_s, rel=1e-6)
            assert float(columns.time.bubble_s) == pytest.approx(exact.time.bubble_s, rel=1e-6)


def test_a_batch_asks_each_row_its_own_schedule() -> None:
    names = ["1f1b", "gpipe", "zb-h2", "1f1b"]
    codes = np.array([SCHEDULE_CODE[name] for name in names])
    batch = Layout(pp=np.full(4, 4), m=np.full(4, 8), v=np.ones(4, int), schedule=codes)
    assert schedule_terms.in_flight(batch, 0).tolist() == [4, 8, 7, 4]
    assert schedule_terms.messages(batch).tolist() == [48] * 4
