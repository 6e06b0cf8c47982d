"""Columns of a file of measured runs, and what a cell of each may hold."""

from __future__ import annotations

COUNTS = (
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "ffn",
    "vocab",
    "experts",
    "topk",
    "gpus",
    "gpus_per_node",
    "tp",
    "pp",
    "vpp",
    "dp",
    "cp",
    "ep",
    "etp",
    "mbs",
    "gbs_sequences",
    "seq",
)
"""Whole numbers of at least 1."""
SWITCHES = ("tied_embed", "gated_mlp", "sp", "oom")
"""0 or 1."""
FIGURES = (
    "params_b",
    "node_net_gbytes_per_s",
    "zero",
    "step_time_s",
    "tokens_per_s_per_gpu",
    "model_tflops_per_gpu",
    "mfu",
    "hfu",
    "peak_mem_gib",
)
"""Numbers of at least 0."""
TEXTS = (
    "source",
    "source_ref",
    "model",
    "hardware",
    "interconnect",
    "precision",
    "attention",
    "recompute",
    "recompute_modules",
    "schedule",
    "peak_mem_kind",
    "stack",
    "flop_convention",
    "notes",
    "question",
)
NUMBERS = (*COUNTS, *SWITCHES, *FIGURES)
COLUMNS = (*TEXTS, *NUMBERS)
REQUIRED = ("model", "hardware", "gpus", "tp", "pp", "seq", "gbs_sequences")
"""Without these no row of the file could be predicted; every other column may be missing: not
stated.
"""
