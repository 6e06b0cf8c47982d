"""Reading the reference rows of tests/data/schedules; see the README there for where they come
from.
"""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "schedules"

NAMES = {
    "1F1B": "1f1b",
    "GPipe": "gpipe",
    "LoopedBFS": "looped-bfs",
    "InterleavedZeroBubble": "interleaved-zb",
    "ZBVZeroBubble": "zbv",
    "DualPipe": "dualpipe",
    "DualPipeV": "dualpipev",
    "ZB-H1": "zb-h1",
    "ZB-H2": "zb-h2",
}


def our_name(schedule: str, implementation: str) -> str:
    if schedule == "Interleaved1F1B":
        return "interleaved-torch" if implementation == "torch" else "interleaved"
    return NAMES[schedule]


def reference_rows() -> list[dict[str, str]]:
    with gzip.open(DATA / "fixed_reference.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


def published_rows() -> list[dict[str, str]]:
    with (DATA / "fixed_published.csv").open() as file:
        return list(csv.DictReader(file))


def reference_orders() -> list[dict[str, Any]]:
    with gzip.open(DATA / "fixed_orders.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]
