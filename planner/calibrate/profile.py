"""From what was measured to a hardware profile: fitted rates, with host, date and versions as their
source.

A GPU that a shipped profile knows gets an overlay of it (`extends:`); any other device gets a whole
profile of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.calibrate.fit import Columns, fit_attention, fit_gemm, fit_link
from planner.specs.hardware import HardwareProfile

SLOWEST_US = 20_000.0
"""Of a fixed time: gloo on a busy machine."""
OPERATION_US = 5.0
"""What an eager operation of torch takes the CPU of an x86 server: the low end of 5 to 25 us that
users report. Launch times of stacks are of such a server; launch_factor is this machine's over
it."""
Fits = dict[str, float]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A profile's document and the median error of each of its fits, as a share."""

    document: dict[str, Any]
    errors: Fits


def profile(result: dict[str, Any], known: HardwareProfile | None, day: str) -> Fitted:
    """The profile of the machine that `result` was measured on; `known` is the shipped one of its
    GPU.
    """
    errors: Fits = {}
    source = _source(result, day)
    peaks = {"bf16": _peak_tflops(result)} if known is None else known.gpu.peak_tflops
    peak = peaks["bf16"] if "bf16" in peaks else peaks["fp16"]
    gemm = _gemm(result, peak, source, errors)
    kernels = {"gemm": gemm, "attention": _attention(result, peak, source, errors)}
    if known is None:
        return Fitted(_new_profile(result, peak, kernels, source, errors), errors)
    # Here fp32's efficiency is a share of the bf16 peak, in a shipped profile of the fp32 one.
    gemm.pop("fp32", None)
    return Fitted(_overlay(result, known, kernels, source, errors), errors)


def _overlay(
    result: dict[str, Any],
    known: HardwareProfile,
    kernels: dict[str, Any],
    source: str,
    errors: Fits,
) -> dict[str, Any]:
    """Measured figures over those of the shipped profile. Peaks, power and prices are not measured;
    the rates of other precisions stay.
    """
    moved = float(np.median(_memory_rates(result)))
    node: dict[str, Any] = {
        "launch_factor": _plain(result["launch_us"] / OPERATION_US),
        "source": f"{known.node.source}; {source}",
    }
    inside = [row for row in result["collectives"] if row["nodes"] == 1]
    if inside:
        key = "domain" if result["ranks_per_node"] <= known.node.domain_gpus else "host"
        link = getattr(known.node, key)
        fitted = _link(inside, link.gbytes_per_s, source, errors, key)
        node[key] = {**fitted, "efficiency": {**link.efficiency, **fitted["efficiency"]}}
    document = {
        "extends": known.name,
        "name": f"{known.name}-measured",
        "note": f"rates {source}",
        "kernels": {
            **kernels,
            "memory_efficiency_share": _plain(min(moved / known.gpu.hbm_bytes_per_s, 2.0)),
            "source": source,
        },
        "node": node,
    }
    fabric = _fabric(result, known, source, errors)
    if fabric:
        document["fabric"] = fabric
    return document


def _memory_rates(result: dict[str, Any]) -> list[float]:
    """Bytes a second of each size, slowest first."""
    return sorted(row["bytes"] / row["seconds"] for row in result["memory"])


def _bus_bytes_per_s(row: dict[str, Any]) -> float:
    """Of a gather or a scatter: what each rank's link carries."""
    return float(row["bytes"] * (row["ranks"] - 1) / row["ranks"] / row["seconds"])


def _fabric(
    result: dict[str, Any], known: HardwareProfile, source: str, errors: Fits
) -> dict[str, Any]:
    """Across nodes: share of line rate of the largest messages, latency of the smallest."""
    rows = [row for row in result["collectives"] if row["nodes"] > 1 and row["op"] == "all_gather"]
    if not rows:
        return {}
    line = known.nic_bytes_per_s_per_gpu * result["ranks_per_node"]
    sizes = np.array([row["bytes"] for row in rows])
    shares = np.array([_bus_bytes_per_s(row) / line for row in rows])[sizes == sizes.max()]
    waits_us = np.array([row["seconds"] * 1e6 for row in rows])[sizes == sizes.min()]
    errors["fabric"] = float(np.ptp(shares) / np.median(shares))
    return {
        "efficiency_share": _plain(min(float(np.median(shares)), 2.0)),
        "base_us": _plain(waits_us.min()),
        "source": source,
    }


def _new_profile(
    result: dict[str, Any], peak: float, kernels: dict[str, Any], source: str, errors: Fits
) -> dict[str, Any]:
    """A machine that no shipped profile knows; what cannot be measured on it is said in `assumed`
    and in sources.
    """
    here, ranks = result["machine"], result["ranks_per_node"]
    moved = [rate / 1e9 for rate in _memory_rates(result)]
    kind, architecture, device, shared = "gpu", "other", here["name"], 1
    if not here["compute_capability"]:
        kind, architecture, shared = "cpu", "cpu", ranks  # processes share a processor's memory
    if shared > 1:
        device += f", one of {ranks} processes"
    link, nodes = _no_link(source), 1
    if result["collectives"]:
        rate = _bus_rate(result["collectives"])
        link = _link(result["collectives"], rate, source, errors, "domain")
        nodes = max(row["nodes"] for row in result["collectives"])
    return {
        "name": f"{kind}-measured",
        "gpu": {
            "name": device,
            "vendor": here["name"].split()[0],
            "architecture": architecture,
            "compute_capability": here["compute_capability"],
            "memory_gib": _plain(here["memory_gib"] / shared),
            "usable_gib": _plain(here["usable_gib"] / shared),
            "hbm_gbytes_per_s": _plain(moved[-1]),
            "peak_tflops": _peaks(result, peak),
            "tdp_w": 100,
            "source": f"best of what was measured, not a datasheet's; power assumed; {source}",
        },
        "kernels": {
            **kernels,
            "memory_efficiency_share": _plain(moved[len(moved) // 2] / moved[-1]),
            "sustained_share": 1.0,
            "assumed": "sustained rates: as measured in short runs",
            "source": source,
        },
        "node": {
            "gpus": ranks,
            "domain_gpus": ranks,
            "domain": link,
            "host": link,
            "host_memory_gib": _plain(here["memory_gib"]),
            "pcie_gbytes_per_s": _plain(moved[-1]),
            "launch_factor": _plain(result["launch_us"] / OPERATION_US),
            "source": source,
        },
        "fabric": {
            "nics": 1,
            "nic_gbytes_per_s": 1.25,
            "efficiency_share": 0.8,
            "base_us": 50,
            "hop_us": 20,
            "source": (
                "assumed: 10 Gb/s Ethernet; measure over nodes, or --set fabric.nic_gbytes_per_s"
            ),
        },
        "max_gpus": ranks * nodes,
        "note": f"written by ppplan calibrate: {source}",
    }


def _gemm(result: dict[str, Any], peak: float, source: str, errors: Fits) -> dict[str, Any]:
    """Fits by precision of the operands; a profile needs bf16, for which fp32 stands in on a
    processor without fast bf16.
    """
    fitted = {}
    for precision, rows in sorted(_by_precision(result).items()):
        fit = fit_gemm(_columns(rows, m="m", n="n", k="k"), peak, SLOWEST_US)
        errors[f"gemm {precision}"] = fit["median"]
        fitted[precision] = _rates(
            fit,
            ("efficiency", "k_half", "m_half", "n_half", "fixed_us"),
            f"{len(rows)} sizes, {source}",
        )
    if not _has_bf16(result):
        fitted["bf16"] = fitted["fp32"]
    return fitted


def _by_precision(result: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of matrix products."""
    out: dict[str, list[dict[str, Any]]] = {}
    for row in result["gemm"]:
        out.setdefault(row["precision"], []).append(row)
    return out


def _attention(result: dict[str, Any], peak: float, source: str, errors: Fits) -> dict[str, Any]:
    rows = result["attention"]
    fit = fit_attention(
        _columns(rows, batch_size="batch", isl="seq", num_heads="heads", head_dim="width"),
        peak,
        SLOWEST_US,
    )
    errors["attention"] = fit["median"]
    backward = float(np.median([2.5 * row["seconds"] / row["backward_s"] for row in rows]))
    rates = _rates(
        fit, ("efficiency", "seq_half", "heads_half", "fixed_us"), f"{len(rows)} sizes, {source}"
    )
    return rates | {"backward_share": _plain(min(backward, 2.0))}


def _link(
    rows: list[dict[str, Any]], gbytes_per_s: float, source: str, errors: Fits, key: str
) -> dict[str, Any]:
    fitted = [row for row in rows if row["op"] in ("all_reduce", "all_gather", "reduce_scatter")]
    columns = _columns(fitted, num_gpus="ranks", bytes="bytes")
    columns["op_name"] = np.array([row["op"] for row in fitted])
    fit = fit_link(columns, gbytes_per_s, SLOWEST_US)
    errors[f"{key} link"] = fit["median"]
    return {
        "gbytes_per_s": _plain(gbytes_per_s),
        "efficiency": {n: _plain(share) for n, share in fit["efficiency"].items()},
        "base_us": _plain(fit["base_us"]),
        "hop_us": _plain(fit["hop_us"]),
        "all_reduce_gain": _plain(min(fit["gain"], 2.0)),
        **_send_rate(rows),
        "source": f"{len(fitted)} collectives, {source}",
    }


def _send_rate(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Bandwidth of a message: the slope from the smallest to the largest."""
    sent = sorted((row["bytes"], row["seconds"]) for row in rows if row["op"] == "send_recv")
    if len(sent) < 2 or sent[-1][1] <= sent[0][1]:
        return {}
    size_bytes, seconds = sent[-1][0] - sent[0][0], sent[-1][1] - sent[0][1]
    return {"send_gbytes_per_s": _plain(size_bytes / seconds / 1e9)}


def _no_link(source: str) -> dict[str, Any]:
    """One device: nothing to talk to; the figures are never used."""
    return {
        "gbytes_per_s": 1.0,
        "efficiency": {2: 1.0},
        "base_us": 0.0,
        "hop_us": 0.0,
        "source": f"one device, no link; {source}",
    }


def _bus_rate(rows: list[dict[str, Any]]) -> float:
    """The best bus bandwidth of any gather, GB/s: what efficiencies refer to where no datasheet
    states a link.
    """
    gathers = [row for row in rows if row["op"] in ("all_gather", "reduce_scatter")]
    return max(map(_bus_bytes_per_s, gathers), default=1e9) / 1e9


def _flops_per_s(row: dict[str, Any]) -> float:
    """Of a matrix product."""
    return float(2 * row["m"] * row["n"] * row["k"] / row["seconds"])


def _peak_tflops(result: dict[str, Any]) -> float:
    """The best rate of any product."""
    return max(map(_flops_per_s, result["gemm"])) / 1e12


def _peaks(result: dict[str, Any], peak: float) -> dict[str, float]:
    """One figure for all that the device computes: efficiencies are shares of it."""
    kinds = ("fp32", "fp16", "bf16") if _has_bf16(result) else ("fp32", "fp16")
    return dict.fromkeys(kinds, _plain(peak))


def _has_bf16(result: dict[str, Any]) -> bool:
    """A processor that emulates bf16 is slower in it than in fp32: it has none."""
    rows = _by_precision(result)
    bf16 = max(map(_flops_per_s, rows.get("bf16", [])), default=0.0)
    return bf16 > max(map(_flops_per_s, rows.get("fp32", [])), default=0.0)


def _columns(rows: list[dict[str, Any]], **names: str) -> Columns:
    columns = {"latency_us": np.array([row["seconds"] * 1e6 for row in rows])}
    for name, key in names.items():
        columns[name] = np.array([float(row[key]) for row in rows])
    return columns


def _rates(fit: dict[str, Any], keys: tuple[str, ...], source: str) -> dict[str, Any]:
    rates = {key: _plain(fit[key]) for key in keys}
    return rates | {"median_error_share": _plain(fit["median"]), "source": source}


def _source(result: dict[str, Any], day: str) -> str:
    here = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in here["versions"].items())
    return (
        f"measured by ppplan calibrate on {here['host']} ({result['ranks']} ranks at once), {day};"
        f" {versions}"
    )


def _plain(value: float) -> float:
    return float(f"{value:.4g}")
