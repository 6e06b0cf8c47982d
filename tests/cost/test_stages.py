"""How layers split, against Megatron's own rules."""

from __future__ import annotations

import pytest

from planner.cost.params.stages import chunk_layers, split
from planner.layout import Layout
from planner.specs import library
from tests import documents

MODEL = library.model("llama3-405b")  # 126 layers


def test_405b_on_16_stages_counts_embedding_and_loss_as_layers() -> None:
    """(126 + 2) / 16 = 8 a stage, one less at both ends: the split that Llama 3 was trained
    with.
    """
    layout = Layout(pp=16, account_for_embedding=1, account_for_loss=1)
    assert chunk_layers(MODEL, layout) == [[7], *[[8]] * 14, [7]]
    found = split(documents.recipe("llama3-405b"), layout)
    assert [rank.total for rank in (found.first, found.middle, found.last)] == [7, 8, 7]


def test_virtual_stages_lose_the_layer_in_the_outermost_chunk() -> None:
    rows = chunk_layers(MODEL, Layout(pp=16, v=4, account_for_embedding=1, account_for_loss=1))
    assert rows[0] == [1, 2, 2, 2]
    assert rows[15] == [2, 2, 2, 1]
    assert sum(map(sum, rows)) == 126


@pytest.mark.parametrize(
    ("first", "last", "rows"),
    [(5, 0, [5, 11, 11, 11]), (0, 2, [12, 12, 12, 2]), (7, 7, [7, 12, 12, 7])],
)
def test_stated_end_stages(first: int, last: int, rows: list[int]) -> None:
    model = MODEL.model_copy(update={"num_layers": sum(rows)})
    found = chunk_layers(model, Layout(pp=4, first_layers=first, last_layers=last))
    assert [sum(r) for r in found] == rows


def test_layout_string_is_read_chunk_by_chunk() -> None:
    """All ranks of chunk 0 come first, then those of chunk 1."""
    model = MODEL.model_copy(update={"num_layers": 7})
    assert chunk_layers(model, Layout(pp=2, v=2, stage_layout="Ett|tt|tt|tL")) == [[2, 2], [2, 1]]
