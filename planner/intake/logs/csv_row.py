"""A log as a row of measured runs, in the columns that `validate` reads."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from planner.intake.logs.read_log import Log
from planner.intake.reading import Reading
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
"""Column and the Reading's name of what a run states."""


def row(
    log: Log, *, model: str = "", hardware: str = "", gpus: int | None = None
) -> dict[str, Any]:
    """The run and its measured figures; a column that nothing tells is left out. `hardware` is a
    cluster's name, as no log states it.
    """
    stated = _stated(log.reading) if log.reading else {}
    peak = log.reserved_bytes or log.allocated_bytes
    measured = {
        "step_time_s": log.step_s,
        "tokens_per_s_per_gpu": log.tokens_per_s_per_gpu if log.step_s is None else None,
        "model_tflops_per_gpu": (
            log.model_tflops_per_gpu
            if log.step_s is None and log.tokens_per_s_per_gpu is None
            else None
        ),
        "gbs_sequences": log.global_batch_size,
        "peak_mem_gib": round(peak / GIB, 3) if peak else None,
        "peak_mem_kind": ("reserved" if log.reserved_bytes else "allocated") if peak else None,
        "oom": int(bool(log.ooms)) or None,
    }
    name = Path(log.file).name
    named = stated.pop("model", None)
    head = {
        "source": "log",
        "source_ref": name,
        "model": model or named or name.rsplit(".", 1)[0],
        "hardware": hardware,
    }
    if gpus:
        stated["gpus"] = gpus
    found = {**head, **stated, **measured}
    return {column: value for column, value in found.items() if value is not None and value != ""}


def text(rows: list[dict[str, Any]]) -> str:
    """Rows as CSV, the columns of all of them."""
    columns = list(dict.fromkeys(column for one in rows for column in one))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _stated(reading: Reading) -> dict[str, Any]:
    plain = {name: value.value for name, value in reading.values.items()}
    found = {column: plain[name] for column, name in ARGUMENTS.items() if _count(plain.get(name))}
    stages = plain.get("virtual_pipeline_model_parallel_size") or plain.get(
        "num_virtual_stages_per_pipeline_rank"
    )
    return {
        **found,
        "vpp": stages if _count(stages) else None,
        "kv_heads": _groups(plain),
        "sp": _switch(plain, "sequence_parallel"),
        "vocab": plain.get("padded_vocab_size") or plain.get("vocab_size"),
        "gated_mlp": _switch(plain, "swiglu"),
        "tied_embed": (
            None
            if "untie_embeddings_and_output_weights" not in plain
            else int(not plain["untie_embeddings_and_output_weights"])
        ),
        "zero": _zero(plain),
        "precision": _precision(plain),
        "recompute": _recompute(plain),
        "model": plain.get("model"),
        "recompute_modules": (
            " ".join(map(str, plain["recompute_modules"])) if _selective(plain) else None
        ),
    }


def _groups(plain: dict[str, Any]) -> int | None:
    grouped = plain.get("group_query_attention") and _count(plain.get("num_query_groups"))
    groups: int | None = (
        plain.get("num_query_groups") if grouped else plain.get("num_attention_heads")
    )
    return groups if _count(groups) else None


def _switch(plain: dict[str, Any], name: str) -> int | None:
    return int(bool(plain[name])) if name in plain else None


def _zero(plain: dict[str, Any]) -> int | None:
    stage = plain.get("deepspeed.zero_optimization.stage", plain.get("zero_stage"))
    if isinstance(stage, int) and not isinstance(stage, bool):
        return stage
    return _switch(plain, "use_distributed_optimizer")


def _precision(plain: dict[str, Any]) -> str | None:
    eight = plain.get("fp8_format") or plain.get("fp8")
    if eight:
        recipe = str(plain.get("fp8_recipe") or "delayed")
        return (
            "mxfp8"
            if recipe == "mxfp8"
            else f"fp8-{recipe}"
            if recipe in ("delayed", "tensorwise", "blockwise")
            else "fp8"
        )
    switched = [
        name
        for name in ("bf16", "fp16")
        if plain.get(name) is True or plain.get(f"deepspeed.{name}.enabled") is True
    ]
    stated = any(
        name in plain
        for name in ("bf16", "fp16", "deepspeed.fp16.enabled", "deepspeed.bf16.enabled")
    )
    return switched[0] if switched else "fp32" if stated else None


def _recompute(plain: dict[str, Any]) -> str | None:
    kind = plain.get("recompute_granularity")
    if kind in ("full", "selective"):
        return str(kind)
    return (
        "full" if plain.get("checkpoint_activations") else "none" if "num_layers" in plain else None
    )


def _selective(plain: dict[str, Any]) -> bool:
    return plain.get("recompute_granularity") == "selective" and isinstance(
        plain.get("recompute_modules"), list
    )


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
