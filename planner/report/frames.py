"""Answers as pandas tables: the JSON's names and units as columns, names in place of codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType
from typing import Any

import numpy as np
import pandas as pd

from planner.accuracy.validate import Validation
from planner.advice.comparison import Comparison
from planner.answers import Explanation, Recommendation, Sweep
from planner.layout import MODULES, OFFLOADS, RECOMPUTE, SCHEDULES, Layout, Layouts, module_names
from planner.report.csv.validate import frame
from planner.units import GIB

LISTS = ("stages", "assumed", "changes", "why")
"""Parts of a document that are no single value: they stay in to_dict()."""
SWITCHES = ("sp", "account_for_embedding", "account_for_loss")
NAMES = {
    "schedule": SCHEDULES,
    "recompute": RECOMPUTE,
    "offload": OFFLOADS,
    "recompute_modules": [",".join(module_names(mask)) for mask in range(1 << len(MODULES))],
}
"""Of each code its name; of a mask of modules theirs."""


def recommend(answer: Recommendation) -> pd.DataFrame:
    """Every layout that the search computed, those that fit first, fastest first; times and memory
    by the closed form. `rank` is the place among answer.plans, whose pipelines were simulated.
    """
    search = answer.search
    if search is None or search.computed is None:
        return pd.DataFrame()
    computed = search.computed
    count = len(computed.step_s)
    table = pd.DataFrame(
        {"rank": pd.array([None] * count, dtype="Int64"), **_layouts(computed.layout, count)}
    )
    for plan in search.plans:
        same = np.full(count, True)
        for field in fields(Layout):
            same &= getattr(computed.layout, field.name) == getattr(plan.layout, field.name)
        table.loc[same, "rank"] = plan.rank
    table["step_s"] = computed.step_s
    table["tokens_per_s_per_gpu"] = answer.recipe.tokens / computed.step_s / answer.recipe.gpus
    table["memory_gib"] = computed.memory_bytes / GIB
    table["fits"] = computed.fits
    return table.sort_values(["fits", "step_s"], ascending=[False, True], ignore_index=True)


def _layouts(layout: Layouts, count: int) -> dict[str, Any]:
    """The columns of many layouts, by name."""
    columns: dict[str, Any] = {}
    for field in fields(Layout):
        codes = np.broadcast_to(getattr(layout, field.name), count)
        if field.name in NAMES:
            columns[field.name] = np.asarray(NAMES[field.name], dtype=object)[codes]
        else:
            columns[field.name] = codes.astype(bool) if field.name in SWITCHES else codes
    columns["gbs"] = np.broadcast_to(layout.gbs, count)
    return columns


def explain(answer: Explanation) -> pd.DataFrame:
    """One row: the layout, and every term of its time and memory."""
    return _frame([answer.to_dict()], leave_out=("question", "schedules", "goodput"))


def sweep(answer: Sweep) -> pd.DataFrame:
    """A row a point: what was swept, the layout, every term; `breaches` where it breaks a rule."""
    rows = answer.to_dict()["sweep"]
    return _frame([{**row.pop("words"), **row} for row in rows])


def compare(answer: Comparison) -> pd.DataFrame:
    """A row a question or plan; `fault` says why one has no plan."""
    return _frame(answer.to_dict()["rows"])


def validate(answer: Validation) -> pd.DataFrame:
    """A row a measured run, with its prediction and error: what --out writes."""
    return frame(answer)


def _frame(documents: list[dict[str, Any]], leave_out: tuple[str, ...] = ()) -> pd.DataFrame:
    rows = []
    for document in documents:
        row: dict[str, Any] = {}
        for name, value in document.items():
            if name in leave_out:
                continue
            if name in ("layout", "estimate"):
                row |= _flat(value or {})
            else:
                row |= _flat({name: value})
        rows.append(row)
    table = pd.DataFrame(rows)
    for name in map(str, table):
        values = table[name].dropna()
        if len(values) < len(table) and all(type(row.get(name)) in (int, NoneType) for row in rows):
            table[name] = table[name].astype("Int64")
    return table


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """One level: groups as `time.gemm_s`, names and breaches in one text, other lists left out."""
    flat: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{part}": figure for part, figure in _flat(value).items()}
        elif name == "breaches":
            flat[name] = "; ".join(breach["message"] for breach in value)
        elif name == "recompute_modules":
            flat[name] = ",".join(value)
        elif name not in LISTS:
            flat[name] = value
    return flat
