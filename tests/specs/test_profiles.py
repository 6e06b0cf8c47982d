"""Shipped profiles: every file loads, figures agree with one another and with published ones."""

from __future__ import annotations

import math

import pytest

from planner.specs import library
from planner.specs.hardware import HardwareProfile

ALL = [library.hardware(name) for name in library.clusters()]


def by_name(profile: HardwareProfile) -> str:
    return profile.name


@pytest.mark.parametrize("profile", ALL, ids=by_name)
def test_a_gpu_can_give_out_a_little_less_than_the_driver_reports(profile: HardwareProfile) -> None:
    assert 0 <= profile.gpu.memory_gib - profile.gpu.usable_gib <= 1


@pytest.mark.parametrize("profile", ALL, ids=by_name)
def test_peaks_are_dense(profile: HardwareProfile) -> None:
    """Halving the operands' width doubles the dense rate (B300 and GB300 triple the last step); a sparse figure would break it."""
    peaks = profile.gpu.peak_tflops
    assert peaks.get("bf16", peaks["fp16"]) == peaks["fp16"]
    if "fp8" in peaks:
        assert peaks["fp8"] / peaks["fp16"] == pytest.approx(2, rel=0.02)
    if "fp4" in peaks:
        assert peaks["fp4"] / peaks["fp8"] == pytest.approx(3 if "300" in profile.name else 2, rel=0.02)
    assert ("bf16" in peaks) == (profile.gpu.compute_capability >= 8)
    assert ("fp8" in peaks) == (profile.gpu.compute_capability >= 8.9)


@pytest.mark.parametrize("profile", ALL, ids=by_name)
def test_links_are_one_way_and_what_was_not_measured_is_said(profile: HardwareProfile) -> None:
    one_way = {"volta": 150, "ampere": 300, "hopper": 450, "blackwell": 900, "blackwell-ultra": 900}
    if profile.node.domain_gpus > 1:
        cut = {"h800-sxm": 200}  # 8 of the 18 links of an H100
        assert profile.node.domain.gbytes_per_s == cut.get(profile.name, one_way[profile.gpu.architecture])
    else:
        assert profile.node.domain.gbytes_per_s == profile.node.host.gbytes_per_s
        assert profile.node.domain.efficiency == profile.node.host.efficiency
    borrowed = profile.name in ("a100-40g-sxm", "a100-80g-pcie", "h800-sxm", "rtx4090-pcie", "v100-16g-sxm2", "v100-32g-sxm2")
    assert bool(profile.kernels.assumed) == borrowed


@pytest.mark.parametrize("profile", ALL, ids=by_name)
def test_precisions_with_rates_have_a_peak(profile: HardwareProfile) -> None:
    peaks = {"bf16": "fp16", "fp8": "fp8", "fp8-block": "fp8", "fp4": "fp4"}
    assert all(peaks[precision] in profile.gpu.peak_tflops for precision in profile.kernels.gemm)


@pytest.mark.parametrize(
    ("name", "network_gbit_s"),
    [("a100-80g-sxm", 1600), ("h100-sxm", 3200), ("h200-sxm", 3200), ("b200-sxm", 3200), ("b300-sxm", 6400), ("gb200-nvl72", 1600)],
)
def test_nodes_have_the_network_that_vendors_print(name: str, network_gbit_s: float) -> None:
    profile = library.hardware(name)
    assert profile.nic_bytes_per_s_per_gpu * profile.node.gpus * 8 / 1e9 == network_gbit_s


def test_tensor_peaks_follow_from_the_chip() -> None:
    """A100: 108 SMs x 2048 FLOP a clock x 1.41 GHz; H100: 132 x 4096 x 1.83 (dense fp16, vendor architecture papers)."""
    assert library.hardware("a100-80g-sxm").gpu.peak_tflops["fp16"] == pytest.approx(108 * 2048 * 1.41 / 1e3, rel=0.005)
    assert library.hardware("h100-sxm").gpu.peak_tflops["fp16"] == pytest.approx(132 * 4096 * 1.83 / 1e3, rel=0.005)


def test_bandwidth_of_a_link_falls_or_rises_smoothly() -> None:
    for profile in ALL:
        assert all(
            math.isfinite(share) and share < 1.01 for link in (profile.node.domain, profile.node.host) for share in link.efficiency.values()
        )
