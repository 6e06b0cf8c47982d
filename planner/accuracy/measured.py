"""What a run measured, in seconds and GiB, beside what was predicted."""

from __future__ import annotations

import numpy as np
import pandas as pd

BF16_TFLOPS = (
    ("v100", 125.0), ("a100", 312.0), ("a800", 312.0), ("h100", 989.4), ("h200", 989.4), ("h800", 989.4), ("gh200", 989.4),
    ("gb200", 2450.0), ("gb300", 2450.0), ("b200", 2250.0), ("b300", 2250.0), ("mi300", 1307.4), ("mi325", 1307.4), ("mi350", 2300.0),
    ("mi355", 2500.0),
)  # fmt: skip
"""Dense bf16 peaks that sources divide by to print an MFU; the first prefix that fits counts."""
CAUSAL = "causal"


def add_measured(rows: pd.DataFrame) -> pd.DataFrame:
    """Adds `measured_step_s`, `error`, `memory_error`, `predicted_memory_gib` and `measured_allocated_gib`."""
    step = measured_step_s(rows)
    memory = predicted_memory_gib(rows)
    return rows.assign(
        measured_step_s=step,
        error=rows["predicted_step_s"] / step - 1,
        predicted_memory_gib=memory,
        memory_error=memory / rows["peak_mem_gib"].where(rows["peak_mem_gib"] > 0) - 1,
        measured_allocated_gib=_allocated_gib(rows),
    )


def measured_step_s(rows: pd.DataFrame) -> pd.Series:
    """The stated step time, else what tokens/s give, else TFLOP/s or utilisation under the row's way to count FLOPs.

    A convention that is not stated is the causal one (as `model_tflops_per_gpu` of today's software).
    """
    tokens = rows["gbs_sequences"] * rows["seq"]
    convention = rows["flop_convention"].astype("str").str.lower()
    flops = rows["predicted_model_flops"].where(~convention.str.startswith("full"), rows["predicted_model_flops_full_attention"])
    peak = _peak_tflops(rows["hardware"])
    speeds = (
        tokens / (_positive(rows["tokens_per_s_per_gpu"]) * rows["gpus"]),
        flops / (_positive(rows["model_tflops_per_gpu"]) * 1e12 * rows["gpus"]),
        flops / (_share(rows["mfu"]) * peak * 1e12 * rows["gpus"]),
        rows["hfu_flops"] / (_share(rows["hfu"]) * peak * 1e12 * rows["gpus"]),
    )
    step = _positive(rows["step_time_s"])
    for other in speeds:
        step = step.where(step.notna(), other)
    return step


def predicted_memory_gib(rows: pd.DataFrame) -> pd.Series:
    """The prediction of the kind of memory that was measured; what a source does not name is taken as reserved."""
    kind = rows["peak_mem_kind"].astype("str").str.lower()
    memory = rows["predicted_reserved_gib"]
    memory = memory.where(kind != "allocated", rows["predicted_allocated_gib"])
    return memory.where(kind != "device", rows["predicted_device_gib"])


def _positive(column: pd.Series) -> pd.Series:
    return column.where(column > 0)


def _share(column: pd.Series) -> pd.Series:
    """A utilisation as a share of 1; a source that prints percent means them."""
    some = _positive(column)
    return some.where(some <= 1.5, some / 100)


def _peak_tflops(hardware: pd.Series) -> pd.Series:
    low = hardware.astype("str").str.lower()
    peak = pd.Series(np.nan, index=hardware.index)
    for prefix, tflops in BF16_TFLOPS:
        peak = peak.where(peak.notna() | ~low.str.startswith(prefix), tflops)
    return peak


def _allocated_gib(rows: pd.DataFrame) -> pd.Series:
    """Allocated memory: the peak itself when it is of that kind, else what the notes tell beside a reserved one."""
    noted = rows["notes"].astype("str").str.extract(r"largest allocated ([\d.]+) GiB", expand=False)
    stated = rows["peak_mem_gib"].where(rows["peak_mem_kind"].astype("str") == "allocated")
    return stated.where(stated.notna(), pd.to_numeric(noted, errors="coerce"))
