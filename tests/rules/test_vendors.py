"""Which precisions run on whose GPUs."""

from __future__ import annotations

import pytest

from planner.emit.environment import megatron
from planner.rules.table import breaches
from planner.specs import library
from tests import documents

EIGHT = {"fp8-delayed", "fp8-tensorwise"}


@pytest.mark.parametrize(
    "cluster, runs",
    [
        ("mi250x", {"bf16"}),
        ("mi300x", {"bf16", *EIGHT}),
        ("mi300a", {"bf16", *EIGHT}),
        ("mi325x", {"bf16", *EIGHT}),
        ("mi350x", {"bf16", "mxfp8", *EIGHT}),
        ("mi355x", {"bf16", "mxfp8", *EIGHT}),
        ("h100", {"bf16", "fp8-blockwise", *EIGHT}),
        ("b200", {"bf16", "fp8-blockwise", "mxfp8", "nvfp4", *EIGHT}),
        ("a100", {"bf16"}),
    ],
)
def test_precisions_of_a_gpu(cluster: str, runs: set[str]) -> None:
    """ROCm/TransformerEngine pytorch/fp8.py: fp8 on gfx94x and gfx95x, mxfp8 on gfx95x, no scaling
    by blocks; NVIDIA's own for the rest.
    """
    found = set()
    for precision in ("bf16", "fp8-delayed", "fp8-tensorwise", "fp8-blockwise", "mxfp8", "nvfp4"):
        question = documents.recipe(hardware=cluster, precision=precision)
        if "GPU runs the precision" not in {
            one.rule for one in breaches(question, documents.layout(question, tp=8))
        }:
            found.add(precision)
    if (
        "fp8" not in library.hardware(cluster).gpu.peak_tflops
    ):  # which the question refuses before any rule
        found -= EIGHT
    assert found == runs


def test_rocm_turns_mxfp8_on() -> None:
    for cluster, switched in (("mi355x", True), ("b200", False)):
        question = documents.recipe(hardware=cluster, precision="mxfp8")
        assert (
            ("NVTE_ROCM_ENABLE_MXFP8", "1") in megatron(question, documents.layout(question, tp=8))
        ) == switched


@pytest.mark.parametrize(
    "name, gpus, tflops, gbytes_per_s",
    [
        ("gaudi2", 8, 432, 2460),
        ("gaudi3", 8, 1677, 3700),
        ("mi300a", 4, 980.6, 5300),
    ],
)
def test_accelerators_without_measurements_say_so(
    name: str, gpus: int, tflops: float, gbytes_per_s: float
) -> None:
    """Peaks and bandwidth as stas00/ml-engineering and AMD's data sheet print them."""
    profile = library.hardware(name)
    assert (profile.node.gpus, profile.gpu.peak_tflops["bf16"], profile.gpu.hbm_gbytes_per_s) == (
        gpus,
        tflops,
        gbytes_per_s,
    )
    assert "no kernel was measured" in profile.kernels.assumed
