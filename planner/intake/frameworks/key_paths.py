"""Where a configuration of each kind states a value: the key of a Reading's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.intake.documents.tree import Document, Path
from planner.intake.frameworks import accelerate, huggingface, nemo, neox, torchtitan

BRIDGE = {
    "micro_batch_size": "train",
    "global_batch_size": "train",
    "seq_length": "dataset",
    "use_distributed_optimizer": "ddp",
    "overlap_grad_reduce": "ddp",
    "overlap_param_gather": "ddp",
    "use_precision_aware_optimizer": "optimizer",
    "optimizer_cpu_offload": "optimizer",
    "tp_comm_overlap": "comm_overlap",
    "use_megatron_fsdp": "dist",
}
"""Sections of Megatron-Bridge other than model. Source: [megatron-bridge] training/config.py."""
NEMO = {
    "launch.gpus_per_node": ("trainer", "devices"),
    "launch.nodes": ("trainer", "num_nodes"),
    "seq_length": ("model", "encoder_seq_length"),
}


def place(kind: str, name: str, document: Document) -> Path | None:
    """The path of keys at which a file of this kind states the Reading's `name`; None where it has
    none for it.
    """
    data = document.data if isinstance(document.data, dict) else {}
    if name.startswith("deepspeed.") and kind != "neox":
        if "distributed_type" in data:
            return _accelerated(name, data)
        return tuple(name.split(".")[1:])
    if kind == "neox":
        return _neox(name, data)
    if kind == "nemo" and name in NEMO:
        return NEMO[name]
    if kind == "torchtitan":
        if name == "recompute_granularity":
            return ("activation_checkpoint", "mode")
        if name.split(".")[0] in torchtitan.TABLES and "." in name:
            return tuple(name.split("."))
        return _key(torchtitan.RENAMED, name)
    if kind == "primus":
        return _primus(name, data)
    if kind == "huggingface":
        return _trainer(name, data)
    if "." in name:
        return None
    if kind == "nemo":
        return ("model", _reversed(nemo.SHORT).get(name, name))
    if kind == "bridge":
        return (BRIDGE.get(name, "model"), name)
    if kind == "megatron-yaml" and isinstance(data.get("MODEL_ARGS"), dict):
        return ("MODEL_ARGS", "--" + name.replace("_", "-"))
    return (name,) if kind in ("megatron-yaml", "swift") else None


def _neox(name: str, data: Mapping[str, Any]) -> Path | None:
    if name.startswith("deepspeed."):
        return tuple(name.split(".")[1:])
    key = _reversed(neox.RENAMED).get(name, name)
    if "." in key or name in (
        "normalization",
        "position_embedding_type",
        "swiglu",
        "ffn_hidden_size",
    ):
        return None
    if any("-" in stated_key for stated_key in data):
        key = key.replace("_", "-")
    return (key,)


def _primus(name: str, data: Mapping[str, Any]) -> Path | None:
    modules = data.get("modules")
    if "." in name or not isinstance(modules, dict):
        return None
    for module in modules:
        if str(module).endswith("trainer"):
            return ("modules", module, "overrides", name)
    return None


def _trainer(name: str, data: Mapping[str, Any]) -> Path | None:
    if "distributed_type" in data:
        return _key(accelerate.RENAMED, name)
    if name == "seq_length":
        lengths = [key for key in huggingface.LENGTHS if key in data]
        return tuple(lengths[:1]) or None
    if not name.startswith("hf."):
        return None
    key = name.removeprefix("hf.")
    if "base_model" in data:
        key = _reversed(huggingface.AXOLOTL).get(key, key)
    return (key,)


def _accelerated(name: str, data: Mapping[str, Any]) -> Path | None:
    section = data.get("deepspeed_config")
    if isinstance(section, dict) and "deepspeed_config_file" in section:
        return None
    return _key(accelerate.RENAMED, name)


def _key(names: Mapping[str, str], name: str) -> Path | None:
    key = _reversed(names).get(name)
    return tuple(key.split(".")) if key else None


def _reversed(names: Mapping[str, str]) -> dict[str, str]:
    """By the Reading's name; of several keys the first, which is today's."""
    return {name: key for key, name in reversed(list(names.items()))}
