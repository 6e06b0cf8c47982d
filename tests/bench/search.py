"""Speeds of planning: `python -m tests.bench.search` prints them (nothing is asserted; machines
differ).

Cold: the whole command in a fresh process, best and median of five. Columns: layouts a second given
a complete estimate, one core.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import numpy as np

from planner.enumerate import layouts
from planner.estimate import closed_form
from planner.rules.table import mask
from planner.search import CHUNK, search
from tests.documents import recipe

RUNS = 5
COLD = (("llama3-70b", 32, 0.8), ("llama3-405b", 16_384, 1.5))


def cold() -> None:
    for model, gpus, bar in COLD:
        command = [
            sys.executable,
            "-m",
            "planner",
            "recommend",
            "--model",
            model,
            "--gpus",
            str(gpus),
            "--cluster",
            "h100-sxm",
        ]
        seconds = []
        for _ in range(RUNS):
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds.append(time.perf_counter() - started)
        found = search(recipe(model, gpus))
        told = (
            f"best {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s (at most"
            f" {bar} s)"
        )
        print(
            f"cold recommend {model} on {gpus:,} GPUs: {told}; {found.enumerated:,} layouts"
            f" enumerated, {found.legal:,} legal"
        )


def columns() -> None:
    """All enumerated layouts, legal or not, many times over: what matters is the arithmetic."""
    asked = recipe("llama3-70b", 512)
    every = layouts(asked)
    rows = np.tile(np.arange(len(every)), -(-200_000 // len(every)))
    batch = every[rows]
    closed_form(asked, batch[slice(0, CHUNK)])
    started = time.perf_counter()
    for at in range(0, len(rows), CHUNK):
        closed_form(asked, batch[slice(at, at + CHUNK)])
    spent = time.perf_counter() - started
    bar = "at least 200,000, aim 1,000,000"
    print(
        f"estimate in columns: {len(rows) / spent:,.0f} layouts a second ({len(rows):,} in"
        f" {spent:.2f} s; {bar})"
    )
    started = time.perf_counter()
    mask(asked, batch)
    spent = time.perf_counter() - started
    print(f"rules: {len(rows) / spent:,.0f} layouts a second")


if __name__ == "__main__":
    cold()
    columns()
