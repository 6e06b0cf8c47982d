"""The bars that the cost model is held to: `python -m planner.accuracy.bars` prints each,
met or not; `--worst N` the worst rows.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import pandas as pd
import yaml

from planner.accuracy import measures
from planner.accuracy.validate import Validation, compare, runs, select
from planner.errors import InputError

FILE = Path(__file__).with_name("bars.yaml")
AT_LEAST = ("kendall_tau", "inside_range_share", "oom_right_share", "oom_fits_found_share")
"""Figures of which more is better."""


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    figure: str
    bound: float
    rows: int
    """How many rows must have the figure: a row that is skipped counts against the bar."""
    source: str | None = None
    where: str | None = None
    each: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    bar: Bar
    value: float
    rows: int
    parts: tuple[tuple[str, float], ...]

    @property
    def met(self) -> bool:
        if self.rows < self.bar.rows or math.isnan(self.value):
            return False
        if self.bar.figure in AT_LEAST:
            return self.value >= self.bar.bound
        return self.value <= self.bar.bound


def bars() -> list[Bar]:
    """The bars of bars.yaml."""
    return [Bar(**entry) for entry in yaml.safe_load(FILE.read_text(encoding="utf-8"))]


def check(bar: Bar, validation: Validation) -> Result:
    """Holds a bar against a validation of the published runs."""
    rows = select(validation.rows, bar.source, bar.where)
    if bar.figure == "seconds":
        return Result(bar, validation.seconds, len(rows), ())
    return Result(bar, figure(bar.figure, rows), counted(bar.figure, rows), _parts(bar, rows))


def counted(name: str, rows: pd.DataFrame) -> int:
    """Rows that have what the figure compares."""
    if name.startswith("oom_"):
        return int((rows["oom"].notna() & rows["predicted_oom_probability"].notna()).sum())
    if name == "allocated_median_abs_error":
        return int(
            (rows["measured_allocated_gib"].notna() & rows["predicted_allocated_gib"].notna()).sum()
        )
    return int(rows["memory_error" if name.startswith("memory") else "error"].notna().sum())


def figure(name: str, rows: pd.DataFrame) -> float:
    """A figure of measures.py, or one that only bars ask for."""
    if name.startswith("oom_"):
        return _oom_figure(name, rows)
    if name == "max_abs_error":
        return float(rows["error"].abs().max())
    if name == "allocated_median_abs_error":
        return float(
            (rows["predicted_allocated_gib"] / rows["measured_allocated_gib"] - 1).abs().median()
        )
    return measures.figures(rows)[name]


def _oom_figure(name: str, rows: pd.DataFrame) -> float:
    oom = measures.oom(rows)
    right, wrong = oom["true_oom"] + oom["true_fit"], oom["false_oom"] + oom["false_fit"]
    known = rows[rows["predicted_oom_probability"].notna()]
    fits = int((known["oom"] == 0).sum())
    shares = {
        "oom_brier": oom["brier"],
        "oom_right_share": right / (right + wrong) if right + wrong else math.nan,
        "oom_band": oom["in_band"] / (right + wrong + oom["in_band"]) if len(known) else math.nan,
        "oom_fits_found_share": oom["true_fit"] / fits if fits else math.nan,
    }
    return float(shares[name])


def _parts(bar: Bar, rows: pd.DataFrame) -> tuple[tuple[str, float], ...]:
    if not bar.each:
        return ()
    return tuple((_setting(part), figure(bar.figure, part)) for _, part in measures.settings(rows))


def _setting(part: pd.DataFrame) -> str:
    run = part.iloc[0]
    return (
        f"{run['model']}, {run['gpus']:.0f} GPUs, {run['seq']:.0f} x {run['gbs_sequences']:.0f}"
        f" tokens, {len(part)} layouts"
    )


def worst(rows: pd.DataFrame, count: int, by: str = "error") -> list[str]:
    """The rows that are furthest off, a line each: predicted, measured, layout."""
    unit = "s" if by == "error" else "GiB"
    columns = (
        ("predicted_step_s", "measured_step_s")
        if by == "error"
        else ("predicted_memory_gib", "measured_memory_gib")
    )
    order = (
        rows[rows[by].notna()]
        .assign(size=rows[by].abs())
        .sort_values("size", ascending=False)
        .head(count)
    )
    return [
        f"{row[by]:+8.1%} {row[columns[0]]:10.4g} {row[columns[1]]:10.4g} {unit}  {row['source']}:"
        f" {row['model']} {row['hardware']} seq {row['seq']:.0f} gbs {row['gbs_sequences']:.0f};"
        f" {row['layout']}; {row['attention']}"
        for row in order.to_dict("records")
    ]


def line(result: Result) -> str:
    bar = result.bar
    sign = ">=" if bar.figure in AT_LEAST else "<="
    value = f"{result.value:9.3f}" if not math.isnan(result.value) else "        -"
    return (
        f"{'met ' if result.met else 'MISS'} {value} {sign} {bar.bound:<6g}"
        f" {result.rows:5d}/{bar.rows:<5d} {bar.figure:26s} {bar.name}"
    )


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m planner.accuracy.bars", description=__doc__)
    parser.add_argument("--source", help="only the bars and rows of this source")
    parser.add_argument("--where", help="worst rows only among these (a pandas query)")
    parser.add_argument(
        "--worst", type=int, default=0, metavar="N", help="list the N rows that are furthest off"
    )
    parser.add_argument("--memory", action="store_true", help="worst in memory instead of time")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Prints the bars. 0: all met; 1: some are not; 2: wrong input."""
    from planner.accuracy.predict import predicted

    options, started = _arguments(words), perf_counter()
    try:
        validation = compare(predicted(select(runs(), options.source)), started)
        wanted = [bar for bar in bars() if options.source in (None, bar.source)]
        results = [check(bar, validation) for bar in wanted]
        rows = select(validation.rows, where=options.where)
        furthest = worst(rows, options.worst, "memory_error" if options.memory else "error")
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    for result in results:
        print(line(result))
        for name, value in result.parts:
            print(f"     {value:9.3f}   {name}")
    met = sum(result.met for result in results)
    print(
        f"{met} of {len(results)} bars met; {len(validation.rows)} rows in"
        f" {validation.seconds:.1f} s"
    )
    print("\n".join(furthest), end="\n" if furthest else "")
    return 0 if met == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
