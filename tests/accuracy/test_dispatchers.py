"""AWS's comparison of dispatchers over EFA: which is faster, and whether an overlap helps.

Step times: awslabs/awsome-distributed-ai, 3.test_cases/megatron/megatron-bridge, qwen3-30b and
dsv3, benchmarks/RESULTS.md. Absolute times are host-bound there, up to twice what the model says.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from planner.accuracy.columns import COLUMNS
from planner.accuracy.predict import predicted

WORDS = {
    "nccl": "dispatcher alltoall (NCCL)",
    "nvshmem": "dispatcher deepep over NVSHMEM",
    "uccl": "dispatcher deepep over UCCL",
}
QWEN: dict[str, Any] = {"model": "qwen3-30b-a3b", "hardware": "aws-p5", "gpus": 64}
DEEPSEEK: dict[str, Any] = {"model": "deepseek-v3", "hardware": "aws-p6-b300", "gpus": 256}
GROUPS: tuple[tuple[dict[str, Any], dict[str, float]], ...] = (
    ({**QWEN, "ep": 16, "pp": 4, "mbs": 4}, {"nccl": 8.60, "uccl": 14.81, "nvshmem": 9.16}),
    ({**QWEN, "ep": 16, "pp": 4, "mbs": 1}, {"nccl": 27.89, "uccl": 37.23, "nvshmem": 28.69}),
    ({**QWEN, "ep": 32, "pp": 2, "mbs": 4}, {"nccl": 9.24, "uccl": 26.51, "nvshmem": 17.21}),
    ({**QWEN, "ep": 32, "pp": 2, "mbs": 1}, {"nccl": 27.14, "uccl": 48.22, "nvshmem": 34.66}),
    ({**DEEPSEEK, "ep": 32, "pp": 8, "mbs": 1}, {"nccl": 12.538, "uccl": 14.117}),
    ({**DEEPSEEK, "ep": 32, "pp": 8, "mbs": 4}, {"nccl": 9.774, "uccl": 6.263}),
)
OVERLAPPED: tuple[tuple[dict[str, Any], dict[str, float]], ...] = (
    ({**QWEN, "ep": 16, "pp": 4, "mbs": 4}, {"nccl": 6.87, "uccl": 11.21, "nvshmem": 7.08}),
    ({**QWEN, "ep": 32, "pp": 2, "mbs": 4}, {"nccl": 6.29, "nvshmem": 11.37}),
    ({**DEEPSEEK, "ep": 32, "pp": 8, "mbs": 4, "vpp": 2}, {"nccl": 5.978, "uccl": 3.839}),
)


def said(layout: dict[str, Any], arms: dict[str, float], overlap: str) -> dict[str, float]:
    """Seconds of a step by dispatcher, as predicted."""
    row = dict.fromkeys(COLUMNS) | {
        "source": "aws_dispatcher",
        "tp": 8,
        "sp": 1,
        "cp": 1,
        "etp": 1,
        "zero": 1,
        "gbs_sequences": 256,
        "seq": 4096,
        "precision": "bf16",
        "recompute": "none",
        "stack": "megatron",
        **layout,
    }
    flag = f"overlap_moe_expert_parallel_comm={overlap}"
    rows = [{**row, "notes": f"{WORDS[arm]}; {flag}", "step_time_s": arms[arm]} for arm in arms]
    return dict(zip(arms, predicted(pd.DataFrame(rows))["predicted_step_s"].tolist(), strict=True))


@pytest.mark.parametrize(("layout", "arms"), GROUPS)
def test_the_order_of_dispatchers(layout: dict[str, Any], arms: dict[str, float]) -> None:
    found = said(layout, arms, "off")
    assert sorted(found, key=found.__getitem__) == sorted(arms, key=arms.__getitem__)


@pytest.mark.parametrize(("layout", "arms"), OVERLAPPED)
def test_an_overlap_helps_and_keeps_the_order(
    layout: dict[str, Any], arms: dict[str, float]
) -> None:
    found = said(layout, arms, "on")
    assert sorted(found, key=found.__getitem__) == sorted(arms, key=arms.__getitem__)
    without = said({**layout, "vpp": None}, arms, "off")
    assert all(found[arm] < without[arm] for arm in arms)
