"""Predictions beside measurements: the cost model over every row of a table of runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from planner.accuracy.bridge import last_memory
from planner.accuracy.choices import described
from planner.accuracy.columns import COLUMNS
from planner.accuracy.measured import add_measured
from planner.accuracy.rows import Run, run
from planner.accuracy.simulated import each
from planner.accuracy.skipped import Skipped
from planner.cost.terms import Estimate
from planner.errors import InputError
from planner.estimate import estimate
from planner.layout import SCHEDULE_CODE, SCHEDULES, Layout
from planner.rules.table import mask
from planner.specs.recipe import Recipe
from planner.units import GIB

MAX_OOM_PROBABILITY = 0.1
"""OOM probability under which a layout counts as fitting."""
CLOSED = tuple(SCHEDULE_CODE[name] for name in ("naive", "gpipe", "1f1b", "interleaved"))
"""Schedules with a closed form; the others are simulated, one layout at a time."""
Key = tuple[int, bool]
"""A question, and whether its layouts are simulated one by one."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The figures of an estimate that a run can be held against, one entry a layout."""

    step_s: np.ndarray
    step_s_low: np.ndarray
    step_s_high: np.ndarray
    allocated_bytes: np.ndarray
    reserved_bytes: np.ndarray
    device_bytes: np.ndarray
    oom_probability: np.ndarray
    model_flops: np.ndarray
    model_flops_full_attention: np.ndarray


def predicted(runs: pd.DataFrame) -> pd.DataFrame:
    """The rows with `predicted_*`, `error`, `memory_error`, `assumed`, `skipped` and the layout
    that was taken.
    """
    records = runs[list(COLUMNS)].to_dict("records")
    answers: list[dict[str, Any]] = [{} for _ in records]
    groups = _by_question(records, answers)
    batches = {
        key: (rows[0][1].recipe, joined([document.layouts for _, document in rows]))
        for key, rows in groups.items()
    }
    for key, figures in _figures(batches).items():
        _answer(groups[key], *batches[key], figures, answers)
    names = [*(f"predicted_{name}" for name in _OUT), "layout", "assumed", "skipped", "hfu_flops"]
    table = {name: [answer.get(name, math.nan) for answer in answers] for name in names}
    joint = runs.drop(columns=[name for name in table if name in runs]).reset_index(drop=True)
    return add_measured(pd.concat([joint, pd.DataFrame(table)], axis=1))


_OUT = (
    "step_s",
    "step_s_low",
    "step_s_high",
    "allocated_gib",
    "reserved_gib",
    "device_gib",
    "oom_probability",
    "model_flops",
    "model_flops_full_attention",
)


def _by_question(
    records: list[dict[Any, Any]], answers: list[dict[str, Any]]
) -> dict[Key, list[tuple[int, Run]]]:
    """Rows that share a Recipe, so that one call of the cost model estimates all their layouts."""
    groups: dict[Key, list[tuple[int, Run]]] = {}
    for place, record in enumerate(records):
        row = {name: None if cell != cell else cell for name, cell in record.items()}
        try:
            document = run(row)
        except Skipped as reason:
            answers[place]["skipped"] = str(reason)
            continue
        simulated = not set(np.unique(document.layouts.schedule).tolist()) <= set(CLOSED)
        groups.setdefault((id(document.recipe), simulated), []).append((place, document))
    return groups


def _figures(batches: dict[Key, tuple[Recipe, Layout]]) -> dict[Key, Columns | InputError]:
    """Closed forms batch by batch; all layouts that are simulated together."""
    out: dict[Key, Columns | InputError] = {}
    simulated = {key: pair for key, pair in batches.items() if key[1]}
    pairs = [(recipe, batch[i]) for recipe, batch in simulated.values() for i in range(len(batch))]
    answers = each(pairs)
    for key, (recipe, batch) in batches.items():
        if key not in simulated:
            try:
                out[key] = estimates(recipe, batch)
            except InputError as fault:
                out[key] = fault
    for key, (_, batch) in simulated.items():
        out[key] = _stacked([next(answers) for _ in range(len(batch))])
    return out


def _stacked(answers: list[Estimate | InputError]) -> Columns | InputError:
    parts = []
    for answer in answers:
        if isinstance(answer, InputError):
            return answer
        parts.append(_columns(answer, 1))
    return _joined(parts)


def _answer(
    rows: list[tuple[int, Run]],
    recipe: Recipe,
    batch: Layout,
    figures: Columns | InputError,
    answers: list[dict[str, Any]],
) -> None:
    if isinstance(figures, InputError):
        for place, _ in rows:
            answers[place]["skipped"] = str(figures)
        return
    legal, start = mask(recipe, batch)[0], 0
    for place, document in rows:
        end = start + len(document.layouts)
        best = start + best_layout(figures, legal, slice(start, end))
        answers[place] |= _row_answer(recipe, document, batch[best], figures, best, end - start)
        start = end


def joined(parts: list[Layout]) -> Layout:
    """One batch of several."""
    if len(parts) == 1:
        return parts[0]
    names = [f.name for f in fields(Layout) if isinstance(getattr(parts[0], f.name), np.ndarray)]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in names
    }
    return Layout(**columns)


def estimates(recipe: Recipe, batch: Layout) -> Columns:
    """Closed form in columns, or one simulated layout after another where the schedule has none."""
    if set(np.unique(batch.schedule).tolist()) <= set(CLOSED):
        return _columns(estimate(recipe, batch), len(batch))
    return _joined([_columns(estimate(recipe, batch[i], exact=True), 1) for i in range(len(batch))])


def _joined(parts: list[Columns]) -> Columns:
    names = [f.name for f in fields(Columns)]
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Columns(**columns)


def _columns(estimated: Estimate, count: int) -> Columns:
    columns: dict[str, np.ndarray] = {}
    for f in fields(Columns):
        of_memory = f.name in ("allocated_bytes", "reserved_bytes", "device_bytes")
        value = getattr(estimated.memory if of_memory else estimated, f.name)
        columns[f.name] = np.broadcast_to(np.asarray(value, dtype=float), (count,))
    return Columns(**columns)


def best_layout(figures: Columns, legal: np.ndarray, rows: slice) -> int:
    """The fastest legal layout that fits; where none does the one most likely to, where none is
    legal as if all were.
    """
    time, oom, allowed = figures.step_s[rows], figures.oom_probability[rows], legal[rows]
    if len(time) == 1:
        return 0
    allowed = allowed if allowed.any() else np.ones_like(allowed)
    fits = allowed & (oom < MAX_OOM_PROBABILITY)
    if fits.any():
        return int(np.argmin(np.where(fits, time, np.inf)))
    return int(np.lexsort((time, oom, ~allowed))[0])


def _row_answer(
    recipe: Recipe, document: Run, layout: Layout, figures: Columns, at: int, choices: int
) -> dict[str, Any]:
    assumed = list(document.assumed)
    for knob in document.open:
        words = described(knob, layout)
        assumed.append(f"{knob} {words}: not stated, the best of {choices} layouts")
    out: dict[str, Any] = {"assumed": "; ".join(assumed), "layout": knobs(layout)}
    out["hfu_flops"] = _hfu_flops(recipe, layout, figures, at)
    for name in _OUT:
        figure = getattr(figures, name.replace("_gib", "_bytes"))[at]
        out[f"predicted_{name}"] = float(figure / GIB if name.endswith("_gib") else figure)
    if document.of_last and layout.pp > 1:
        last = last_memory(recipe, layout)
        for kind in ("allocated", "reserved", "device"):
            out[f"predicted_{kind}_gib"] = float(getattr(last, f"{kind}_bytes")) / GIB
    return out


def knobs(layout: Layout) -> str:
    """A layout in one line."""
    recompute = described("recompute", layout)
    degrees = " ".join(
        f"{name} {getattr(layout, name)}"
        for name in ("tp", "pp", "dp", "cp", "v", "mbs", "m", "zero", "sp")
    )
    return f"{degrees} {SCHEDULES[layout.schedule]} recompute {recompute}"


def _hfu_flops(recipe: Recipe, layout: Layout, figures: Columns, at: int) -> float:
    """FLOPs of a step that count full attention and the forward of recomputed layers, not of the
    head [narayanan2021 eq. 3].
    """
    full = float(figures.model_flops_full_attention[at])
    head = 6.0 * recipe.tokens * recipe.model.hidden_size * recipe.model.vocab_size
    return full + (full - head) / 3 if layout.recompute == 2 else full
