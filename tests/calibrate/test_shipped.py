"""The shipped rates are the fit to the measurements beside them, and the fit finds what it
should.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.calibrate.fit import fit_attention, fit_gemm, fit_link
from planner.calibrate.maintain import shipped
from planner.cost.network import collectives
from planner.specs import library
from planner.specs.documents import parse_yaml

MEASURED = [
    "a100-80g-sxm",
    "h100-sxm",
    "h200-sxm",
    "b200-sxm",
    "b300-sxm",
    "gb200-nvl72",
    "gb300-nvl72",
    "l40s-pcie",
]

# Median and p90 of |predicted / measured - 1| that a first fit of the same form reached on all rows
# of aiconfigurator-core 0.12.0.
FIRST_FIT = {
    ("a100-80g-sxm", "bf16"): (0.053, 0.16),
    ("h100-sxm", "bf16"): (0.043, 0.099),
    ("h200-sxm", "bf16"): (0.043, 0.093),
    ("b200-sxm", "bf16"): (0.056, 0.13),
    ("b300-sxm", "bf16"): (0.066, 0.14),
    ("gb200-nvl72", "bf16"): (0.058, 0.13),
    ("l40s-pcie", "bf16"): (0.083, 0.21),
    ("h100-sxm", "fp8"): (0.034, 0.093),
    ("b200-sxm", "fp8"): (0.044, 0.10),
}


@pytest.mark.parametrize("name", sorted(shipped.SOURCES))
def test_profiles_hold_what_the_script_writes(name: str) -> None:
    """Rerunning `python -m planner.calibrate.maintain.shipped` changes nothing but, on another
    machine, a last digit.
    """
    text = (library.profiles_folder() / f"{name}.yaml").read_text()
    before, after = (
        parse_yaml(text),
        parse_yaml(shipped.rewritten(text, shipped.fitted_lines(name))),
    )
    assert before.keys() == after.keys()
    for part in ("kernels", "node"):
        assert _figures(after[part]) == pytest.approx(_figures(before[part]), rel=0.02, abs=0.02)


def _figures(node: object) -> list[float]:
    if isinstance(node, dict):
        return [x for value in node.values() for x in _figures(value)]
    return [float(node)] if isinstance(node, (int, float)) else []


@pytest.mark.parametrize(("name", "precision"), FIRST_FIT)
def test_the_shipped_rates_are_as_near_as_a_first_fit(name: str, precision: str) -> None:
    """The profile's own five parameters, over the rows kept here."""
    profile = library.hardware(name)
    rates = profile.kernels.gemm[precision]
    rows = shipped.gemm_rows(shipped.SOURCES[name].gemm, precision)
    m, n, k = rows["m"], rows["n"], rows["k"]
    work_us = 2 * m * n * k / (profile.gpu.peak_tflops[precision] * 1e6 * rates.efficiency)
    predicted = rates.fixed_us + work_us * (1 + rates.k_half / k) * (1 + rates.m_half / m) * (
        1 + rates.n_half / n
    )
    error = np.abs(predicted / rows["latency_us"] - 1)
    median, p90 = FIRST_FIT[name, precision]
    assert np.median(error) <= median * 1.02  # a thirteenth of the rows is a little off all of them
    assert np.quantile(error, 0.9) <= p90 * 1.05


@pytest.mark.parametrize("name", MEASURED)
def test_attention_is_within_a_few_percent(name: str) -> None:
    rates = library.hardware(name).kernels.attention
    rows = shipped.attention_rows(shipped.SOURCES[name].attention)
    heads, s = rows["batch_size"] * rows["num_heads"], rows["isl"]
    work_us = (
        2
        * heads
        * s
        * s
        * 128
        / (library.hardware(name).gpu.peak_tflops["bf16"] * 1e6 * rates.efficiency)
    )
    error = np.abs(
        (rates.fixed_us + work_us * (1 + rates.seq_half / s) * (1 + rates.heads_half / heads))
        / rows["latency_us"]
        - 1
    )
    assert np.median(error) < 0.07 and np.quantile(error, 0.9) < 0.22


@pytest.mark.parametrize(
    ("op", "count"),
    [
        ("all_gather", 2),
        ("all_gather", 8),
        ("reduce_scatter", 4),
        ("reduce_scatter", 8),
        ("all_reduce", 8),
    ],
)
@pytest.mark.parametrize("name", ["a100-80g-sxm", "h100-sxm", "h200-sxm", "b200-sxm"])
def test_large_collectives_take_what_was_measured(name: str, op: str, count: int) -> None:
    """64 MiB and more, through the cost model's own formula."""
    profile = library.hardware(name)
    rows = shipped.read("collectives.csv.gz")
    kept = (
        (rows["gpu"] == shipped.SOURCES[name].gemm)
        & (rows["op_name"] == op)
        & (rows["num_gpus"] == count)
        & (rows["bytes"] >= 2**26)
    )
    time = collectives.all_reduce_s if op == "all_reduce" else collectives.gather_s
    predicted = time(profile, collectives.group(profile, 1, count), rows["bytes"][kept])
    assert len(predicted) >= 3
    assert predicted * 1e6 == pytest.approx(rows["latency_us"][kept], rel=0.22)


def test_the_fit_finds_the_parameters_that_made_the_data() -> None:
    rng = np.random.default_rng(1)
    m, n, k = (rng.choice([1024.0, 2048, 4096, 8192, 16384], 400) for _ in "mnk")
    time_us = 5 + 2 * m * n * k / (500e6 * 0.7) * (1 + 200 / k) * (1 + 80 / m) * (1 + 40 / n)
    fit = fit_gemm({"m": m, "n": n, "k": k, "latency_us": time_us}, 500)
    assert [
        fit[key] for key in ("efficiency", "k_half", "m_half", "n_half", "fixed_us")
    ] == pytest.approx([0.7, 200, 80, 40, 5], rel=0.02)
    time_us[::20] *= 3  # a twentieth of slow outliers hardly moves it
    fit = fit_gemm({"m": m, "n": n, "k": k, "latency_us": time_us}, 500)
    assert fit["efficiency"] == pytest.approx(0.7, rel=0.01) and fit["median"] < 0.01

    b, heads, s = (
        rng.choice(sizes, 300) for sizes in ([1.0, 2], [8.0, 16, 32, 64], [1024.0, 4096, 16384])
    )
    time_us = 10 + 2 * b * heads * s * s * 128 / (500e6 * 0.6) * (1 + 900 / s) * (
        1 + 3 / (b * heads)
    )
    rows = {
        "batch_size": b,
        "num_heads": heads,
        "isl": s,
        "head_dim": np.full(300, 128.0),
        "latency_us": time_us,
    }
    fit = fit_attention(rows, 500)
    assert [
        fit[key] for key in ("efficiency", "seq_half", "heads_half", "fixed_us")
    ] == pytest.approx([0.6, 900, 3, 10], rel=0.02)


def test_the_fit_of_a_link_finds_what_made_the_data() -> None:
    op = np.array(["all_gather", "reduce_scatter", "all_reduce"] * 40)
    count, size = (
        np.tile([2.0, 4, 8], 40)[np.argsort(np.tile([0, 1, 2], 40), kind="stable")],
        np.geomspace(1e6, 1e9, 120),
    )
    turns, share = (
        np.where(op == "all_reduce", 2, 1),
        np.select([count == 2, count == 4], [0.5, 0.6], 0.7),
    )
    time_us = (
        12
        + turns * (count - 1) * 2
        + turns
        * size
        * (count - 1)
        / count
        / (300e3 * share)
        / np.where(op == "all_reduce", 1.3, 1)
    )
    fit = fit_link({"op_name": op, "num_gpus": count, "bytes": size, "latency_us": time_us}, 300)
    assert fit["efficiency"] == pytest.approx({2: 0.5, 4: 0.6, 8: 0.7}, rel=0.02)
    assert (fit["base_us"], fit["hop_us"], fit["gain"]) == pytest.approx((12, 2, 1.3), rel=0.05)


def test_backward_of_attention_is_somewhat_slower_than_its_forward() -> None:
    """SimuMax, 64 heads, 4,096 tokens: A100 1.00506 / 1.18701, B200 0.72940 / 0.87152."""
    assert shipped.backward_share() == pytest.approx(
        (1.00506 / 1.18701 + 0.72940 / 0.87152) / 2, abs=0.02
    )


def test_only_fitted_lines_change() -> None:
    text = (
        "gpu:\n  bf16: {a: 1}  # a comment\nkernels:\n    bf16: {efficiency: 1}\nnode:\n  domain:"
        " {x: 1, y: {2: 3}}\n"
    )
    changed = shipped.rewritten(text, {"bf16": "{efficiency: 2}", "domain": "{x: 5}"})
    assert changed == text.replace("{efficiency: 1}", "{efficiency: 2}").replace(
        "{x: 1, y: {2: 3}}", "{x: 5}"
    )


def test_check_says_whether_a_profile_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = (
        (library.profiles_folder() / "h100-sxm.yaml")
        .read_text()
        .replace("fixed_us: ", "fixed_us: 9")
    )
    (tmp_path / "h100-sxm.yaml").write_text(stale)
    monkeypatch.setattr(shipped, "SOURCES", {"h100-sxm": shipped.SOURCES["h100-sxm"]})
    monkeypatch.setattr(shipped, "profiles_folder", lambda: tmp_path)
    assert shipped.main(["--check"]) == 1
    assert (tmp_path / "h100-sxm.yaml").read_text() == stale
    assert shipped.main([]) == 0
    assert (tmp_path / "h100-sxm.yaml").read_text() != stale
    assert shipped.main(["--check"]) == 0
    assert "h100-sxm (changed)" in capsys.readouterr().out
