"""What a run measured, in seconds and GiB, beside what was predicted."""

from __future__ import annotations

import numpy as np
import pandas as pd

from planner.units import GB, GIB

BF16_TFLOPS = (
    ("v100", 125.0),
    ("a100", 312.0),
    ("a800", 312.0),
    ("h100", 989.4),
    ("h200", 989.4),
    ("h800", 989.4),
    ("gh200", 989.4),
    ("gb200", 2450.0),
    ("gb300", 2450.0),
    ("b200", 2250.0),
    ("b300", 2250.0),
    ("mi300", 1307.4),
    ("mi325", 1307.4),
    ("mi350", 2300.0),
    ("mi355", 2500.0),
)
"""Dense bf16 peaks that sources divide by to print an MFU; the first prefix that fits counts."""
BRIDGE, NEMO = "Megatron-Bridge", "NVIDIA/NeMo docs"
"""In `source_ref`. The first logs decimal gigabytes of allocated memory (its cards print GiB beside
a reserved peak). The second counted full attention in its TFLOP/s: its rows that also state
tokens/s say so, 6 N + 12 L h s FLOPs a token to the last digit."""


def add_measured(rows: pd.DataFrame) -> pd.DataFrame:
    """Adds `measured_step_s`, `error`, `measured_memory_gib`, `memory_error`,
    `predicted_memory_gib` and `measured_allocated_gib`.
    """
    step, (peak, kind) = measured_step_s(rows), measured_memory(rows)
    memory = rows["predicted_reserved_gib"].where(
        kind != "allocated", rows["predicted_allocated_gib"]
    )
    memory = memory.where(kind != "device", rows["predicted_device_gib"])
    return rows.assign(
        measured_step_s=step,
        error=rows["predicted_step_s"] / step - 1,
        predicted_memory_gib=memory,
        measured_memory_gib=peak,
        memory_error=memory / peak - 1,
        measured_allocated_gib=_allocated_gib(rows, peak.where(kind == "allocated")),
    )


def measured_step_s(rows: pd.DataFrame) -> pd.Series:
    """The stated step time, else what tokens/s give, else TFLOP/s or utilisation under the row's
    way to count FLOPs.

    A convention that is not stated is the causal one, as today's software counts.
    """
    tokens = rows["gbs_sequences"] * rows["seq"]
    full = _starts(rows["flop_convention"], "full") | (
        rows["flop_convention"].isna() & _names(rows["source_ref"], NEMO)
    )
    flops = rows["predicted_model_flops"].where(~full, rows["predicted_model_flops_full_attention"])
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


def measured_memory(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Peak memory in GiB and its kind: allocated, reserved or device. What a source does not name
    is taken as reserved. A run that ran out of memory has none: it stopped before its peak.
    """
    kind = rows["peak_mem_kind"].astype("str").str.lower()
    known = kind.isin(("allocated", "reserved", "device"))
    bridge = _names(rows["source_ref"], BRIDGE) & ~known
    observed = bridge & _names(rows["notes"], "observed GPU memory")
    kind = kind.where(known, "reserved").where(~bridge, "allocated").where(~observed, "device")
    decimal = bridge & ~observed & ~_names(rows["notes"], "peak reserved")
    peak = _positive(rows["peak_mem_gib"]).where(rows["oom"].fillna(0) != 1)
    return peak.where(~decimal, peak * GB / GIB), kind


def _names(column: pd.Series, words: str) -> pd.Series:
    return column.astype("str").str.contains(words, regex=False, na=False)


def _starts(column: pd.Series, words: str) -> pd.Series:
    return column.astype("str").str.lower().str.startswith(words, na=False)


def _positive(column: pd.Series) -> pd.Series:
    return column.where(column > 0)


def _share(column: pd.Series) -> pd.Series:
    """A utilisation as a share of 1; a source that prints percent means them."""
    some = _positive(column)
    return some.where(some <= 1.5, some / 100)


def _peak_tflops(hardware: pd.Series) -> pd.Series:
    peak = pd.Series(np.nan, index=hardware.index)
    for prefix, tflops in BF16_TFLOPS:
        peak = peak.where(peak.notna() | ~_starts(hardware, prefix), tflops)
    return peak


def _allocated_gib(rows: pd.DataFrame, peak: pd.Series) -> pd.Series:
    """Allocated memory: the peak itself when it is of that kind, else what the notes tell beside a
    reserved one.
    """
    noted = rows["notes"].astype("str").str.extract(r"largest allocated ([\d.]+) GiB", expand=False)
    return peak.where(peak.notna(), pd.to_numeric(noted, errors="coerce"))
