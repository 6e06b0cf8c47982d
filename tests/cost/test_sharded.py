"""Sharded weights: volumes of the ZeRO paper, states of the FSDP documentation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.cost.layer.kinds import layer_time
from planner.cost.memory.rank_memory import Rank, gathered_bytes, state_bytes
from planner.cost.params.layer import embedding_params, head_params, layer_params, total_params
from planner.cost.params.stages import Layers, split
from planner.cost.step.data_parallel import moves, sharded_comm_s
from planner.estimate import estimate
from planner.layout import RECOMPUTE_CODE, Layout, module_mask
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.switches.table import with_switches
from planner.units import GIB
from tests.documents import layout, recipe


def fsdp(stack: str = "torch-fsdp-2023", **changes: Any) -> tuple[Recipe, Layout]:
    """MPT-7B on one A100 node, two micro-batches of 32 sequences, as LLM Foundry ran it."""
    known = {
        "gpus": 8,
        "hardware": "a100-80g-sxm",
        "seq_length": 2048,
        "global_batch_size": 512,
        "framework": "torch",
        "framework_version": "2.13",
        "attention": "flash",
        "precision": "bf16",
        **changes,
    }
    question = recipe("mpt-7b", stack=stack, **known)
    return question, layout(question, mbs=32, zero=3)


def moved(question: Recipe, one: Layout) -> tuple[float, float]:
    found = sharded_comm_s(question, one, split(question, one), layer_time(question, one))
    return float(found[0]), float(found[1])


def test_three_times_the_parameters_are_moved() -> None:
    """ZeRO sec. 7.2.2: two gathers and one reduction of Psi elements each, (n - 1)/n of them over
    the wire; tables once each way.
    """
    question, one = fsdp("torch-fsdp-2022")
    exposed, hidden = moved(question, one)
    link = question.hardware.node.domain
    bandwidth = link.bytes_per_s * link.efficiency[8]
    inside = 32 * layer_params(question.model, 1)
    ends = embedding_params(question.model, 1) + head_params(question.model, one)
    volume = 2 * 7 / 8 * 2.0 * (3 * inside + 2 * ends)
    assert (exposed + hidden) * bandwidth == pytest.approx(volume, rel=0.05)


def test_long_layers_hide_all_but_the_first_and_the_last() -> None:
    question, one = fsdp("torch-fsdp-2022")
    exposed, hidden = moved(question, one)
    layer, table = (
        layer_params(question.model, 1),
        embedding_params(question.model, 1) + head_params(question.model, one),
    )
    assert hidden / (exposed + hidden) == pytest.approx(
        31 * 3 * layer / (32 * 3 * layer + 2 * table), rel=0.005
    )


def test_short_layers_hide_as_much_as_they_last() -> None:
    """With a slow network the step pays the whole communication less the compute beside it."""
    question, one = fsdp(gpus=64, global_batch_size=64)
    fabric = question.hardware.fabric.model_copy(update={"nic_gbytes_per_s": 0.25})
    slow = question.model_copy(
        update={"hardware": question.hardware.model_copy(update={"fabric": fabric})}
    )
    one = layout(slow, mbs=1, zero=3)
    layer = layer_time(slow, one)
    assert moved(slow, one)[1] == pytest.approx(31 * (layer.forward_s + layer.backward_s))


def test_gathers_of_deepspeed_stay_but_its_reductions_do_not_hide() -> None:
    question, one = fsdp()
    stack = question.software.with_figures({"overlap.grad_share": 0.0})
    other = moved(question.model_copy(update={"software": stack}), one)
    assert sum(other) == pytest.approx(sum(moved(question, one)))
    assert other[0] > 5 * moved(question, one)[0]


def test_early_stop_spares_a_third_of_the_products() -> None:
    """The MLP's second product is 4 of the 12 h x h of a GPT layer; torch 1.13 repeats it, torch
    2.1 does not.
    """
    question, one = fsdp()
    one = replace(one, recompute=2)
    late = question.model_copy(
        update={"software": question.software.with_figures({"quirks.recompute_early_stop": False})}
    )
    spared = layer_time(late, one).recompute_s - layer_time(question, one).recompute_s
    assert spared / layer_time(question, one).gemm_forward_s == pytest.approx(1 / 3, rel=0.05)


@pytest.mark.parametrize(("zero", "expected"), [(3, 16 / 8), (2, 2 + 16 / 8)])
def test_fsdp_shards_sixteen_bytes_a_parameter(zero: int, expected: float) -> None:
    """fp32 master, gradient and two moments over 8 ranks; without resharding the 16-bit copy stays
    whole.
    """
    question, one = fsdp()
    params = total_params(question.model)
    found = sum(state_bytes(question, replace(one, zero=zero), params))
    assert found / params == pytest.approx(expected)


def test_deepspeed_holds_no_more_live_parameters_than_it_is_told() -> None:
    question, one = fsdp("deepspeed", framework="deepspeed", framework_version="0.19")
    table = embedding_params(question.model, 1)
    inside = 32 * layer_params(question.model, 1)
    rank = Rank(
        layers=Layers((32,)), params=inside + table, in_flight=1, has_embedding=1, has_head=1
    )
    norms = 32 * 2 * 4096  # below stage3_param_persistence_threshold: never sharded
    assert gathered_bytes(question, one, rank) == pytest.approx(2.0 * (1e9 + table + norms))
    assert gathered_bytes(question, replace(one, zero=2), rank) == 0


def test_columns_and_one_layout_agree() -> None:
    question, one = fsdp()
    columns = replace(one, zero=np.array([0, 1, 2, 3]), recompute=np.array([0, 2, 0, 2]))
    batch = estimate(question, columns)
    for i in range(4):
        alone = estimate(question, columns[i])
        assert alone.step_s == pytest.approx(batch.step_s[i], rel=1e-12)
        assert alone.memory_bytes == pytest.approx(batch.memory_bytes[i], rel=1e-12)


def test_stacks_of_fsdp_plan_seven_billion_on_one_node() -> None:
    """40 GiB do not hold the unsharded states of 7B (106 GiB); sharded over 8 they do."""
    question, one = fsdp("torch-fsdp", hardware="a100-40g-sxm", global_batch_size=64)
    one = layout(question, mbs=2, zero=3, recompute=2)
    assert estimate(question, one).memory_bytes < 39 * GIB


@pytest.mark.parametrize("zero", [2, 3])
def test_a_pipeline_of_torch_holds_gradients_whole_and_reduces_them_once(zero: int) -> None:
    """torch.distributed.pipelining turns the gradients' reduction off in every backward pass and
    runs it after the last: 4 bytes of each of a stage's weights; 7/8 of them go once a step, over
    50 GB/s.
    """
    question = recipe("llama3-70b", 512, framework="torch", framework_version="2.13", stack="torch")
    few, many = (layout(question, tp=8, pp=8, zero=zero, m=m) for m in (8, 16))
    stage = 10 * (8192 * (2 * 8192 + 2 * 1024) + 3 * 8192 * 28672) / 8
    held = estimate(question, few).memory.gradients_bytes
    ends = 4 * 128256 * 8192 / 8
    assert 4 * stage <= held <= 4 * stage + 1.01 * ends
    layers = split(question, few)
    each = moves(question, few, layers)
    count = layers.first.total
    once = count * each.reduce_s + each.outside_reduce_s
    assert once > 7 / 8 * 4 * stage / 50e9
    if zero == 2:  # gathers are once a step too
        exposed = [estimate(question, one).time.dp_comm_s for one in (few, many)]
        assert exposed[0] == pytest.approx(exposed[1])
        assert exposed[0] > 7 / 8 * 4 * stage / 50e9
    else:  # gathers of every micro-batch
        total = [
            sum(sharded_comm_s(question, one, layers, layer_time(question, one), each))
            for one in (few, many)
        ]
        gathers = count * (each.gather_s + each.again_s) + each.outside_s
        assert total[1] - total[0] == pytest.approx(8 * gathers)
        assert total[0] == pytest.approx(8 * gathers + once)


def test_torchtitan_on_8_and_128_gpus() -> None:
    """[torchtitan] benchmarks/llama3_h100_202412_torchtitan.md tables 1 and 3: Llama 3.1 8B, two
    sequences of 8,192 a GPU, compiled, selective recomputation: 77.0 and 62.0 GiB reserved by
    torch, so without the CUDA context and NCCL's buffers.
    """
    software = with_switches(library.stack("torch"), {"compile": "on", "expandable_segments": True})
    for gpus, published in ((8, 77.0), (128, 62.0)):
        question = recipe(
            "llama3-8b",
            gpus,
            framework="torch",
            framework_version="2.13",
            software=software,
            global_batch_size=2 * gpus,
        )
        one = layout(
            question,
            zero=3,
            mbs=2,
            recompute=RECOMPUTE_CODE["selective"],
            recompute_modules=module_mask(["ops"]),
        )
        held = estimate(question, one).memory
        reserved = estimate(question, one).memory_bytes - held.context_bytes - held.nccl_bytes
        assert reserved / 2**30 == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize(("v", "published", "within"), [(2, 72.7, 0.02), (1, 75.3, 0.08)])
def test_a_pipeline_of_torch_has_a_buffer_for_every_micro_batch(
    v: int, published: float, within: float
) -> None:
    """torch.distributed.pipelining's stage.py: of 8 micro-batches with 4 sequences of 8,192 tokens
    and 16,384 hidden units over tp 8 the first rank holds 8 gradients that it receives and 8
    outputs that it sent; a second stage there 8 gradients and 8 outputs more. Its inputs are the
    layers' own while all are in flight. [torchtitan]
    benchmarks/llama3_h100_202412_torchtitan.md: Llama 3.1 405B on 512 H100 reserves 72.7 GiB
    interleaved (table 5); plainly 75.3 with sequences of 32,768 (table 6), and 82.5 with as many
    tokens in sequences of 8,192, which nothing here explains.
    """
    software = with_switches(library.stack("torch"), {"compile": "on", "expandable_segments": True})
    question = recipe(
        "llama3-405b",
        512,
        framework="torch",
        framework_version="2.13",
        software=software,
        global_batch_size=256,
        precision="fp8-rowwise",
    )
    knobs = {"tp": 8, "pp": 8, "zero": 2, "mbs": 4, "m": 8, "v": v}
    one = layout(question, recompute=RECOMPUTE_CODE["full"], **knobs)
    said = estimate(question, one)
    message = 4 * 8192 * 16384 * 2 / 8
    assert said.memory.buffers_bytes == pytest.approx(v * (8 + 8) * message)
    reserved = said.memory_bytes - said.memory.context_bytes - said.memory.nccl_bytes
    assert reserved / GIB == pytest.approx(published, rel=within)


@pytest.mark.parametrize("zero, gpus", [(2, 8), (3, 8), (3, 2)])
def test_deepspeed_updates_with_gradients_in_32_bits_beside(zero: int, gpus: int) -> None:
    """stage_1_and_2.py and stage3.py: gradients of a rank's share are joined in 16 bits and
    converted to 32, under ZeRO 3 a sub-group of 1e9 elements at a time. 512 tokens leave room for
    no more than that: activations and gathered weights are gone by then. 6.74 G parameters.
    """
    question = recipe(
        "llama2-7b",
        gpus,
        framework="deepspeed",
        framework_version="0.19",
        stack="deepspeed",
        seq_length=512,
        global_batch_size=gpus,
    )
    one = layout(question, zero=zero, recompute=RECOMPUTE_CODE["full"])
    held = estimate(question, one).memory
    share = 6_738_415_616 / gpus
    if zero == 3:
        share = min(share, 1e9)
        gathered = held.buffers_bytes - 2 * 5e8
        assert held.working_bytes + held.activations_bytes + gathered >= 0.99 * 6 * share
    else:
        assert held.working_bytes + held.activations_bytes == pytest.approx(6 * share, rel=0.01)
    away = replace(one, offload=1)
    assert estimate(question, away).memory.working_bytes <= held.working_bytes
