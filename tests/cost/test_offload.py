"""Offload, hpZ and Ulysses: bytes against DeepSpeed's own estimators, times against measured
runs.
"""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from planner.cost.memory import offload, rank_memory
from planner.cost.params.layer import layer_params, total_params
from planner.cost.terms import Estimate, Memory, StepTime
from planner.estimate import closed_form, estimate
from planner.layout import OFFLOAD_CODE, Layout
from planner.rules.table import mask
from planner.search import search
from planner.specs.recipe import Recipe
from planner.units import GIB
from tests import documents
from tests.judges import deepspeed_sweep

CPU, WEIGHTS, NVME = (
    OFFLOAD_CODE["optimizer-cpu"],
    OFFLOAD_CODE["params-cpu"],
    OFFLOAD_CODE["optimizer-nvme"],
)


def question(model: str = "llama3-8b", gpus: int = 16, **changes: Any) -> Recipe:
    return documents.recipe(model, gpus, stack="deepspeed", framework="deepspeed", **changes)


def of(recipe: Recipe, **knobs: Any) -> Layout:
    return documents.layout(recipe, **{"sp": 0, "zero": 3, **knobs})


@pytest.mark.parametrize("gpus", [8, 16, 64])
@pytest.mark.parametrize("zero, away", [(2, CPU), (3, CPU), (3, WEIGHTS)])
def test_bytes_are_those_of_deepspeeds_estimators(gpus: int, zero: int, away: int) -> None:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as stage3
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as stage2

    recipe = question(gpus=gpus)
    layout = of(recipe, zero=zero, offload=away)
    total = total_params(recipe.model)
    per_node = {"num_gpus_per_node": 8, "num_nodes": gpus // 8}
    states = sum(rank_memory.state_bytes(recipe, layout, float(total)))
    if zero == 2:
        # Without zero.Init every rank first builds the whole model in host memory, which this
        # function counts in: device bytes alone.
        _, device = stage2(total, cpu_offload=True, **per_node)
    else:
        per_node["cpu_offload_params"] = away == WEIGHTS
        host, device, live = stage3(
            total, int(layer_params(recipe.model)), cpu_offload=True, **per_node
        )
        device -= live
        assert offload.host_bytes(recipe, layout) == pytest.approx(host, rel=1e-6)
    assert states == pytest.approx(device, rel=1e-6)


@pytest.mark.parametrize(
    "zero, precision, a_parameter",
    [
        (0, "bf16", 2 + 4 + 12 / 4),
        (1, "bf16", 2 + 6 + 12 / 4),
        (1, "fp16", 2 + 2 + 12 / 4),
        (0, "fp16", 2 + 2 + 12),
    ],
)
def test_states_of_a_pipeline(zero: int, precision: str, a_parameter: float) -> None:
    """runtime/bf16_optimizer.py: gradients and their sums (fp32 under zero 1), master weights and
    moments over dp under zero 0 too.
    """
    recipe = question(gpus=8, precision=precision)
    assert sum(rank_memory.state_bytes(recipe, of(recipe, pp=2, zero=zero), 1e9)) == pytest.approx(
        a_parameter * 1e9
    )


@pytest.mark.parametrize(
    "hardware, zero, away, measured",
    [
        # [ml-engineering] insights/when-to-upgrade-gpus: Llama 3.1 8B, 8 GPUs, 8,192 tokens, one
        # sequence a GPU; TFLOP/s by the causal count.
        ("h200-sxm", 3, CPU, 141.0),
        ("b200-sxm", 3, CPU, 167.0),
    ],
)
def test_speed_of_an_optimizer_on_the_host(
    hardware: str, zero: int, away: int, measured: float
) -> None:
    recipe = question(gpus=8, hardware=hardware, global_batch_size=8)
    said = estimate(recipe, of(recipe, zero=zero, offload=away, recompute=2), exact=True)
    assert said.model_tflops_per_gpu == pytest.approx(measured, rel=0.12)
    assert said.time.offload_s > 0.5 * said.step_s


def test_weights_from_the_host_hide_behind_long_sequences() -> None:
    long, short = (
        question(gpus=8, seq_length=8192, global_batch_size=64),
        question(gpus=8, seq_length=128, global_batch_size=64),
    )
    times = [
        [estimate(one, of(one, offload=away)).time.offload_s for away in (CPU, WEIGHTS)]
        for one in (long, short)
    ]
    assert times[0][1] == pytest.approx(times[0][0], rel=1e-12) and times[1][1] > times[1][0]


def test_drives_are_slower_than_memory() -> None:
    recipe = question(hardware="h100-sxm")
    node = recipe.hardware.node.model_copy(update={"nvme_gbytes_per_s": 10.0})
    recipe = recipe.model_copy(
        update={"hardware": recipe.hardware.model_copy(update={"node": node})}
    )
    drives, host = (estimate(recipe, of(recipe, offload=away)) for away in (NVME, CPU))
    share = total_params(recipe.model) / 2
    assert drives.time.offload_s - host.time.offload_s == pytest.approx(
        28 * share / 10e9 - share / recipe.software.sharding.host_update_params_per_s
    )
    assert drives.host_bytes == 0 < host.host_bytes


def test_host_memory_decides_too() -> None:
    recipe = question("llama3-405b", 16)
    said = estimate(recipe, of(recipe, offload=WEIGHTS, recompute=2))
    assert said.host_bytes == pytest.approx(1.5 * 18 * total_params(recipe.model) / 2)
    assert said.host_bytes > said.host_limit_bytes == 2048 * GIB and not said.fits


def test_second_copy_of_the_weights() -> None:
    """hpZ: P/8 more weights in 2 bytes; the second gather stays inside the node."""
    recipe = question(gpus=64)
    plain, copied = (estimate(recipe, of(recipe, hpz=hpz)) for hpz in (1, 8))
    assert copied.memory.weights_bytes - plain.memory.weights_bytes == pytest.approx(
        2 * total_params(recipe.model) / 8, rel=0.02
    )
    assert copied.time.dp_comm_s < plain.time.dp_comm_s


def test_ulysses_moves_four_tensors_a_layer() -> None:
    recipe = question(gpus=8, seq_length=65536, global_batch_size=8)
    said = estimate(recipe, of(recipe, cp=8, recompute=0))
    local, kv = 65536 / 8, 8 * 128
    sent = 2 * local * (2 * 4096 + 2 * kv) * 7 / 8
    link = recipe.hardware.node.domain
    least = (
        32
        * recipe.global_batch_size
        * 2
        * sent
        / (link.bytes_per_s * max(link.efficiency.values()))
    )
    assert least < said.time.cp_comm_s < 1.5 * least


@pytest.mark.filterwarnings("error")
def test_a_batch_is_its_rows() -> None:
    recipe = question(gpus=64, global_batch_size=256)
    drawn = deepspeed_sweep.draw(np.random.default_rng(5), recipe, 4000)
    batch = drawn[np.flatnonzero(mask(recipe, drawn)[0])[:60]]
    many = closed_form(recipe, batch)
    for row in range(len(batch)):
        for ours, theirs in zip(
            terms(many, row), terms(closed_form(recipe, batch[row]), None), strict=True
        ):
            assert ours == pytest.approx(theirs, rel=1e-12)


def terms(said: Estimate, row: int | None) -> list[float]:
    columns = [getattr(said.time, f.name) for f in fields(StepTime)] + [
        getattr(said.memory, f.name) for f in fields(Memory)
    ]
    columns += [said.host_bytes, said.oom_probability]
    return [
        float(x if row is None or np.ndim(x) == 0 else x[row]) for x in map(np.asarray, columns)
    ]


def test_search_offloads_what_does_not_fit() -> None:
    recipe = question("llama3-70b", 16, global_batch_size=256)
    found = search(recipe, top=3)
    best = found.plans[0]
    assert (
        best.layout.zero == 3
        and best.layout.offload
        and any("of each node's memory" in why for why in best.why)
    )
    kept = search(recipe.model_copy(update={"knobs": {"offload": documents.bounds(0)}}), top=1)
    assert not kept.plans or kept.plans[0].layout.offload == 0


@pytest.mark.parametrize(
    "knob, value", [("hpz", 8), ("cp", 4), ("zero", 1), ("offload", CPU), ("pp", 4), ("tp", 8)]
)
def test_search_keeps_to_what_is_fixed(knob: str, value: int) -> None:
    recipe = question("llama3-8b", 64, knobs={knob: documents.bounds(value)})
    found = search(recipe, top=3)
    assert found.plans and {getattr(plan.layout, knob) for plan in found.plans} == {value}


def test_nvme_is_searched_where_its_speed_is_stated() -> None:
    recipe = question("llama3-8b", 8, knobs={"offload": documents.bounds(NVME)})
    assert search(recipe).plans == ()
