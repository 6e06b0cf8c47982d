"""The answer of `compare` as CSV: a row a question, the words of the JSON flat."""

from __future__ import annotations

import csv
import io

from planner.advice.comparison import Comparison
from planner.report.json.compare import row_document

COLUMNS = (
    "name",
    "cluster",
    "gpus",
    "seq_length",
    "precision",
    "stack",
    "framework_version",
    "global_batch_size",
    "tp",
    "pp",
    "dp",
    "cp",
    "ep",
    "v",
    "mbs",
    "m",
    "zero",
    "schedule",
    "recompute",
    "step_s",
    "tokens_per_s_per_gpu",
    "model_tflops_per_gpu",
    "mfu",
    "memory_gib",
    "oom_probability",
    "limits",
    "scaling_efficiency",
    "days_per_trillion_tokens",
    "cost_per_trillion_tokens",
    "energy_mwh_per_trillion_tokens",
    "goodput_share",
    "fault",
)


def table(answer: Comparison) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in map(row_document, answer.rows):
        goodput = row["goodput"] or {}
        writer.writerow(
            {
                **row,
                **(row["layout"] or {}),
                **(row["estimate"] or {}),
                "goodput_share": goodput.get("goodput_share"),
            }
        )
    return text.getvalue()
