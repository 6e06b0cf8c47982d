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

from planner.estimate import closed_form
from planner.rules.table import mask
from planner.search import search
from planner.search.branch import CHUNK
from tests.combinations import all_combinations
from tests.documents import recipe

RUNS = 5
COLD = (
    ("llama3-70b", 32, 0.8),
    ("llama3-405b", 16_384, 1.5),
    ("qwen3-235b-a22b", 256, 2.5),
    ("deepseek-v3", 1024, 2.5),
    ("nemotron-3-super", 256, 2.5),
)


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
        times = (
            f"best {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s (at most"
            f" {bar} s)"
        )
        print(
            f"cold recommend {model} on {gpus:,} GPUs: {times}; {found.counts.covered:,} covered,"
            f" {found.counts.computed:,} computed, proved: {found.proved}"
        )


def columns() -> None:
    """Combinations of the menus, legal or not, many times over: what matters is the arithmetic."""
    asked = recipe("llama3-8b", 8, global_batch_size=16)
    every = all_combinations(asked)
    rows = np.tile(np.arange(len(every)), -(-200_000 // len(every)))[:200_000]
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
