"""Orders against those that the installed torch.distributed.pipelining builds, over a grid, its
refusals included.
"""

from __future__ import annotations

import itertools

import pytest

from planner.action import from_text, to_csv, tokens
from planner.errors import InputError
from planner.schedules import table

pytestmark = pytest.mark.slow


CLASSES = {
    "gpipe": "GPipe",
    "interleaved-torch": "Interleaved1F1B",
    "looped-bfs": "LoopedBFS",
    "interleaved-zb": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}


@pytest.fixture(scope="module")
def visualizer():
    return pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")


@pytest.mark.parametrize("name", CLASSES)
def test_same_order_or_both_refuse(visualizer, name):
    least, most = table.schedule(name).chunks
    chunks = range(max(least, 2), 4) if most is None else [least]
    agreed = 0
    for p, m, v in itertools.product((2, 3, 4), (1, 2, 3, 4, 5, 7, 8, 9, 11, 12), chunks):
        try:
            theirs = visualizer.get_schedule_ops(CLASSES[name], p, m, v)
        except ValueError:
            with pytest.raises(InputError):
                table.order(name, p, m, v)
            continue
        ours = table.order(name, p, m, v)
        for rank, actions in enumerate(theirs):
            wanted = [
                str(action) for action in actions if action is not None and action.is_compute_op
            ]
            assert tokens(ours.actions[rank], "OVERLAP_F_B") == wanted, (p, m, v, rank)
        agreed += 1
    assert agreed >= 15


def test_torch_reads_our_csv_and_we_read_its_lowered_table(visualizer):
    from torch.distributed.pipelining.schedules import _Action

    order = table.order("dualpipev", 4, 8, 2)
    for line, rows in zip(to_csv(order).splitlines(), order.actions, strict=True):
        assert [str(_Action.from_str(cell)) for cell in line.split(",")] == tokens(
            rows, "OVERLAP_F_B"
        )
    lowered = visualizer.get_schedule_ops("Interleaved1F1B", 4, 8, 2, with_comms=True)
    text = "\n".join(",".join(str(action) for action in actions) for actions in lowered)
    assert "SEND_F" in text and "RECV_B" in text
    ours = table.order("interleaved-torch", 4, 8, 2)
    assert [rows.tolist() for rows in from_text(text).actions] == [
        rows.tolist() for rows in ours.actions
    ]
