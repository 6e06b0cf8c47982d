"""Runs with sharded weights that others measured: DeepSpeed ZeRO and FSDP."""

from __future__ import annotations

import pytest

from planner.accuracy.validate import validate

pytestmark = pytest.mark.slow


def test_zero_3_over_hundreds_of_nodes() -> None:
    """SC21 table 2, DeepSpeed ZeRO-3 without model parallelism: 175B and 530B on 384 to 2,240
    A100.
    """
    rows = validate(source="narayanan_sc21", where="zero == 3 and oom != 1").rows
    assert len(rows) == 6
    assert rows["error"].abs().max() < 0.10


def test_530b_needs_more_than_560_gpus() -> None:
    """SC21 table 2: a micro-batch of 4 ran on 640 GPUs and did not fit on 560."""
    rows = validate(
        source="narayanan_sc21", where="zero == 3 and mbs == 4 and gpus in (560, 640)"
    ).rows
    chance = dict(zip(rows["gpus"], rows["predicted_oom_probability"], strict=True))
    assert 0.1 < chance[640] < chance[560]
    assert chance[640] < 0.9


def test_mpt_under_fsdp() -> None:
    """LLM Foundry's README: 125M to 70B on 8 to 128 A100, sequences of 512 to 65,536."""
    rows = validate(source="llmfoundry_a100").rows
    assert rows["error"].notna().sum() == 223
    assert rows["error"].abs().median() < 0.05
    pure = rows["notes"].str.contains("PURE")
    full = rows["recompute"] == "full"
    for kind in (pure & full, pure & ~full, ~pure & full, ~pure & ~full):
        assert abs(rows["error"][kind].median()) < 0.05


def test_llama_8b_under_zero_2() -> None:
    """ml-engineering: 8 GPUs, one sequence of 8,192 each, no recomputation: 99 GiB reserved; 461
    model TFLOP/s on H200.
    """
    rows = validate(source="mlengineering_h200_b200", where="zero == 2").rows
    assert len(rows) == 2
    assert rows["memory_error"].abs().max() < 0.05
    assert rows["error"].abs().max() < 0.12


def test_llama_70b_under_fsdp_of_today() -> None:
    """NeMo Automodel, 64 H100, context parallel 2, recomputation: 18.9 s a step."""
    rows = validate(source="nemo_automodel", where="model == 'llama3-70b'").rows
    assert rows["error"].abs().max() < 0.15
