"""The rows of `validate` as CSV."""

from __future__ import annotations

import pandas as pd

from planner.accuracy.columns import COUNTS, SWITCHES
from planner.accuracy.validate import Validation

ADDED = (
    "measured_step_s",
    "predicted_step_s",
    "predicted_step_s_low",
    "predicted_step_s_high",
    "error",
    "measured_memory_gib",
    "predicted_memory_gib",
    "memory_error",
    "predicted_allocated_gib",
    "predicted_reserved_gib",
    "predicted_device_gib",
    "predicted_oom_probability",
    "layout",
    "assumed",
    "skipped",
)
"""Columns that stand behind those of the measured runs."""
LEFT_OUT = (
    "predicted_model_flops",
    "predicted_model_flops_full_attention",
    "hfu_flops",
    "measured_allocated_gib",
)
"""Columns that only the comparison needs."""


def frame(answer: Validation) -> pd.DataFrame:
    """The rows as they were read, with what was predicted of each; counts as whole numbers."""
    rows = answer.rows.drop(columns=list(LEFT_OUT))
    measured = [name for name in rows if name not in ADDED]
    rows = rows[[*measured, *ADDED]].copy()
    for name in (*COUNTS, *SWITCHES):
        if (rows[name].dropna() % 1 == 0).all():
            rows[name] = rows[name].astype("Int64")
    return rows


def table(answer: Validation) -> str:
    """The rows as CSV."""
    return str(frame(answer).to_csv(index=False))
