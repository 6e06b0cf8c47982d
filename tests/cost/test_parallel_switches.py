"""Deferred head, copies of the optimizer, buckets and fusions: by hand from shapes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.cost.params.layer import total_params
from planner.estimate import estimate
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
