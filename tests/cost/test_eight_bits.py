"""Products in 8 bits, Hopper and Blackwell: casts, gathers, kept activations, and published runs of
NeMo and SimuMax.
"""

from __future__ import annotations

import numpy as np
import pytest

from planner.cost.layer.kernels import gemm_s
from planner.cost.layer.layer import cast_bytes, tp_comm_times
from planner.cost.memory.activations import kept
from planner.estimate import estimate
from planner.layout import Layout
from planner.specs import library
from planner.specs.model import ModelSpec
from planner.specs.recipe import Precision, Recipe
from planner.units import GIB


def recipe(
    model: ModelSpec,
    hardware: str,
    stack: str,
    precision: Precision,
    gpus: int,
    seq: int,
    batch: int,
) -> Recipe:
    return Recipe(
        model=model,
        hardware=library.hardware(hardware),
        software=library.stack(stack),
        gpus=gpus,
        seq_length=seq,
        global_batch_size=batch,
        precision=precision,
    )


LLAMA8 = recipe(library.model("llama3-8b"), "h100-sxm", "nemo", "fp8-tensorwise", 8, 8192, 128)


def test_16_bit_products_need_no_cast_and_8_bit_ones_cast_every_operand_once() -> None:
    """Llama 3 8B: inputs 4096, 4096, 4096, 14336 and outputs 6144, 4096, 28672, 4096 wide; amax and
    cast: 2 + 2 + 1 bytes.
    """
    layout = Layout(dp=8, m=16)
    assert cast_bytes(LLAMA8.model_copy(update={"precision": "bf16"}), layout) == (0, 0)
    forward, backward = cast_bytes(LLAMA8, layout)
    assert forward == pytest.approx(5 * 8192 * (3 * 4096 + 14336))
    assert backward == pytest.approx(5 * 8192 * (6144 + 4096 + 28672 + 4096))


def test_prepared_operands_cost_less_only_where_there_is_a_cast() -> None:
    hardware = LLAMA8.hardware
    assert gemm_s(hardware, "bf16", 8192, 4096, 4096, prepared=True) == gemm_s(
        hardware, "bf16", 8192, 4096, 4096
    )
    assert gemm_s(hardware, "fp8-tensorwise", 8192, 4096, 4096, prepared=True) < gemm_s(
        hardware, "fp8-tensorwise", 8192, 4096, 4096
    )


def test_8_bit_gathers_move_half_the_bytes_of_16_bit_scatters() -> None:
    layout = Layout(tp=8, sp=1, m=16)
    _, gathers, scatters = tp_comm_times(LLAMA8, layout)
    _, whole, same = tp_comm_times(LLAMA8.model_copy(update={"precision": "bf16"}), layout)
    assert scatters == same == whole
    assert 0.5 < float(gathers) / float(whole) < 0.7  # half the bytes, the latency stays


def test_8_bit_products_keep_less() -> None:
    wide = kept(LLAMA8.model_copy(update={"precision": "bf16"}), Layout()).layer_bytes
    assert float(kept(LLAMA8, Layout()).layer_bytes) == pytest.approx(
        float(wide) - 8192 * (2 * 4096 - 4096 + 14336)
    )


def trimmed(name: str, layers: int) -> ModelSpec:
    return library.model(name).model_copy(update={"num_layers": layers, "parameters": None})


@pytest.mark.parametrize(
    ("model", "layers", "tp", "dp", "cp", "seq", "allocated_gib"),
    [
        ("llama3-70b", 12, 2, 4, 1, 4096, 60.68),
        ("llama3-405b", 4, 4, 2, 1, 4096, 52.89),
        ("llama3-70b", 12, 1, 1, 8, 131072, 147.99),
    ],
)
def test_allocated_memory_is_within_2_percent_of_simumax_on_a_b200_node(
    model: str, layers: int, tp: int, dp: int, cp: int, seq: int, allocated_gib: float
) -> None:
    """SimuMax, docs/b200/b200_release_v1.2_summary.json: largest allocated memory over the
    ranks.
    """
    asked = recipe(trimmed(model, layers), "b200-sxm", "megatron", "bf16", 8, seq, dp * 4)
    said = estimate(asked, Layout(tp=tp, dp=dp, cp=cp, m=4, sp=int(tp > 1)))
    assert float(said.memory.allocated_bytes) / GIB == pytest.approx(allocated_gib, rel=0.02)


@pytest.mark.parametrize(
    ("gpus", "tp", "cp", "seq", "step_s"),
    [
        (4, 1, 1, 4096, 62.90),
        (64, 4, 2, 65536, 16.30),
        (1024, 8, 32, 1048576, 12.88),
    ],
)
def test_llama2_7b_from_4_thousand_to_a_million_tokens(
    gpus: int, tp: int, cp: int, seq: int, step_s: float
) -> None:
    """NeMo docs, performance_long_sequence.md, container 24.03.01, H100 in fp8: 4 million tokens a
    step, times from tokens/s.
    """
    batch = 2**22 // seq
    asked = recipe(
        library.model("llama2-7b"), "h100-sxm", "nemo-2024", "fp8-delayed", gpus, seq, batch
    )
    dp = gpus // (tp * cp)
    said = estimate(asked, Layout(tp=tp, cp=cp, dp=dp, m=batch // dp, sp=int(tp > 1)))
    assert float(said.step_s) == pytest.approx(step_s, rel=0.08)


def test_launches_take_longer_on_grace() -> None:
    small = trimmed("llama3-8b", 2)
    launch = {
        name: (
            estimate(recipe(small, name, "megatron", "bf16", 8, 512, 8), Layout(dp=8)).time.launch_s
        )
        for name in ("b200-sxm", "gb200-nvl72")
    }
    assert np.all(launch["gb200-nvl72"] > launch["b200-sxm"])
