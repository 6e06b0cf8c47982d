"""Gradients of Megatron-FSDP: mcore_fsdp_adapter.py of 0.17 and 0.18 takes fp32 from
grad_reduce_in_fp32, that of 0.19 from a flag of its own alone.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.emit import megatron
from planner.specs import library
from planner.specs.switches.megatron import _read_gradients
from planner.specs.switches.table import with_switches
from tests import documents


@pytest.mark.parametrize(
    ("version", "zero", "dtype", "own"),
    [
        ("0.19", 3, "fp32", True),
        ("0.19", 2, "fp32", True),
        ("0.19", 3, "bf16", False),
        ("0.19", 1, "fp32", False),
        ("0.16", 3, "fp32", False),
    ],
)
def test_the_flag_is_written_where_it_counts(
    version: str, zero: int, dtype: str, own: bool
) -> None:
    software = with_switches(library.stack("megatron"), {"grad_reduce_dtype": dtype})
    recipe = documents.recipe("llama3-8b", 8, stack=software, framework_version=version)
    flags = megatron.flags(recipe, documents.layout(recipe, zero=zero))
    assert (("--megatron-fsdp-main-grads-dtype", "fp32") in flags) == own


@pytest.mark.parametrize(
    ("stated", "dtype"),
    [
        ({"framework_version": "0.19", "accumulate_allreduce_grads_in_fp32": True}, "bf16"),
        ({"framework_version": "0.19", "megatron_fsdp_main_grads_dtype": "fp32"}, "fp32"),
        ({"framework_version": "0.18", "accumulate_allreduce_grads_in_fp32": True}, None),
        ({"framework_version": "0.19", "grad_reduce_in_bf16": False}, None),
    ],
)
def test_the_flag_is_read(stated: dict[str, Any], dtype: str | None) -> None:
    plain = {"use_megatron_fsdp": True, "bf16": True, **stated}
    assert _read_gradients(plain) == dtype
