"""A log as a row of measured runs, in the columns that `validate` reads."""

from __future__ import annotations

import csv
import io
from itertools import chain
from pathlib import Path
from typing import Any

from planner.intake.documents.scalars import is_int, is_positive_int
from planner.intake.logs.read_log import Log
from planner.units import GIB

ARGUMENTS = {
    "layers": "num_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "ffn": "ffn_hidden_size",
    "experts": "num_experts",
    "topk": "moe_router_topk",
    "gpus": "launch.gpus",
    "gpus_per_node": "launch.gpus_per_node",
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "mbs": "micro_batch_size",
    "seq": "seq_length",
}
"""Column and the Reading's name of a count that a run states."""
FP8 = {
    "mxfp8": "mxfp8",
    "delayed": "fp8-delayed",
    "tensorwise": "fp8-tensorwise",
    "blockwise": "fp8-blockwise",
}
"""Precision by the recipe of scaling; `fp8` for any other."""


def row(
    log: Log, *, model: str = "", hardware: str = "", gpus: int | None = None
) -> dict[str, Any]:
    """The run and its measured figures; a column that nothing tells is left out. `hardware` is a
    cluster's name, as no log states it.
    """
    values = {}
    if log.reading:
        values = {name: value.value for name, value in log.reading.values.items()}
    name = Path(log.file).name
    columns = {
        "source": "log",
        "source_ref": name,
        "model": model or values.get("model") or name.rsplit(".", 1)[0],
        "hardware": hardware,
    }
    columns |= _arguments(values)
    if gpus:
        columns["gpus"] = gpus
    columns |= _measured(log)
    return {column: value for column, value in columns.items() if value is not None and value != ""}


def text(rows: list[dict[str, Any]]) -> str:
    """Rows as CSV, the columns of all of them."""
    columns = list(dict.fromkeys(chain.from_iterable(rows)))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _measured(log: Log) -> dict[str, Any]:
    """What was measured; of the step's time and the throughputs the first that is known."""
    columns: dict[str, Any] = {}
    for column, figure in (
        ("step_time_s", log.step_s),
        ("tokens_per_s_per_gpu", log.tokens_per_s_per_gpu),
        ("model_tflops_per_gpu", log.model_tflops_per_gpu),
    ):
        if figure is not None:
            columns[column] = figure
            break
    columns["gbs_sequences"] = log.global_batch_size
    for kind, peak in (("reserved", log.reserved_bytes), ("allocated", log.allocated_bytes)):
        if peak:
            columns |= {"peak_mem_gib": round(peak / GIB, 3), "peak_mem_kind": kind}
            break
    if log.ooms:
        columns["oom"] = 1
    return columns


def _arguments(values: dict[str, Any]) -> dict[str, Any]:
    """The columns of a run's arguments, None where they do not tell."""
    columns = {}
    for column, name in ARGUMENTS.items():
        if is_positive_int(values.get(name)):
            columns[column] = values[name]
    stages = values.get("virtual_pipeline_model_parallel_size") or values.get(
        "num_virtual_stages_per_pipeline_rank"
    )
    columns |= {
        "vpp": stages if is_positive_int(stages) else None,
        "kv_heads": _groups(values),
        "sp": _switch(values, "sequence_parallel"),
        "vocab": values.get("padded_vocab_size") or values.get("vocab_size"),
        "gated_mlp": _switch(values, "swiglu"),
    }
    if "untie_embeddings_and_output_weights" in values:
        columns["tied_embed"] = int(not values["untie_embeddings_and_output_weights"])
    columns |= {
        "zero": _zero(values),
        "precision": _precision(values),
        "recompute": _recompute(values),
    }
    modules = values.get("recompute_modules")
    if values.get("recompute_granularity") == "selective" and isinstance(modules, list):
        columns["recompute_modules"] = " ".join(map(str, modules))
    return columns


def _groups(values: dict[str, Any]) -> int | None:
    groups = values.get("num_query_groups")
    if not values.get("group_query_attention") or not is_positive_int(groups):
        groups = values.get("num_attention_heads")
    return groups if is_positive_int(groups) else None


def _switch(values: dict[str, Any], name: str) -> int | None:
    return int(bool(values[name])) if name in values else None


def _zero(values: dict[str, Any]) -> int | None:
    stage = values.get("deepspeed.zero_optimization.stage", values.get("zero_stage"))
    return stage if is_int(stage) else _switch(values, "use_distributed_optimizer")


def _precision(values: dict[str, Any]) -> str | None:
    if values.get("fp8_format") or values.get("fp8"):
        return FP8.get(str(values.get("fp8_recipe") or "delayed"), "fp8")
    precision = None
    for kind in ("bf16", "fp16"):
        for name in (kind, f"deepspeed.{kind}.enabled"):
            if values.get(name) is True:
                return kind
            if name in values:
                precision = "fp32"
    return precision


def _recompute(values: dict[str, Any]) -> str | None:
    kind = values.get("recompute_granularity")
    if kind in ("full", "selective"):
        return str(kind)
    if values.get("checkpoint_activations"):
        return "full"
    return "none" if "num_layers" in values else None
