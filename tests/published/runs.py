"""Rows of measured runs that the tests share."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from planner.accuracy.columns import COLUMNS
from planner.accuracy.validate import PUBLISHED

ROW: dict[str, Any] = {
    "source": "mine",
    "model": "gpt-test",
    "layers": 24,
    "hidden": 2048,
    "heads": 16,
    "kv_heads": 16,
    "ffn": 8192,
    "vocab": 51200,
    "tied_embed": 1,
    "gated_mlp": 0,
    "hardware": "a100-80g-sxm",
    "gpus": 8,
    "gpus_per_node": 8,
    "tp": 2,
    "sp": 0,
    "pp": 2,
    "vpp": 1,
    "dp": 2,
    "cp": 1,
    "zero": 0,
    "mbs": 2,
    "gbs_sequences": 32,
    "seq": 1024,
    "precision": "fp16",
    "attention": "unfused",
    "recompute": "full",
    "schedule": "1f1b",
    "step_time_s": 1.0,
    "stack": "megatron-2021",
}
"""A run that states everything."""


def row(**changes: Any) -> dict[str, Any]:
    """Cells of one run by name; None where a cell is empty."""
    return dict.fromkeys(COLUMNS) | ROW | changes


def write(path: Path, *rows: dict[str, Any]) -> Path:
    """A CSV file of the rows, with the columns of the first."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def published(source: str, line: int) -> dict[str, Any]:
    """The row on this line of a published file, read by other means than the product's."""
    with (PUBLISHED / f"{source}.csv").open(encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))[line - 2]
    return {name: _cell(name, cells.get(name, "")) for name in COLUMNS}


def _cell(name: str, text: str) -> Any:
    if text == "":
        return None
    try:
        return float(text) if name not in ("model", "notes", "source_ref") else text
    except ValueError:
        return text
