"""Fits the rates of the shipped profiles to the measured kernels beside this file, and writes them
into the profiles' lines.

`python -m planner.calibrate.maintain.shipped` rewrites hardware_profiles/*.yaml and prints the
fits; `--check` only compares. Only the lines of fitted rates change; the rest of a profile,
comments included, stays as people wrote it.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.calibrate.fit import Columns, Fit, fit_attention, fit_gemm, fit_link
from planner.specs.library import hardware, profiles_folder

_MEASURED = Path(__file__).parents[1] / "measured"
_PRECISIONS = {
    "bf16": ("bfloat16", "bf16"),
    "fp8": ("fp8", "fp8"),
    "fp8-block": ("fp8_block", "fp8"),
    "fp4": ("nvfp4", "fp4"),
}
"""Operands as a profile names them: the data's name for them, and the peak that the efficiency
refers to.
"""
_ATTENTION_LIBRARY = "sglang"
"""Of the three libraries the one that runs like the flash attention of training. On the A100 its
fit is within 2% of what SimuMax measured there (16 heads and more, 4,096 tokens), where vllm's is 8
to 16% slower and trtllm's 32 to 42%; on the B200 within 15%."""
_SMALLEST_BYTES = 4 * 2**20
"""Collectives of training are larger; below it the two lines of the form (latency, bandwidth) pull
the fit away from them.
"""


@dataclass(frozen=True, slots=True)
class Source:
    """Which measurements stand for a profile. Links absent here were written by hand, with their
    source.
    """

    gemm: str
    attention: str
    links: dict[str, str] = field(default_factory=dict)


SOURCES = {
    "a100-80g-sxm": Source("a100_sxm", "a100_sxm", {"domain": "a100_sxm"}),
    "a100-40g-sxm": Source("a100_sxm", "a100_sxm", {"domain": "a100_sxm"}),
    "a100-80g-pcie": Source("a100_pcie", "a100_sxm"),
    "h100-sxm": Source("h100_sxm", "h100_sxm", {"domain": "h100_sxm"}),
    "h200-sxm": Source("h200_sxm", "h200_sxm", {"domain": "h200_sxm"}),
    "b200-sxm": Source("b200_sxm", "b200_sxm", {"domain": "b200_sxm"}),
    "b300-sxm": Source("b300_sxm", "b300_sxm", {"domain": "b300_sxm"}),
    # Trays of 4 were measured; their 2 and 4 GPUs are within 4% of the HGX boards', so 8 and beyond
    # are taken from those.
    "gb200-nvl72": Source("gb200", "gb200", {"domain": "b200_sxm"}),
    "gb300-nvl72": Source("gb300", "gb300", {"domain": "b300_sxm"}),
    "l40s-pcie": Source("l40s", "l40s", {"domain": "l40s", "host": "l40s"}),
    "rtx4090-pcie": Source("l40s", "l40s"),
    "rtxpro6000-server-pcie": Source(
        "rtx_pro_6000", "rtx_pro_6000", {"domain": "rtx_pro_6000", "host": "rtx_pro_6000"}
    ),
    "v100-16g-sxm2": Source("a100_sxm", "a100_sxm", {"domain": "v100"}),
    "v100-32g-sxm2": Source("a100_sxm", "a100_sxm", {"domain": "v100"}),
}

_PROFILE_OF = {
    source.gemm: name
    for name, source in SOURCES.items()
    if name not in ("a100-40g-sxm", "rtx4090-pcie", "v100-16g-sxm2", "v100-32g-sxm2")  # they borrow
}
"""The profile of the GPU that was measured."""


@cache
def read(name: str) -> Columns:
    """The columns of a measured table: floats where every cell is a number, else text. Shared: not
    to be changed.
    """
    with gzip.open(_MEASURED / name, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns: Columns = {}
    for key in rows[0]:
        cells = np.array([row[key] for row in rows])
        try:
            columns[key] = cells.astype(float)
        except ValueError:
            columns[key] = cells
    return columns


def where(columns: Columns, mask: npt.NDArray[Any]) -> Columns:
    return {key: column[mask] for key, column in columns.items()}


def backward_share() -> float:
    """Rate of attention's backward over its forward, at 2.5 times the FLOPs: median over SimuMax's
    A100 and B200, 64 heads and more of 128.

    With fewer heads the forward is bound by launch, not by rate.
    """
    rows = read("kernels_b200_a100pcie.csv.gz")
    forward: dict[str, float] = {}
    backward: dict[str, float] = {}
    for system, op, key, efficiency in zip(
        rows["system"], rows["op"], rows["key"], rows["efficiency"], strict=True
    ):
        heads = re.search(r"head_num=(\d+)", str(key))
        width = re.search(r"qk_head_dim=(\d+)", str(key))
        if heads and width and int(heads[1]) >= 64 and int(width[1]) == 128:
            rates = forward if op == "sdp_fwd" else backward
            rates[f"{system} {key}"] = float(efficiency)
    return float(np.median([backward[key] / forward[key] for key in forward]))


def gemm_rows(source: str, precision: str) -> Columns:
    """The training-like products of a GPU: m >= 1024, n and k >= 512."""
    if source == "a100_pcie":
        rows = read("kernels_b200_a100pcie.csv.gz")
        rows = where(rows, (rows["system"] == source) & (rows["op"] == "matmul"))
        rows = {key: rows[key].astype(float) for key in ("m", "n", "k", "tflops")}
        rows["latency_us"] = 2 * rows["m"] * rows["n"] * rows["k"] / rows["tflops"] / 1e6
    else:
        rows = read("gemm.csv.gz")
        rows = where(
            rows, (rows["gpu"] == source) & (rows["gemm_dtype"] == _PRECISIONS[precision][0])
        )
    return where(rows, (rows["m"] >= 1024) & (rows["n"] >= 512) & (rows["k"] >= 512))


def attention_rows(source: str) -> Columns:
    rows = read("attention_forward.csv.gz")
    return where(rows, (rows["gpu"] == source) & (rows["framework"] == _ATTENTION_LIBRARY))


def link_rows(source: str) -> Columns:
    if source == "v100":
        rows = read("allreduce_a100_v100.csv.gz")
        named = {
            "num_gpus": rows["gpus"],
            "latency_us": rows["oop_time_ns"] / 1e3,
            "op_name": np.full(len(rows["gpus"]), "all_reduce"),
        }
        rows = rows | named
        fitted = (rows["hardware"] == source) & np.isin(rows["gpus"], (2, 4, 8))
        return where(rows, fitted & (rows["bytes"] >= _SMALLEST_BYTES))
    rows = read("collectives.csv.gz")
    # One gain serves all groups: that of the largest, where reduction in the switch pays most and
    # all-reduce is used most.
    largest = rows["num_gpus"] == rows["num_gpus"][rows["gpu"] == source].max()
    fitted = (
        np.isin(rows["op_name"], ("all_gather", "reduce_scatter"))
        | (rows["op_name"] == "all_reduce") & largest
    )
    return where(rows, (rows["gpu"] == source) & fitted & (rows["bytes"] >= _SMALLEST_BYTES))


def fitted_lines(name: str) -> dict[str, str]:
    """The flow mappings of a profile's fitted lines, by key: precisions, attention, domain,
    host.
    """
    source, profile = SOURCES[name], hardware(name)
    lines = {precision: _gemm_line(source.gemm, precision) for precision in profile.kernels.gemm}
    lines["attention"] = _attention_line(source.attention)
    for key, measured in source.links.items():
        link = getattr(profile.node, key)
        lines[key] = _link_line(measured, link.gbytes_per_s, profile.node.domain_gpus)
    return lines


def _peak_tflops(source: str, precision: str) -> float:
    """Of the GPU that was measured: a stand-in keeps the share of peak."""
    return hardware(_PROFILE_OF[source]).gpu.peak_tflops[precision]


def _gemm_line(source: str, precision: str) -> str:
    dtype, peak = _PRECISIONS[precision]
    rows = gemm_rows(source, precision)
    fit = fit_gemm(rows, _peak_tflops(source, peak))
    named = f"aiconfigurator-core 0.12.0 {source} {dtype}"
    if source == "a100_pcie":
        named = "SimuMax a100_pcie"
    return (
        f"{{efficiency: {fit['efficiency']:.3f}, k_half: {fit['k_half']:.0f}, m_half:"
        f" {fit['m_half']:.0f}, n_half: {fit['n_half']:.0f}, fixed_us: {fit['fixed_us']:.1f},"
        f' {_errors(fit)}, source: "{named}, {len(rows["m"])} sizes{_tail(fit)}"}}'
    )


def _attention_line(source: str) -> str:
    rows = attention_rows(source)
    fit = fit_attention(rows, _peak_tflops(source, "bf16"))
    return (
        f"{{efficiency: {fit['efficiency']:.3f}, seq_half: {fit['seq_half']:.0f}, heads_half:"
        f" {fit['heads_half']:.2f}, fixed_us: {fit['fixed_us']:.1f}, backward_share:"
        f' {backward_share():.2f}, {_errors(fit)}, source: "aiconfigurator-core 0.12.0 {source}'
        f' {_ATTENTION_LIBRARY}, {len(rows["isl"])} sizes{_tail(fit)}; backward SimuMax"}}'
    )


def _link_line(source: str, gbytes_per_s: float, domain_gpus: int) -> str:
    rows = link_rows(source)
    fit = fit_link(rows, gbytes_per_s)
    shares = dict(fit["efficiency"])
    largest = max(shares)
    if domain_gpus > largest:  # not measured: a switched domain carries 72 as it carries 8
        shares[domain_gpus] = shares[largest]
    written = ", ".join(f"{members}: {share:.3f}" for members, share in shares.items())
    gain = f"all_reduce_gain: {fit['gain']:.2f}, " if fit["gain"] > 1.02 else ""
    named = f"aiconfigurator-core 0.12.0 {source}, NCCL"
    if source == "v100":
        named = "vTrain V100, all-reduce"
    latencies = f"base_us: {fit['base_us']:.1f}, hop_us: {fit['hop_us']:.1f}"
    return (
        f"{{gbytes_per_s: {gbytes_per_s:g}, efficiency: {{{written}}}, {latencies}, {gain}"
        f'source: "{named} of 4 MiB and more{_tail(fit)}; median error {fit["median"]:.1%}"}}'
    )


def _errors(fit: Fit) -> str:
    return f"median_error_share: {fit['median']:.3f}"


def _tail(fit: Fit) -> str:
    return f", p90 error {fit['p90']:.0%}"


def rewritten(text: str, lines: dict[str, str]) -> str:
    """A profile's text with its fitted lines replaced."""
    pattern = re.compile(rf"^( +)({'|'.join(map(re.escape, lines))}): \{{.*\}}$", re.MULTILINE)
    return pattern.sub(lambda match: f"{match[1]}{match[2]}: {lines[match[2]]}", text)


def main(arguments: list[str]) -> int:
    """Rewrites every profile that has a source here; with --check only says whether one would
    change.
    """
    changed = False
    for name in sorted(SOURCES):
        path, lines = profiles_folder() / f"{name}.yaml", fitted_lines(name)
        before = path.read_text(encoding="utf-8")
        after = rewritten(before, lines)
        print(f"{name}{' (changed)' * (before != after)}")
        for key, line in lines.items():
            print(f"  {key}: {line}")
        if before != after:
            changed = True
            if "--check" not in arguments:
                path.write_text(after, encoding="utf-8")
    return int(changed and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
