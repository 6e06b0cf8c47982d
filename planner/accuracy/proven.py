"""A proof as a row of measured runs: memory of one rank; no time, since nothing communicated."""

from __future__ import annotations

import json
from typing import Any

from planner.intake.logs.proof import Proof
from planner.units import GIB

CELLS = {
    "model": "model",
    "hardware": "cluster",
    "gpus": "gpus",
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "cp": "cp",
    "ep": "ep",
    "etp": "etp",
    "vpp": "v",
    "zero": "zero",
    "mbs": "mbs",
    "seq": "seq_length",
    "gbs_sequences": "global_batch_size",
    "precision": "precision",
    "attention": "attention",
    "recompute": "recompute",
    "schedule": "schedule",
    "stack": "stack",
}
"""Columns that people select by, and the question's words; the question itself is what counts."""


def row(proof: Proof) -> dict[str, Any]:
    """The columns that `validate` reads."""
    cells = {column: proof.question.get(word) for column, word in CELLS.items()}
    return {
        **cells,
        "source_ref": f"proof {proof.digest}",
        "question": json.dumps(proof.question, sort_keys=True),
        "peak_mem_gib": None if proof.out_of_memory else proof.allocated_bytes / GIB,
        "peak_mem_kind": "allocated",
        "oom": int(bool(proof.out_of_memory)),
        "notes": f"stage {proof.stage} on one {proof.gpu}, without communication",
    }
