"""Weights of the layers in 8 and 4 bits: what is kept, and what travels."""

from __future__ import annotations

import pytest

from planner.cost.memory.quantized_weights import gathered_as
from planner.estimate import estimate
from planner.layout import OFFLOAD_CODE
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.switches.table import with_switches
from planner.specs.tuning import precise
from tests import documents

LAYERS = 32 * 218_112_000
"""Parameters of Llama-3-8B's layers: 4096 (6144 + 4096 + 3 x 14,336) and two norms each."""
ENDS = 2 * 128_256 * 4096 + 4096


def asked(precision: str, hardware: str = "h100-sxm", **switches: bool | str) -> Recipe:
    software = with_switches(library.stack("megatron"), switches)
    return documents.recipe("llama3-8b", 8, precision=precision, hardware=hardware, stack=software)


@pytest.mark.parametrize(
    ("precision", "hardware", "beside", "alone"),
    [
        ("fp8-tensorwise", "h100-sxm", 4.0, 2.0),  # products of Hopper need the transpose
        ("fp8-delayed", "b200-sxm", 3.0, 1.0),
        ("fp8-blockwise", "h100-sxm", 4 + 8 / 128**2, 2 + 8 / 128**2),
        ("mxfp8", "b200-sxm", 4 + 1 / 16, 2 + 1 / 16),
        ("nvfp4", "b200-sxm", 3.125, 1.125),
        ("bf16", "h100-sxm", 2.0, 2.0),
    ],
)
def test_bytes_of_a_weight(precision: str, hardware: str, beside: float, alone: float) -> None:
    """Transformer Engine: rows and columns, with a scale for 128 x 128, 32 and 16 weights."""
    for gathers, a_weight in ((False, beside), (True, alone)):
        question = asked(precision, hardware, fp8_param_gather=gathers, fp4_param_gather=gathers)
        memory = estimate(question, documents.layout(question, zero=1)).memory
        assert memory.weights_bytes == pytest.approx(a_weight * LAYERS + 2 * ENDS, rel=1e-6)


def test_shards_of_one_copy_where_weights_are_sharded() -> None:
    """Megatron-FSDP: only mxfp8 shards a second copy; what Transformer Engine caches beside 16-bit
    weights is whole.
    """
    for precision, hardware, a_weight in (
        ("fp8-tensorwise", "h100-sxm", 1 / 8),
        ("mxfp8", "b200-sxm", (2 + 1 / 16) / 8),
    ):
        question = asked(precision, hardware)
        memory = estimate(question, documents.layout(question, zero=3)).memory
        assert memory.weights_bytes == pytest.approx(a_weight * LAYERS + 2 * ENDS / 8, rel=1e-6)
    question = asked("fp8-tensorwise", fp8_param_gather=False)
    memory = estimate(question, documents.layout(question, zero=3)).memory
    assert memory.weights_bytes == pytest.approx((2 + 2 / 8) * LAYERS + 2 * ENDS / 8, rel=1e-6)


def test_deepseek_v3_of_a_pull_request() -> None:
    """Megatron-Bridge pull request 3364: 256 GB300, pipeline 2, 8 virtual stages, experts over 32:
    235.2 to 202.8 GB.
    """
    held = []
    for gathers in (False, True):
        software = with_switches(library.stack("megatron"), {"fp4_param_gather": gathers})
        question = documents.recipe(
            "deepseek-v3", 256, hardware="gb300-nvl72", precision="nvfp4", stack=software
        )
        layout = documents.layout(question, pp=2, v=8, ep=32, zero=1)
        held.append(float(estimate(question, layout).memory.weights_bytes) / 1e9)
    assert held[0] - held[1] == pytest.approx(235.2 - 202.8, rel=0.12)


@pytest.mark.parametrize(
    ("precision", "zero", "sent"),
    [
        ("fp8-delayed", 1, 1.0),
        ("fp8-blockwise", 1, 1.0),
        ("mxfp8", 1, 2.0),  # through the buffer of gradients
        ("mxfp8", 3, 1.0),
        ("nvfp4", 1, 0.5),
        ("nvfp4", 3, 2.0),  # Megatron-FSDP has no 4-bit buffers
        ("fp8-delayed", 0, 2.0),
        ("bf16", 1, 2.0),
    ],
)
def test_bytes_on_the_wire(precision: str, zero: int, sent: float) -> None:
    hardware = "h100-sxm" if precision in ("bf16", "fp8-delayed", "fp8-blockwise") else "b200-sxm"
    question = asked(precision, hardware)
    assert gathered_as(question, documents.layout(question, zero=zero), 2.0) == sent


def test_gathers_in_8_bits_take_less_time() -> None:
    times = []
    for gathers in (False, True):
        question = asked("fp8-delayed", fp8_param_gather=gathers, overlap_param_gather=False)
        times.append(float(estimate(question, documents.layout(question, zero=1)).time.dp_comm_s))
    assert times[1] < times[0]


@pytest.mark.parametrize(
    ("precision", "moments", "a_parameter"),
    [
        ("bf16", "bf16", 6.0),
        ("fp8-delayed", "bf16", 6.0),
        ("fp8-tensorwise", "bf16", 8.0),
        ("fp8-blockwise", "fp8", 6.0),
        ("fp8-tensorwise", "fp32", 12.0),
    ],
)
def test_main_weights_are_whole_where_megatron_holds_them(
    precision: str, moments: str, a_parameter: float
) -> None:
    """OptimizerConfig: use_precision_aware_optimizer_no_fp8_or_ds_fp8 is false under tensorwise,
    blockwise and mxfp8; then the main weight is Megatron-LM's, 4 bytes.
    """
    question = asked(precision, **precise(moments))
    memory = estimate(question, documents.layout(question, zero=1)).memory
    assert memory.optimizer_bytes == pytest.approx(a_parameter * (LAYERS + ENDS) / 8, rel=1e-6)


def test_where_8_bit_weights_need_whole_main_weights() -> None:
    """FusedAdam has no remainders of 8-bit weights; in host memory delayed scaling alone
    (validate_args).
    """
    away = OFFLOAD_CODE["optimizer-cpu"]
    for precision, switches, offload, sent in (
        ("fp8-delayed", precise("bf16"), 0, 2.0),
        ("fp8-tensorwise", precise("bf16"), 0, 1.0),
        ("fp8-tensorwise", precise("bf16") | {"main_params_dtype": "fp16"}, 0, 2.0),
        ("fp8-tensorwise", {}, away, 2.0),
        ("fp8-delayed", {}, away, 1.0),
    ):
        question = asked(precision, **switches)
        layout = documents.layout(question, zero=1, offload=offload)
        assert gathered_as(question, layout, 2.0) == sent
