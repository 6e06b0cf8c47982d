"""Shipped profiles: every file loads, figures agree with one another and with published ones.

data/gpus.csv and data/nodes.csv: public figures of GPUs and nodes from vendors' pages and secondary
sources, of November 2026; TFLOP/s dense, GB/s one way, a blank for what a GPU has not or nobody
states.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from planner.estimate import closed_form
from planner.specs import library
from planner.specs.documents import read_mapping
from planner.specs.hardware import HardwareProfile
from tests.documents import layout, recipe

DATA = Path(__file__).parent.parent / "data"
MEASURED = {
    "A100 SXM4 80GB",
    "H100 SXM5 80GB",
    "H200 SXM 141GB",
    "B200 SXM 180GB",
    "B300 SXM 288GB",
    "GB200, one GPU",
    "GB300, one GPU",
    "L40S",
    "RTX PRO 6000 Blackwell Server Edition",
}
"""GPUs whose kernels lie in planner/calibrate/measured."""
ALL = [library.hardware(name) for name in library.clusters()]


def by_name(profile: HardwareProfile) -> str:
    return profile.name


@pytest.mark.parametrize("profile", ALL, ids=by_name)
def test_a_gpu_can_give_out_a_little_less_than_the_driver_reports(profile: HardwareProfile) -> None:
    assert 0 <= profile.gpu.memory_gib - profile.gpu.usable_gib <= 1


@pytest.mark.parametrize("profile", ALL, ids=by_name)
def test_peaks_are_dense(profile: HardwareProfile) -> None:
    """Halving the operands' width doubles the dense rate (B300 and GB300 triple the last step); a
    sparse figure would break it.
    """
    peaks = profile.gpu.peak_tflops
    assert peaks.get("bf16", peaks["fp16"]) == peaks["fp16"]
    if "fp8" in peaks:
        alike = profile.gpu.name == "Gaudi 3"  # its matrix engines take 16 bits at the rate of 8
        assert peaks["fp8"] / peaks["fp16"] == pytest.approx(1 if alike else 2, rel=0.02)
    if "fp4" in peaks:
        steps = {
            "B300": 3,
            "GB300": 3,
            "GeForce": 4,
        }  # B300 and GB300 were built for it; GeForce halves fp8 alone
        step = next((step for word, step in steps.items() if profile.gpu.name.startswith(word)), 2)
        assert peaks["fp4"] / peaks["fp8"] == pytest.approx(step, rel=0.02)
    assert ("bf16" in peaks) == (profile.gpu.compute_capability >= 8)
    assert ("fp8" in peaks) == (
        profile.gpu.compute_capability >= 8.9 and profile.gpu.architecture != "cdna2"
    )


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def number(cell: str) -> float | None:
    return float(cell) if cell else None


@pytest.mark.parametrize("row", rows("gpus"), ids=lambda row: row["id"])
def test_gpus_are_as_published(row: dict[str, str]) -> None:
    profile = library.hardware(row["id"])
    gpu, node = profile.gpu, profile.node
    for precision in ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4"):
        assert gpu.peak_tflops.get(precision) == number(row[f"{precision}_tflops"]), precision
    assert (gpu.hbm_gbytes_per_s, gpu.tdp_w, node.pcie_gbytes_per_s) == tuple(
        number(row[name]) for name in ("mem_bw_gb_s", "tdp_w", "host_link_gb_s_oneway")
    )
    older_driver = {
        "v100-sxm2-32g": 31.75,
        "v100-pcie-32g": 31.75,
    }  # 32510 MiB, as most drivers print
    assert gpu.memory_gib == older_driver.get(row["id"], number(row["usable_gib"]))
    unbridged = ("rtx-3090", "gh200-96g")  # profiles of boxes without the optional link
    if row["id"] not in unbridged:
        assert (node.domain.gbytes_per_s if node.domain_gpus > 1 else None) == number(
            row["link_gb_s_oneway"]
        )


@pytest.mark.parametrize("row", rows("nodes"), ids=lambda row: row["id"])
def test_nodes_are_as_published(row: dict[str, str]) -> None:
    profile = library.hardware(row["id"])
    assert profile.gpu == library.hardware(row["gpu_id"]).gpu
    assert (profile.node.gpus, profile.node.domain_gpus) == (
        int(row["gpus_per_node"]),
        int(row["nvlink_domain_gpus"]),
    )
    assert (profile.fabric.nics, profile.fabric.nic_gbytes_per_s * 8) == (
        int(row["nics"]),
        float(row["nic_gbit_s"]),
    )
    assert profile.price_usd_per_gpu_hour == number(row["price_usd_per_gpu_hour"])
    if row["host_mem_gib"]:  # 3,000 GB in one source are 2,794 GiB
        assert profile.node.host_memory_gib == pytest.approx(
            float(row["host_mem_gib"]), rel=0.07 if row["id"] == "mi355x-8" else 1e-9
        )


@pytest.mark.parametrize("profile", ALL, ids=by_name)
def test_what_was_not_measured_is_said(profile: HardwareProfile) -> None:
    assert bool(profile.kernels.assumed) == (profile.gpu.name not in MEASURED)
    assert bool(profile.price_source) == (profile.price_usd_per_gpu_hour is not None)
    assert (
        profile.node.domain_gpus > 1
        or profile.node.domain.gbytes_per_s == profile.node.host.gbytes_per_s
    )
    assert (
        profile.node.domain_gpus > 1
        or profile.node.domain.efficiency == profile.node.host.efficiency
    )


@pytest.mark.parametrize("name", library.clusters())
def test_a_profile_that_changes_figures_says_where_they_are_from(name: str) -> None:
    """With `extends` a group could keep the base's source for figures of its own."""
    stated = read_mapping(library.profiles_folder() / f"{name}.yaml")
    for group in ("node", "fabric"):
        changed = stated.get(group, {})
        assert not set(changed) - {"domain", "host"} or "source" in changed, group
        assert all("source" in changed[link] for link in ("domain", "host") if link in changed)
    assert "peak_tflops" not in stated.get("gpu", {}) or "source" in stated["gpu"]


BY_POWER = [
    ("v100-16g-pcie", "v100-16g-sxm2"),
    ("a100-40g-pcie", "a100-80g-pcie"),
    ("l4-pcie", "l40s-pcie"),
    ("rtx6000-ada-pcie", "l40s-pcie"),
    ("t4-pcie", "l40s-pcie"),
    ("a10g-pcie", "l40s-pcie"),
    ("rtx3090-pcie", "l40s-pcie"),
    ("rtx5090-pcie", "rtxpro6000-server-pcie"),
    ("rtxpro6000-workstation-pcie", "rtxpro6000-server-pcie"),
    ("h100-pcie", "h100-sxm"),
    ("h100-nvl", "h100-sxm"),
    ("h20-sxm", "h100-sxm"),
    ("h200-nvl", "h200-sxm"),
    ("mi350x-oam", "mi355x-oam"),
    ("a800-80g-sxm", "a100-80g-sxm"),
    ("gaudi3-oam", "h100-sxm"),
    ("gaudi2-oam", "h100-sxm"),
]


@pytest.mark.parametrize(("name", "relative"), BY_POWER)
def test_rates_of_an_unmeasured_gpu_follow_the_rule(name: str, relative: str) -> None:
    """The relative's share of peak and bandwidth; speed in long runs by the root of watts per
    TFLOP/s, at most 0.95.
    """
    own, kin = library.hardware(name), library.hardware(relative)
    watts = [one.gpu.tdp_w / one.gpu.peak_tflops["fp16"] for one in (own, kin)]
    assert own.kernels.sustained_share == pytest.approx(
        min(0.95, kin.kernels.sustained_share * math.sqrt(watts[0] / watts[1])), abs=0.002
    )
    assert own.kernels.gemm["bf16"].efficiency == kin.kernels.gemm["bf16"].efficiency
    assert own.kernels.memory_efficiency_share == kin.kernels.memory_efficiency_share


@pytest.mark.parametrize(
    ("name", "best_tflops"), [("mi300x", 668.4), ("mi325x", 784.9), ("mi355x", 1565.0)]
)
def test_amd_matrix_products_reach_the_best_that_was_published(
    name: str, best_tflops: float
) -> None:
    """stas00/ml-engineering (744d01e), compute/accelerator: maximum achievable matrix products in
    bf16.
    """
    profile = library.hardware(name)
    assert profile.kernels.gemm["bf16"].efficiency * profile.gpu.peak_tflops[
        "bf16"
    ] == pytest.approx(best_tflops, rel=0.002)


@pytest.mark.parametrize(
    ("precision", "knobs", "tokens_per_s", "within"),
    [
        ("fp8-delayed", {"mbs": 2, "zero": 1}, 16186, 0.12),
        ("bf16", {"mbs": 1, "zero": 3, "recompute": 2}, 1174, 0.15),
    ],
)
def test_amd_runs_come_out_near_what_amd_measured(
    precision: str, knobs: dict[str, int], tokens_per_s: float, within: float
) -> None:
    """Llama 3.1 8B and 70B on 64 MI325X, 8,192 tokens (AMD-AGI/Primus, projection); batch,
    recomputation not stated. Not fitted.
    """
    model, batch = ("llama3-8b", 1024) if knobs["mbs"] == 2 else ("llama3-70b", 64)
    asked = recipe(model, 64, hardware="mi325x", precision=precision, global_batch_size=batch)
    said = closed_form(asked, layout(asked, **knobs))
    assert batch * 8192 / 64 / float(said.step_s) == pytest.approx(tokens_per_s, rel=within)


@pytest.mark.parametrize("profile", ALL, ids=by_name)
def test_two_nodes_plan_a_model(profile: HardwareProfile) -> None:
    """Llama 3 8B with its matrices split inside a node: a time that no peak forbids, memory for at
    least weights and gradients.
    """
    gpus = 2 * profile.node.gpus
    precision = "bf16" if "bf16" in profile.gpu.peak_tflops else "fp16"
    asked = recipe("llama3-8b", gpus, hardware=profile, global_batch_size=64, precision=precision)
    said = closed_form(asked, layout(asked, tp=min(profile.node.gpus, 8)))
    flops_per_s = 6 * 8.03e9 * 64 * asked.seq_length / float(said.step_s) / gpus
    assert 0.005 < flops_per_s / profile.gpu.peak_flops_per_s("fp16") < 0.95
    assert float(said.memory_bytes) > 8.03e9 * (2 + 4) / min(profile.node.gpus, 8)


@pytest.mark.parametrize("profile", ALL, ids=by_name)
def test_precisions_with_rates_have_a_peak(profile: HardwareProfile) -> None:
    peaks = {"bf16": "fp16", "fp8": "fp8", "fp8-block": "fp8", "fp4": "fp4"}
    assert all(peaks[precision] in profile.gpu.peak_tflops for precision in profile.kernels.gemm)


@pytest.mark.parametrize(
    ("name", "network_gbit_s"),
    [
        ("a100-80g-sxm", 1600),
        ("h100-sxm", 3200),
        ("h200-sxm", 3200),
        ("b200-sxm", 3200),
        ("b300-sxm", 6400),
        ("gb200-nvl72", 1600),
    ],
)
def test_nodes_have_the_network_that_vendors_print(name: str, network_gbit_s: float) -> None:
    profile = library.hardware(name)
    assert profile.nic_bytes_per_s_per_gpu * profile.node.gpus * 8 / 1e9 == network_gbit_s


def test_tensor_peaks_follow_from_the_chip() -> None:
    """A100: 108 SMs x 2048 FLOP a clock x 1.41 GHz; H100: 132 x 4096 x 1.83 (dense fp16, vendor
    architecture papers).
    """
    assert library.hardware("a100-80g-sxm").gpu.peak_tflops["fp16"] == pytest.approx(
        108 * 2048 * 1.41 / 1e3, rel=0.005
    )
    assert library.hardware("h100-sxm").gpu.peak_tflops["fp16"] == pytest.approx(
        132 * 4096 * 1.83 / 1e3, rel=0.005
    )


def test_bandwidth_of_a_link_falls_or_rises_smoothly() -> None:
    for profile in ALL:
        assert all(
            math.isfinite(share) and share < 1.01
            for link in (profile.node.domain, profile.node.host)
            for share in link.efficiency.values()
        )
