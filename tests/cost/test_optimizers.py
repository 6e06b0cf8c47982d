"""Optimizers: states against torch's own, Muon's products against a real iteration, shards by
hand.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from planner import api
from planner.cost.memory import optimizer_states
from planner.cost.memory.states import state_bytes
from planner.cost.step import optimizer
from planner.estimate import estimate
from planner.layout import Layout
from planner.specs import resolve
from planner.specs.recipe import Recipe
from tests import documents

COUNT = 4096


def question(optimizer: str, **changes: Any) -> Recipe:
    return documents.recipe(optimizer=optimizer, **changes)


def held(kind: type[torch.optim.Optimizer], *shape: int, **words: Any) -> float:
    """Bytes a parameter that a real optimizer of torch keeps after a step, its counters left
    out.
    """
    weight = torch.zeros(shape, requires_grad=True)
    weight.grad = torch.ones(shape)
    optimizer = kind([weight], **words)
    optimizer.step()
    kept = [
        x for x in optimizer.state[weight].values() if isinstance(x, torch.Tensor) and x.numel() > 1
    ]
    return sum(x.numel() * x.element_size() for x in kept) / weight.numel()


@pytest.mark.parametrize(
    "name, kind, words",
    [
        ("adam", torch.optim.AdamW, {}),
        ("sgd", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        ("adafactor", torch.optim.Adafactor, {}),
        ("muon", torch.optim.Muon, {}),
    ],
)
def test_moments_are_those_that_torch_keeps(
    name: str, kind: type[torch.optim.Optimizer], words: dict[str, Any]
) -> None:
    """A flat partition, as ZeRO has them, for all but Muon, which is of matrices."""
    shape = (64, 64) if name == "muon" else (COUNT,)
    assert optimizer_states.moments_bytes(question(name)) == held(kind, *shape, **words)


def test_adafactor_of_whole_rows_keeps_factors() -> None:
    """Of a matrix 64 x 64 a row and a column, 4 (64 + 64) / 64^2 bytes a parameter: nothing at
    8,192 x 8,192.
    """
    assert held(torch.optim.Adafactor, 64, 64) == 4 * 128 / 4096
    assert (
        optimizer_states.moments_bytes(question("adafactor", framework="torch", stack="torch-fsdp"))
        == 0.0
    )


@pytest.mark.parametrize(
    "optimizer, a_parameter",
    [
        ("adam", 18.0),
        ("sgd", 14.0),
        ("lion", 14.0),
        ("muon", 14.0),
        ("adam-8bit", 12.03125),
    ],
)
def test_bytes_a_parameter(optimizer: str, a_parameter: float) -> None:
    """Megatron-LM: 2 + 4 of weight and gradient, 4 of the master, and the moments: 8, 4, 4, 4, 2 +
    8/256.
    """
    assert sum(state_bytes(question(optimizer), Layout(), 1.0)) == a_parameter


def test_muon_keeps_adam_for_what_is_no_matrix_of_a_layer() -> None:
    """Llama-3-70B, tp 8, pp 1: 8 bytes of 80 layers, 12 of the tables (129,024 x 8,192 twice) and
    the last norm, over dp 4.
    """
    one = question("muon", gpus=32)
    said = estimate(one, documents.layout(one, tp=8, zero=1)).memory
    layers = 80 * ((855_654_400 - 16_384) / 8 + 16_384)
    assert said.optimizer_bytes == pytest.approx(
        (8 * layers + 12 * (2 * 129_024 * 8_192 / 8 + 8_192)) / 4, rel=1e-9
    )


def test_an_iteration_of_muon_has_the_products_of_a_real_one() -> None:
    """X <- a X + (b A + c A A) X with A = X X', as Keller Jordan wrote it, counted by torch's own
    counter.
    """
    n, k = 96, 256
    x = torch.zeros(n, k)
    with FlopCounterMode(display=False) as counted:
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    ours = sum(2 * rows * columns * inner for rows, columns, inner in optimizer.iteration(n, k))
    assert ours == counted.get_total_flops() == 4 * n * n * k + 2 * n**3
    assert [tuple(map(int, one)) for one in optimizer.iteration(k, n)] == [
        tuple(map(int, one)) for one in optimizer.iteration(n, k)
    ]


def test_muon_takes_what_its_products_take() -> None:
    """Llama-3-8B on one rank: FLOPs of 5 iterations at Megatron's 32-bit rate, half of 989 TFLOP/s,
    are the least it can take.
    """
    one = documents.recipe("llama3-8b", 8, optimizer="muon")
    of = documents.layout(one, zero=0)
    spent = float(
        estimate(one, of).time.optimizer_s
        - estimate(documents.recipe("llama3-8b", 8, optimizer="sgd"), of).time.optimizer_s
    )
    sizes = ((4096, 6144), (4096, 4096), (4096, 28_672), (4096, 14_336))
    flops = 32 * 5 * sum(4 * s * s * k + 2 * s**3 for s, k in sizes)
    assert 1 < spent / (flops / (989e12 / 2)) < 2.2
    eighth = estimate(one, documents.layout(one, zero=1)).time.optimizer_s
    assert float(eighth) == pytest.approx(float(estimate(one, of).time.optimizer_s) / 8, rel=0.35)


def test_narrow_moments_are_fewer_bytes_and_less_traffic() -> None:
    """Precision-aware, bf16 moments: 2 of the master's rest + 4, in place of 12; 12 bytes a
    parameter less read and written.
    """
    found = [
        resolve.recipe(
            api.question(model="llama3-70b", gpus=64, cluster="h100-sxm", optimizer=name)
        )
        for name in ("adam", "precision-aware", "precision-aware-fp8")
    ]
    assert [one.software.states.optimizer_state_bytes for one in found] == [12.0, 6.0, 4.0]
    assert (
        found[0].software.traffic.optimizer_bytes - found[1].software.traffic.optimizer_bytes
        == 12.0
    )
