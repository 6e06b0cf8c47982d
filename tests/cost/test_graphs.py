"""Memory of CUDA graphs and of an overlapped exchange, by hand and from Megatron's own schedule."""

from __future__ import annotations

import pytest

from planner.cost.memory.rank_memory import graph_bytes, more_in_flight
from planner.cost.memory.states import Rank
from planner.cost.params.stages import Layers
from planner.layout import Layout
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Switches
from planner.specs.switches.table import with_switches

GIB = 2**30


def asked(settings: Switches) -> Recipe:
    return Recipe(
        model=library.model("qwen3-235b-a22b"),
        hardware=library.hardware("h100-sxm"),
        software=with_switches(library.stack("megatron"), settings),
        gpus=256,
        seq_length=4096,
        global_batch_size=2048,
    )


LAYOUT = Layout(tp=2, pp=8, dp=16, v=4, m=128, ep=32, sp=1)
RANK = Rank(Layers((12.0,)), 0.0, 39 / 4, 1.0, 0.0, 0.0)
"""The first: 2 (8 - 1) + 3 * 8 + 1 chunks of 3 layers in flight."""


def test_static_tensors_of_each_layer_and_micro_batch() -> None:
    """2,048 tokens a rank of 4,096 numbers in 2 bytes; one tensor of attention, two with the
    router: within the few GB that Megatron-Bridge's guide tells of.
    """
    one = 2048 * 4096 * 2 * 12 * 39 / 4
    for graph, tensors in (("none", 0), ("attn", 1), ("layers", 2)):
        found = float(graph_bytes(asked({"cuda_graph": graph}), LAYOUT, RANK, 10.0 * GIB))
        assert found == pytest.approx(tensors * one)
    assert 1 < 2 * one / GIB < 5


def test_a_graph_of_all_holds_half_as_much_again() -> None:
    """Megatron-Bridge's skill on CUDA graphs: 1.5 to 2 times the peak."""
    found = graph_bytes(asked({"cuda_graph": "full_iteration"}), LAYOUT, RANK, 10.0 * GIB)
    assert float(found) == pytest.approx(5.0 * GIB)


@pytest.mark.parametrize(
    ("overlap", "in_flight", "layers"), [(False, 39 / 4, 0), (True, 39 / 4, 1), (True, 128, 0)]
)
def test_an_overlapped_exchange_keeps_one_layer_more(
    overlap: bool, in_flight: float, layers: int
) -> None:
    """Megatron runs one chunk ahead, and frees as it goes: Megatron-LM pull request 6311 tells of
    364 MB more of 60 GB. While there are micro-batches left.
    """
    rank = Rank(Layers((12.0,)), 0.0, in_flight, 1.0, 0.0, 0.0)
    question = asked({"overlap_moe_expert_parallel_comm": overlap})
    assert float(more_in_flight(question, LAYOUT, rank)) == pytest.approx(layers / 12)
