"""Deferred head, copies of the optimizer, buckets and fusions: by hand from shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.cost.layer.gemms import accumulate_bytes
from planner.cost.params import stages
from planner.cost.params.layer import total_params
from planner.cost.step import data_parallel
from planner.estimate import closed_form, estimate
from planner.layout import Layout
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Value
from planner.specs.switches.table import with_switches
from tests import documents


def asked(model: str = "llama3-8b", gpus: int = 64, **settings: Value) -> Recipe:
    software = with_switches(library.stack("megatron"), settings)
    return documents.recipe(model, gpus, software=software)


def test_a_deferred_head_keeps_inputs_and_gradients() -> None:
    """Of 5 micro-batches: 8,192 tokens of 4,096 in and 128,256 rows of logits, 2 bytes each."""
    here = asked()
    away = asked(defer_embedding_wgrad_compute=True, wgrad_deferral_limit=5)
    layout = documents.layout(here, pp=4)
    before, after = (estimate(one, layout, exact=True) for one in (here, away))
    last = after.stages[-1].memory_bytes - before.stages[-1].memory_bytes
    reserved = here.software.allocator.reserved_share
    assert last == pytest.approx(5 * 8192 * 2 * (4096 + 128256) * reserved, rel=1e-3)
    assert after.stages[0].memory_bytes == before.stages[0].memory_bytes


def test_a_deferred_head_takes_its_product_off_the_last_stage() -> None:
    """The last stage's backward pass is shorter by 2 T h V FLOPs, at most at the peak's rate; the
    drain, three passes of 8 layers, hides 1 of 32 such products, and not all 32.
    """
    here = asked()
    product_s = 2 * 8192 * 4096 * 128256 / 989e12
    for limit in (1, 0):
        away = asked(defer_embedding_wgrad_compute=True, wgrad_deferral_limit=limit)
        layout = documents.layout(here, pp=4)
        before, after = (estimate(one, layout, exact=True) for one in (here, away))
        less = before.stages[-1].backward_s - after.stages[-1].backward_s
        count = limit or layout.m
        assert less > product_s * count / layout.m
        saved = before.time.head_s - after.time.head_s
        if limit:
            assert saved == pytest.approx(less * layout.m)
        else:
            assert saved < 0.9 * less * layout.m


def test_no_pipeline_defers_nothing() -> None:
    here, away = asked(), asked(defer_embedding_wgrad_compute=True)
    layout = documents.layout(here, tp=8)
    assert estimate(here, layout).step_s == estimate(away, layout).step_s


def test_copies_of_the_optimizer() -> None:
    """4 instances of 16 ranks each: 12 bytes a parameter over 16 in place of 64."""
    one, four = asked(), asked(num_distributed_optimizer_instances=4)
    layout = documents.layout(one)
    before, after = estimate(one, layout), estimate(four, layout)
    params = total_params(one.model)
    assert before.memory.optimizer_bytes == pytest.approx(12 * params / 64)
    assert after.memory.optimizer_bytes == pytest.approx(12 * params / 16)
    split = asked(
        overlap_grad_reduce=False,
        overlap_param_gather=False,
        num_distributed_optimizer_instances=8,
    )
    # Each of 8 nodes an instance: between them goes 1/8 of the 4-byte gradients of each rank, 7/8
    # of it twice, over 50 GB/s; inside gradients and weights once, over 450 GB/s.
    between_s, inside_s = 2 * 7 / 8 * 4 * params / 8 / 50e9, 7 / 8 * 6 * params / 450e9
    said = estimate(split, layout).time.dp_comm_s
    assert between_s + inside_s < said < 1.6 * (between_s + inside_s)


def test_buckets_cost_a_latency_each_and_one_hides_nothing() -> None:
    layout = documents.layout(asked())
    usual, one, some, many = (
        estimate(asked(**settings), layout).time.dp_comm_s
        for settings in (
            {},
            {"ddp_num_buckets": 1},
            {"ddp_bucket_size": 500_000_000},
            {"ddp_bucket_size": 100_000},
        )
    )
    without = asked(overlap_grad_reduce=False, overlap_param_gather=False)
    assert one == pytest.approx(estimate(without, layout).time.dp_comm_s)
    assert usual <= some < one
    assert many > usual


@pytest.mark.parametrize(
    ("switch", "bytes_a_layer"),
    [
        # Every weight of a layer once written and once read in 16 bits.
        (
            "gradient_accumulation_fusion",
            4 * (4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336),
        ),
        # 14,336 units of 8,192 tokens: 4 bytes more forward, 16 backward.
        ("bias_activation_fusion", 8192 * 14336 * (4 + 16)),
        # 32 + 8 heads of 128, both ways 20 bytes more.
        ("rope_fusion", 8192 * 40 * 128 * 40),
    ],
)
def test_what_is_not_fused_moves_more(switch: str, bytes_a_layer: float) -> None:
    fused, apart = asked(gpus=8), asked(gpus=8, **{switch: False})
    layout = replace(documents.layout(fused), m=1)
    before, after = (estimate(one, layout).time for one in (fused, apart))
    head = 4 * 4096 * 128256 if switch == "gradient_accumulation_fusion" else 0
    moved = 32 * bytes_a_layer + head
    hardware = fused.hardware
    rate = hardware.gpu.hbm_bytes_per_s * hardware.kernels.memory_efficiency_share
    more = sum(
        getattr(after, name) - getattr(before, name)
        for name in ("gemm_s", "elementwise_s", "head_s")
    )
    assert more == pytest.approx(moved / rate, rel=0.1)


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("bucket", ["fp32", "bf16"])
def test_fsdp_copies_gradients_into_its_buckets(zero: int, bucket: str) -> None:
    """A gradient of 2 bytes read, and the bucket's element written; the product of Transformer
    Engine 2.10 writes that in place of its own 2 bytes. Neither is added to anything.
    """
    fused, apart = (
        asked(gpus=8, grad_reduce_dtype=bucket, gradient_accumulation_fusion=fuses)
        for fuses in (True, False)
    )
    layout = documents.layout(fused, zero=zero)
    width = {"fp32": 4, "bf16": 2}[bucket]
    assert accumulate_bytes(fused, layout) == width - 2
    assert accumulate_bytes(apart, layout) == width + 2
    early = fused.model_copy(update={"framework_version": "0.16"})
    assert accumulate_bytes(early, layout) == width + 2
    assert estimate(fused, layout).step_s < estimate(apart, layout).step_s


def test_no_more_buckets_than_tensors() -> None:
    """32 layers of six tensors, and two tables; a bucket of a parameter is a tensor's."""
    each, tensors = asked(ddp_bucket_size=1), asked(ddp_num_buckets=32 * 6 + 2)
    layout = documents.layout(each)
    assert estimate(each, layout).step_s == pytest.approx(estimate(tensors, layout).step_s)


def test_gathered_keys_and_values() -> None:
    """8 ranks of a node: keys and values of 8 heads of 128, of 7/8 of 65,536 tokens, once forward,
    twice backward, 32 layers, at 450 GB/s; where attention is short the ring is no faster.
    """
    changes = {"seq_length": 65536, "global_batch_size": 8}
    ring, gathered = (
        asked(gpus=8, cp_comm_type=kind).model_copy(update=changes)
        for kind in ("p2p", "all_gather")
    )
    layout = documents.layout(ring, cp=8)
    said = estimate(gathered, layout)
    least = layout.m * 32 * 3 * 7 / 8 * 65536 * 2 * 8 * 128 * 2 / 450e9
    assert least < said.time.cp_comm_s < 1.6 * least
    more = said.memory.working_bytes - estimate(ring, layout).memory.working_bytes
    assert 0 <= more <= 4 * 2 * 65536 * 7 / 8 * 1024


def hybrid(copies: int, model: str = "llama3-8b", **changes: Any) -> Recipe:
    """Weights, gradients and states of torch's FSDP in so many copies, over 64 H100."""
    software = with_switches(library.stack("torch"), {"data_parallel_replicate_degree": copies})
    return documents.recipe(model, 64, framework="torch", software=software, **changes)


def test_copies_of_shards_hold_as_many_times_as_much() -> None:
    """4 + 4 + 8 bytes over 64 / copies ranks; below zero 3 two bytes of each weight besides; as
    many copies as ranks are replicas that shard nothing; zero 1 and 0 shard none of it, nor does
    one rank.
    """
    params = total_params(hybrid(1).model)
    for copies in (1, 2, 8, 64):
        here = hybrid(copies)
        for zero, whole in ((3, 0), (2, 2)):
            held = estimate(here, documents.layout(here, zero=zero)).memory
            share = params * copies / 64
            assert held.weights_bytes == pytest.approx(4 * share + whole * params)
            assert held.gradients_bytes == pytest.approx(4 * share)
            assert held.optimizer_bytes == pytest.approx(8 * share)
        for knobs in ({"zero": 0}, {"zero": 1}, {"zero": 3, "tp": 8, "pp": 8}):
            layout = documents.layout(here, **knobs)
            assert estimate(here, layout).step_s == estimate(hybrid(1), layout).step_s


def test_experts_have_their_own_copies() -> None:
    """8 experts over ep 8, each on 8 ranks, 4 of one copy; what is dense on 64, 32 of one copy."""
    here = hybrid(2, "mixtral-8x7b")
    routed = 32 * 8 * 3 * 4096 * 14336
    dense = total_params(here.model) - routed
    held = estimate(here, documents.layout(here, zero=3, ep=8)).memory
    assert held.gradients_bytes == pytest.approx(4 * (dense / 32 + routed / 8 / 4))


def test_a_copy_gathers_in_its_node_and_gradients_are_summed_over_nodes() -> None:
    """Of 8 nodes a copy each: a layer's 218 M weights in 2 bytes gathered by 8 ranks over 450 GB/s,
    its gradients in 4 scattered there, and an eighth of them, twice 7/8, over 50 GB/s; in each
    micro-batch.
    """
    layer = 4096 * (4096 * 2 + 1024 * 2) + 3 * 4096 * 14336
    here = hybrid(8)
    layout = documents.layout(here, zero=3)
    split = stages.split(here, layout)
    each = data_parallel.moves(here, layout, split)
    inside_s = 7 / 8 * 2 * layer / 450e9
    between_s = 2 * 7 / 8 * 4 * layer / 8 / 50e9
    assert inside_s < each.gather_s < 1.6 * inside_s
    assert 2 * inside_s + between_s < each.reduce_s < 1.6 * (2 * inside_s + between_s)
    plain = data_parallel.moves(hybrid(1), layout, split)
    assert plain.gather_s > each.gather_s
    replicas = data_parallel.moves(hybrid(64), layout, split)
    ring_s = 2 * 63 / 64 * 4 * layer / 400e9
    assert replicas.gather_s == 0
    assert ring_s < replicas.reduce_s < 1.6 * ring_s


def test_a_copy_at_each_site_gathers_inside_it() -> None:
    """Two sites over a link of 1 GB/s and 32 GPUs each: gathers do not cross it where each has a
    copy, and gradients do as an all-reduce of every rank's shard, both ways 4 / 2 bytes.
    """
    far = library.hardware("h100-sxm").model_copy(deep=True)
    fabric = far.fabric.model_copy(
        update={"sites": 2, "site_gbytes_per_s": 1.0, "site_latency_us": 1000.0}
    )
    far = far.model_copy(update={"fabric": fabric})
    layout = documents.layout(hybrid(1), zero=3)
    near, apart, across = (
        data_parallel.moves(here, layout, stages.split(here, layout))
        for here in (hybrid(2), hybrid(2, hardware=far), hybrid(1, hardware=far))
    )
    assert apart.gather_s == near.gather_s
    layer = 4096 * (4096 * 2 + 1024 * 2) + 3 * 4096 * 14336
    assert across.gather_s > 2 * layer / 2 / 1e9
    assert apart.reduce_s > 2 * 4 * layer / 2 / 1e9


@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b"])
def test_columns_of_copies_are_rows(model: str) -> None:
    here = hybrid(4, model)
    columns = {
        "dp": [64, 32, 64, 32],
        "cp": [1, 2, 1, 2],
        "m": [8, 16, 8, 16],
        "zero": [0, 1, 2, 3],
    }
    batch = Layout(**{name: np.array(values) for name, values in columns.items()})
    many = closed_form(here, batch)
    for at in range(4):
        one = closed_form(here, batch[at])
        assert many.step_s[at] == pytest.approx(float(one.step_s), rel=1e-12)
        assert many.memory_bytes[at] == pytest.approx(float(one.memory_bytes), rel=1e-12)
