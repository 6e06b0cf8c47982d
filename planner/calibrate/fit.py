"""Least squares of kernel and collective times to the forms that a hardware profile holds.

`most_us` bounds fixed times and latencies: GPUs stay below the defaults, sockets and processors do
not.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

Columns = dict[str, npt.NDArray[Any]]
Fit = dict[str, Any]


def fit_gemm(rows: Columns, peak_tflops: float, most_us: float = 100) -> Fit:
    """The five parameters of GemmRates and their errors. rows: m, n, k, latency_us.

    Robust least squares of log(predicted / measured): a few slow tiles must not bend the curve.
    """
    m, n, k = rows["m"], rows["n"], rows["k"]

    def predicted(p: npt.NDArray[Any]) -> Any:
        efficiency, k_half, m_half, n_half, fixed_us = np.exp(p)
        flops = 2 * m * n * k
        return fixed_us + flops / (peak_tflops * 1e6 * efficiency) * (1 + k_half / k) * (
            1 + m_half / m
        ) * (1 + n_half / n)

    high = (1.5, 5e3, 5e3, 5e3, most_us)
    values = _least_squares(
        predicted,
        rows["latency_us"],
        start=(0.7, 100, 100, 50, 4),
        low=(0.01,) * 5,
        high=high,
        kept=0.08,
    )
    return dict(
        zip(
            ("efficiency", "k_half", "m_half", "n_half", "fixed_us", "median", "p90"),
            values,
            strict=True,
        )
    )


def fit_attention(rows: Columns, peak_tflops: float, most_us: float = 200) -> Fit:
    """The four parameters of AttentionRates and their errors. rows: batch_size, isl, num_heads,
    head_dim, latency_us.
    """
    heads, s, d = rows["batch_size"] * rows["num_heads"], rows["isl"], rows["head_dim"]

    def predicted(p: npt.NDArray[Any]) -> Any:
        efficiency, seq_half, heads_half, fixed_us = np.exp(p)
        return fixed_us + 2 * heads * s * s * d / (peak_tflops * 1e6 * efficiency) * (
            1 + seq_half / s
        ) * (1 + heads_half / heads)

    values = _least_squares(
        predicted,
        rows["latency_us"],
        start=(0.6, 800, 4, 10),
        low=(0.01,) * 4,
        high=(1.5, 9e3, 500, most_us),
    )
    return dict(
        zip(
            ("efficiency", "seq_half", "heads_half", "fixed_us", "median", "p90"),
            values,
            strict=True,
        )
    )


def fit_link(rows: Columns, gbytes_per_s: float, most_us: float = 200) -> Fit:
    """Latencies, gain of all-reduce and one efficiency per group size. rows: op_name, num_gpus,
    bytes (the full buffer), latency_us.

    The form is that of planner.cost.network.collectives inside one domain: base + steps hop + bytes
    (n-1)/n / (bandwidth efficiency).
    """
    n, size_bytes = rows["num_gpus"], rows["bytes"]
    reduced = rows["op_name"] == "all_reduce"
    members = sorted({int(x) for x in n})
    of = np.searchsorted(members, n)
    turns = np.where(reduced, 2, 1)

    def predicted(p: npt.NDArray[Any]) -> Any:
        base_us, hop_us, gain, *efficiency = np.exp(p)
        wire_us = turns * size_bytes * (n - 1) / n / (gbytes_per_s * 1e3 * np.array(efficiency)[of])
        return base_us + turns * (n - 1) * hop_us + wire_us / np.where(reduced, gain, 1)

    gain_low, gain_high = 0.5, 3.0
    if len(set(rows["op_name"])) == 1:
        gain_low, gain_high = 0.999, 1.001  # all-reduce alone cannot tell gain from efficiency
    count = len(members)
    start = (10, 1, 1, *[0.6] * count)
    low = (5, 0.05, gain_low, *[0.001] * count)
    high = (most_us, most_us / 4, gain_high, *[1.1] * count)
    base_us, hop_us, gain, *efficiency, median, p90 = _least_squares(
        predicted, rows["latency_us"], start, low, high
    )
    shares = dict(zip(members, efficiency, strict=True))
    return {
        "efficiency": shares,
        "base_us": base_us,
        "hop_us": hop_us,
        "gain": gain,
        "median": median,
        "p90": p90,
    }


def _least_squares(
    predicted: Callable[[npt.NDArray[Any]], Any],
    measured: npt.NDArray[Any],
    start: tuple[float, ...],
    low: tuple[float, ...],
    high: tuple[float, ...],
    kept: float = 0.03,
) -> list[float]:
    """Parameters (positive: searched by their logarithm), then median and p90 of |predicted /
    measured - 1|.

    Errors above `kept` count by their size, not their square: little of it favours the median, much
    the tail.
    """
    # imported here, since planning does not depend on it
    least_squares: Any = import_module("scipy.optimize").least_squares
    bounds = (np.log(low), np.log(high))
    result = least_squares(
        lambda p: np.log(predicted(p) / measured),
        np.log(start),
        loss="soft_l1",
        f_scale=kept,
        bounds=bounds,
    )
    error = np.abs(predicted(result.x) / measured - 1)
    errors = float(np.median(error)), float(np.quantile(error, 0.9))
    return [*np.exp(result.x).tolist(), *errors]
