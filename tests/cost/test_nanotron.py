"""nanotron: how it deals layers, reduces gradients and keeps memory, against what its code and its
runs say.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from planner.cost.layer.kinds import layer_time
from planner.cost.network import collectives
from planner.cost.params.stages import chunk_layers, head_layers, split
from planner.cost.step.data_parallel import gradient_reduction_s, late_share
from planner.estimate import closed_form, estimate
from planner.layout import Layout
from planner.specs import library
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.units import GIB, MIB

LLAMA = library.model("llama3-8b")
SHAPES = {"1.34b": (16, 2048, 8192, True), "8.86b": (32, 4096, 14336, False)}
"""Layers, hidden size, ffn, tied tables of the Ultra-Scale Playbook's models: 32 heads, 131,072
words.
"""
HEAD_SHARE = library.stack("nanotron").quirks.stage_head_share


def model(name: str) -> ModelSpec:
    layers, hidden, ffn, tied = SHAPES[name]
    shape = {
        "num_layers": layers,
        "hidden_size": hidden,
        "ffn_size": ffn,
        "tied_embeddings": tied,
        "num_heads": 32,
        "num_kv_heads": 32,
    }
    return LLAMA.model_copy(
        update={**shape, "head_dim": hidden // 32, "vocab_size": 131_072, "parameters": None}
    )


def asked(name: str, gpus: int, cluster: str = "aws-p5", **figures: Any) -> Recipe:
    return Recipe(
        model=model(name),
        hardware=library.hardware(cluster),
        software=library.stack("nanotron").with_figures(figures),
        gpus=gpus,
        seq_length=4096,
        global_batch_size=256,
        framework_version="2.13",
    )


def test_the_head_weighs_as_many_layers_as_its_products() -> None:
    """get_block_compute_costs: 4 a d h + 3 f h a layer, V h the head: 268,435,456 over 67,108,864
    for 1.34B.
    """
    assert head_layers(model("1.34b")) == 4.0
    assert head_layers(model("8.86b")) == pytest.approx(536_870_912 / 243_269_632)


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("1.34b", [10, 6]),
        ("1.34b", [5, 5, 5, 1]),
        ("8.86b", [18, 14]),
        ("8.86b", [9, 9, 8, 6]),
    ],
)
def test_layers_are_dealt_by_size(name: str, stages: list[int]) -> None:
    """16 layers and a head of four are 20 blocks: 10 a stage of two, 5 a stage of four, the head's
    with fewer layers.
    """
    found = [sum(row) for row in chunk_layers(model(name), Layout(pp=len(stages)), HEAD_SHARE)]
    assert found == stages
    share = split(asked(name, 32), Layout(pp=len(stages)))
    assert (share.first.total, share.last.total) == (stages[0], stages[-1])
    assert share.middle.total == max(stages)


@pytest.mark.parametrize("name", sorted(SHAPES))
@pytest.mark.parametrize("pp", [1, 2, 4, 8, 16, 32])
def test_no_layer_is_lost_and_first_and_last_agree(name: str, pp: int) -> None:
    rows = [sum(row) for row in chunk_layers(model(name), Layout(pp=pp), HEAD_SHARE)]
    share = split(asked(name, 32), Layout(pp=np.array([pp, 1])))
    assert sum(rows) == model(name).num_layers
    first, middle, last = (rank.total for rank in (share.first, share.middle, share.last))
    assert (first[0], last[0]) == (rows[0], rows[-1])
    assert middle[0] >= max(rows[1:-1], default=0)
    assert first[1] == last[1] == model(name).num_layers


def test_unsharded_gradients_go_in_buckets_and_sharded_ones_in_one_message() -> None:
    question = asked("1.34b", 32)
    members = collectives.group(question.hardware, 1, 32)
    params = 1e9
    one = collectives.all_reduce_s(question.hardware, members, 4 * params)
    bucket = collectives.all_reduce_s(question.hardware, members, 50 * MIB)
    whole = gradient_reduction_s(question, Layout(dp=32, zero=1), members, params)
    buckets = gradient_reduction_s(question, Layout(dp=32, zero=0), members, params)
    assert whole == pytest.approx(one)
    assert buckets == pytest.approx(4 * params / (50 * MIB) * bucket)
    assert buckets > whole


def test_embedding_and_first_layer_come_last() -> None:
    """1.34B, tied: 268.4M of the table and 67.1M of a layer of 1,342M parameters."""
    question, layout = asked("1.34b", 8), Layout(dp=8)
    assert late_share(question, layout, split(question, layout)) == pytest.approx(
        (268.4 + 67.1) / 1342.2, rel=0.001
    )


@pytest.mark.parametrize(("zero", "hides"), [(0, True), (1, False)])
def test_only_unsharded_gradients_hide_behind_the_backward_pass(zero: int, hides: bool) -> None:
    """make_ddp is false with ZeRO-1 and fp32 accumulation: nothing is reduced before the last
    backward pass is over.
    """
    layout = Layout(tp=4, dp=4, mbs=1, m=64, zero=zero, sp=1)
    beside, after = (
        closed_form(asked("8.86b", 16, **{"overlap.grad_share": share}), layout).time.dp_comm_s
        for share in (1.0, 0.0)
    )
    assert (beside < after) == hides
    assert beside == pytest.approx(after) or hides


def test_joining_slices_takes_the_cpu_longer_the_more_ranks_there_are() -> None:
    """all_gather_coalesced copies every rank's slice of every tensor: 16 layers of six tensors, 256
    ranks.
    """
    long, short = asked("1.34b", 256), asked("1.34b", 256, **{"launch.gather_us": 0.0})
    layout = Layout(dp=256, m=1, zero=1)
    more = closed_form(long, layout).time.dp_comm_s - closed_form(short, layout).time.dp_comm_s
    assert more == pytest.approx(256 * 16 * 6 * long.software.launch.gather_us * 1e-6)


def floors(question: Recipe, layout: Layout) -> tuple[float, float]:
    """Time of a layer so small that only the CPU counts."""
    layer = layer_time(question.model_copy(update={"seq_length": 32}), layout)
    return float(layer.forward_s), float(layer.backward_s - layer.tax_backward_s)


def test_collectives_take_the_cpu_longer_where_a_pipeline_crosses_nodes() -> None:
    stack = library.stack("nanotron")
    inside, across = asked("1.34b", 8), asked("1.34b", 16)
    for layout in (Layout(tp=8, sp=1), Layout(tp=1, pp=2)):
        assert floors(across, layout) == pytest.approx(floors(inside, layout))
    before, after = (
        floors(inside, Layout(tp=4, pp=2, sp=1)),
        floors(across, Layout(tp=4, pp=2, dp=2, sp=1)),
    )
    assert before[0] == pytest.approx((stack.launch.us_forward + stack.launch.us_tp) * 1e-6)
    assert after[0] - before[0] == pytest.approx(4 * 4 * stack.launch.collective_us_crossing * 1e-6)
    assert after[1] - before[1] == pytest.approx(6 * 4 * stack.launch.collective_us_crossing * 1e-6)


def test_states_of_1_34b_on_8_gpus() -> None:
    """16-bit weights 2, fp32 gradients 4, fp32 weights and two moments 12 over dp: 6 + 12/8 bytes a
    parameter; 1.34B by the Playbook.
    """
    held = closed_form(asked("1.34b", 8), Layout(dp=8, zero=1, mbs=1, m=32)).memory
    assert held.weights_bytes + held.gradients_bytes + held.optimizer_bytes == pytest.approx(
        7.5 * 1.342e9, rel=0.001
    )


def test_all_gradients_of_a_backward_pass_exist_at_its_end() -> None:
    """Where a micro-batch keeps less than 4 bytes a parameter, the end of the backward pass is the
    peak.
    """
    question, layout = asked("8.86b", 64), Layout(tp=2, pp=32, dp=1, zero=0, mbs=1, m=256)
    small = closed_form(question, layout).memory.working_bytes
    bare = closed_form(
        asked("8.86b", 64, **{"states.unit_gradient_bytes": 0.0}), layout
    ).memory.working_bytes
    assert small - bare > 0.5 * GIB


def test_a_batch_is_its_rows() -> None:
    question = asked("8.86b", 64)
    rows = [
        Layout(tp=t, pp=p, dp=64 // t // p, mbs=1, m=256 // (64 // t // p), sp=int(t > 1), zero=z)
        for t in (1, 2, 8)
        for p in (1, 2, 8)
        for z in (0, 1)
    ]
    batch = Layout(
        **{
            f.name: np.array([getattr(one, f.name) for one in rows])
            for f in fields(Layout)
            if f.name != "stage_layout"
        }
    )
    many = closed_form(question, batch)
    for index, one in enumerate(rows):
        alone = closed_form(question, one)
        assert many.step_s[index] == pytest.approx(alone.step_s, rel=1e-12)
        assert many.memory_bytes[index] == pytest.approx(alone.memory_bytes, rel=1e-12)


def test_trees_have_a_latency_of_their_own_on_aws() -> None:
    """A ring of 16 nodes takes longer than a tree of as many: the Playbook's all-gathers fall
    faster than its all-reduces.
    """
    aws = library.hardware("aws-p5")
    members = collectives.group(aws, 1, 128)
    same = aws.model_copy(update={"fabric": aws.fabric.model_copy(update={"tree_us": None})})
    assert (
        collectives.tree_latency_s(aws, members)
        < collectives.tree_latency_s(same, members)
        < collectives.ring_latency_s(same, members)
    )


def test_aws_has_the_kernels_of_its_gpu() -> None:
    aws, h100 = library.hardware("aws-p5"), library.hardware("h100-sxm")
    assert (aws.gpu, aws.kernels, aws.node) == (h100.gpu, h100.kernels, h100.node)
    assert (
        aws.fabric.nics * aws.fabric.nic_gbytes_per_s
        == h100.fabric.nics * h100.fabric.nic_gbytes_per_s
    )


def test_an_exact_estimate_uses_the_dealt_stages() -> None:
    layout = Layout(pp=4, dp=2, mbs=1, m=128, zero=1)
    exact = estimate(asked("1.34b", 8), layout, exact=True)
    assert [stage.layers for stage in exact.stages] == [5, 5, 5, 1]
    assert exact.step_s == pytest.approx(
        float(closed_form(asked("1.34b", 8), layout).step_s), rel=0.05
    )
