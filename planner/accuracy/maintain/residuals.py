"""Writes planner/specs/residuals.yaml: how far published runs lie from their predictions, so that
an estimate can carry a range.

    python -m planner.accuracy.maintain.residuals [--write]

Runs are grouped by what is near: stack and GPU, then stack, then GPU, then all; in each group by
regime, the predicted utilisation. A range holds 80% of a group's runs, sources weighing the same.
What is not the same stack on the same GPU is widened until it holds 80% of the runs of sources that
were left out in turn. Prints, for every source, the share of its runs inside the range found
without it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from planner.accuracy.predict import predicted
from planner.accuracy.rows import run
from planner.accuracy.skipped import Skipped
from planner.accuracy.validate import runs
from planner.specs import residuals as document

INSIDE = 0.8
MIN_RUNS = 15
"""Runs that a group must have to speak for itself."""
LEVELS = (("stack", "gpu"), ("stack",), ("gpu",), ())
MAX_WIDENING = 3.0
ASTRAY = math.log(2)
"""A run that takes twice its prediction, or half, speaks of its own software or cluster: it counts
only for the same stack and GPU.
"""
TUNED = "performance item"
"""What the notes of mbridge_cards say of runs that were made for speed; the others only check that
a model trains.
"""


@dataclass(frozen=True, slots=True)
class Range:
    """Measured over predicted time of the runs in one group."""

    stack: str
    gpu: str
    regime: int
    low: float
    high: float
    rows: int


def table() -> pd.DataFrame:
    """source, stack, gpu, regime and log(measured / predicted) of every run that is timed and
    predicted.
    """
    rows = predicted(runs())
    rows = rows[rows["predicted_step_s"].notna() & rows["measured_step_s"].notna()]
    rows = rows[(rows["source"] != "mbridge_cards") | rows["notes"].str.contains(TUNED, na=False)]
    records = []
    for record in rows.to_dict("records"):
        try:
            recipe = run(
                {str(name): None if cell != cell else cell for name, cell in record.items()}
            ).recipe
        except Skipped:
            continue
        busy = record["predicted_model_flops"] / record["predicted_step_s"] / recipe.gpus
        records.append(
            {
                "source": record["source"],
                "stack": recipe.software.name,
                "gpu": recipe.hardware.gpu.name,
                "regime": int(document.regime(recipe, busy)),
                "log": math.log(record["measured_step_s"] / record["predicted_step_s"]),
            }
        )
    return pd.DataFrame(records)


def quantiles(rows: pd.DataFrame) -> tuple[float, float]:
    """The bounds of the inner 80% of the logs, every source weighing the same."""
    ordered = rows.sort_values("log")
    weight = 1 / ordered.groupby("source")["log"].transform("size")
    below = (weight.cumsum() - weight / 2) / weight.sum()
    low, high = np.interp([(1 - INSIDE) / 2, (1 + INSIDE) / 2], below, ordered["log"])
    return float(min(low, 0.0)), float(max(high, 0.0))


def like(rows: pd.DataFrame, level: tuple[str, ...]) -> pd.DataFrame:
    """The runs that speak at a level: all for the same stack and GPU, else those that are not
    astray.
    """
    return rows if level == LEVELS[0] else rows[rows["log"].abs() <= ASTRAY]


def near(
    rows: pd.DataFrame, level: tuple[str, ...], key: tuple[str, ...], regime: int
) -> pd.DataFrame:
    """The runs of one group of a level."""
    same = rows["regime"] == regime
    for column, value in zip(level, key, strict=True):
        same &= rows[column] == value
    return rows[same]


def covered(rows: pd.DataFrame, level: tuple[str, ...], widen: float) -> dict[str, float]:
    """For every source the share of its runs inside the widened range that the other sources give
    at this level.
    """
    shares = {}
    for source in sorted(rows["source"].unique()):
        own, others = rows[rows["source"] == source], rows[rows["source"] != source]
        inside, known = 0, 0
        for (*key, regime), group in own.groupby([*level, "regime"]):
            base = near(like(others, level), level, tuple(key), regime)
            if len(base) < MIN_RUNS:
                continue
            low, high = quantiles(base)
            inside += int(((group["log"] >= low * widen) & (group["log"] <= high * widen)).sum())
            known += len(group)
        if known:
            shares[source] = inside / known
    return shares


def widening(rows: pd.DataFrame, level: tuple[str, ...]) -> float:
    """The smallest factor on the logs with which left-out sources have 80% of their runs inside, on
    average.
    """
    for widen in np.arange(1.0, MAX_WIDENING, 0.1):
        shares = covered(rows, level, float(widen))
        if not shares or sum(shares.values()) / len(shares) >= INSIDE:
            return float(widen)
    return MAX_WIDENING


def ranges(rows: pd.DataFrame) -> Iterator[Range]:
    """Every group that has enough runs, nearest first."""
    for level in LEVELS:
        widen = 1.1 if level == LEVELS[0] else widening(rows, level)
        for (*key, regime), group in like(rows, level).groupby([*level, "regime"]):
            if len(group) < MIN_RUNS:
                continue
            low, high = quantiles(group)
            named = {name: str(value) for name, value in zip(level, key, strict=True)}
            bounds = math.exp(low * widen), math.exp(high * widen)
            yield Range(
                named.get("stack", ""), named.get("gpu", ""), int(str(regime)), *bounds, len(group)
            )


def text(groups: list[Range]) -> str:
    """The document."""
    head = (
        "# Measured over predicted step time of published runs: the range that holds 80% of"
        " them.\n# Written by planner.accuracy.maintain.residuals. Nearest first: same stack and"
        " GPU, same stack, same GPU, any.\n# regime: predicted utilisation, see"
        " planner/specs/residuals.py.\nranges:\n"
    )
    return head + "".join(_line(group) for group in groups)


def _line(group: Range) -> str:
    named = f'stack: "{group.stack}", gpu: "{group.gpu}", regime: {group.regime}'
    return f"  - {{{named}, low: {group.low:.3f}, high: {group.high:.3f}, rows: {group.rows}}}\n"


def main(arguments: list[str], tell: Callable[[str], None] = print) -> None:
    rows = table()
    groups = list(ranges(rows))
    tell(text(groups))
    for level in LEVELS:
        widen = 1.1 if level == LEVELS[0] else widening(rows, level)
        shares = covered(rows, level, widen)
        inside = (
            ", ".join(f"{source} {share:.0%}" for source, share in shares.items())
            or "no source has another like it"
        )
        tell(
            f"same {' and '.join(level) or 'anything'}, widened {widen:.1f}: left-out runs inside:"
            f" {inside}"
        )
    if "--write" in arguments:
        Path(document.__file__).with_name("residuals.yaml").write_text(
            text(groups), encoding="utf-8"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
