"""The model of a measured run: the preset of its name, what the row states, and the family's usual
values for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from planner.accuracy.notes import Facts, facts
from planner.accuracy.skipped import Skipped
from planner.errors import InputError
from planner.specs import library
from planner.specs.megatron_letters import by_letters
from planner.specs.model import ModelSpec

Row = Mapping[str, Any]
"""The cells of a run; None where a cell is empty."""

FAMILIES: dict[str, dict[str, Any]] = {
    "gpt": {
        "norm": "layernorm",
        "position": "learned",
        "activation": "gelu",
        "attention_bias": "qkvo",
        "mlp_bias": True,
        "gated_mlp": False,
        "tied_embeddings": True,
        "vocab_size": 51_200,
    },
    "mpt": {
        "norm": "layernorm_nobias",
        "position": "alibi",
        "activation": "gelu",
        "attention_bias": "none",
        "mlp_bias": False,
        "gated_mlp": False,
        "tied_embeddings": True,
        "vocab_size": 50_368,
    },
    "llama": {
        "norm": "rmsnorm",
        "position": "rope",
        "activation": "silu",
        "attention_bias": "none",
        "mlp_bias": False,
        "gated_mlp": True,
        "tied_embeddings": False,
        "vocab_size": 32_000,
    },
}
"""What a row may leave open. 51,200 rows: GPT-2's 50,257 as Megatron of 2021 pads them over 8
ranks.
"""
CELLS = {
    "layers": "num_layers",
    "hidden": "hidden_size",
    "heads": "num_heads",
    "kv_heads": "num_kv_heads",
    "ffn": "ffn_size",
    "vocab": "vocab_size",
    "tied_embed": "tied_embeddings",
    "gated_mlp": "gated_mlp",
}
BRIDGE = "Megatron-Bridge"
"""Its recipes of Nemotron 3 train two depths that share their layers. Source: [megatron-bridge]
recipes/nemotronh.
"""
VISION = re.compile(r"recipe=\w+_vl_")
"""Recipes of Bridge that train a vision tower in front of the text model."""
UNKNOWN_EXPERTS = "experts of a model that is no preset"
MIXTURES = re.compile(r"moe|mixtral|deepseek-?v|[-_ ]a\d+b\b|gpt[ -]oss|kimi|glm4\.5", re.I)


def facts_of(row: Row) -> Facts:
    """What the notes of a row say."""
    return facts(str(row["model"] or ""), str(row["notes"] or ""))


def shape(row: Row) -> tuple[ModelSpec, tuple[str, ...]]:
    """The model, and what was assumed of it.

    Errors: Skipped when the architecture is not modelled, or layers and hidden size are neither
    stated nor known by name.
    """
    noted = facts_of(row)
    name = str(row["model"] or "")
    _modelled(row, name, noted)
    filled = [(cell, field) for cell, field in CELLS.items() if row[cell] is not None]
    fields = tuple((field, _as(field, row[cell])) for cell, field in filled)
    model, assumed = _shape(name, fields, int(row["seq"]), str(row["stack"] or ""), noted.head_dim)
    if model.mtp_layers and _without_mtp(row, name):
        model = model.model_copy(update={"mtp_layers": 0})
    elif (
        by_letters(model)
        and model.mtp_layers
        and row["stack"] == "megatron"
        and BRIDGE in str(row["source_ref"])
    ):
        model = model.model_copy(update={"mtp_layers": 2, "mtp_repeated": True})
        assumed = (*assumed, "two depths of multi-token prediction, as Bridge's recipes have them")
    return model, assumed


def _without_mtp(row: Row, name: str) -> bool:
    """NeMo's pages say so; Automodel trains the Hub's code, which has none."""
    return "w/o mtp" in name.lower() or str(row["stack"] or "").startswith("torch")


@lru_cache(maxsize=4096)
def _shape(
    name: str, cells: tuple[tuple[str, int], ...], seq: int, stack: str, head_dim: int | None
) -> tuple[ModelSpec, tuple[str, ...]]:
    fields: dict[str, Any] = dict(cells)
    preset = _preset(_plain(name)) if name else None
    if preset is not None and preset.moe:
        fields.pop("ffn_size", None)  # sources mean the dense MLP or an expert
    if preset is not None and fields.get("hidden_size", preset.hidden_size) == preset.hidden_size:
        return _resized(preset, fields, seq, head_dim)
    if "num_layers" not in fields or "hidden_size" not in fields:
        raise Skipped("no layers and hidden size, and no preset of that name")
    return _built(name, fields, seq, stack, head_dim)


def _modelled(row: Row, name: str, noted: Facts) -> None:
    if noted.not_decoder:
        raise Skipped("not a decoder-only language model")
    preset = _preset(_plain(name))
    if noted.hybrid and preset is None:
        raise Skipped("a hybrid of layers, and no preset of that name")
    mixture = (row["experts"] or 1) > 1 or (row["ep"] or 1) > 1 or MIXTURES.search(name)
    if preset and preset.vision and VISION.search(str(row["notes"] or "")):
        raise Skipped("a vision tower in front, and no images stated")
    known = preset if mixture else None
    if mixture and not (known and known.moe):
        raise Skipped(UNKNOWN_EXPERTS)


def _plain(name: str) -> str:
    """The model's own name: `Llama3-70B SFT`, `LLAMA2-7B LoRA` and `LLAMA3_8B (BF16)` without what
    was done with it.
    """
    bare = re.sub(r"\(.*?\)|\b(sft|lora|pretrain\w*|finetun\w*)\b", "", name, flags=re.I).strip(
        " -_"
    )
    return re.sub(r"^deepseekv", "deepseek-v", bare, flags=re.I)


@lru_cache(maxsize=1024)
def _preset(name: str) -> ModelSpec | None:
    try:
        return library.model(name)
    except InputError:
        return None


def _as(field: str, value: float) -> int | bool:
    return bool(value) if field in ("tied_embeddings", "gated_mlp") else int(value)


def _head_dim(head_dim: int | None, hidden: int, heads: int) -> int:
    if head_dim:
        return head_dim
    if hidden % heads:
        raise Skipped("hidden size is no multiple of the heads")
    return hidden // heads


def _resized(
    preset: ModelSpec, fields: dict[str, Any], seq: int, head_dim: int | None
) -> tuple[ModelSpec, tuple[str, ...]]:
    """The preset with what the row says instead: trimmed layers, another vocabulary."""
    changed = {field: value for field, value in fields.items() if value != getattr(preset, field)}
    if "num_heads" in changed:
        changed["head_dim"] = _head_dim(head_dim, preset.hidden_size, changed["num_heads"])
        changed.setdefault("num_kv_heads", changed["num_heads"])
    if preset.position == "learned":
        changed["position_rows"] = max(seq, preset.position_rows)
    blank = [cell for cell, field in CELLS.items() if field not in fields]
    assumed = (f"{', '.join(blank)}: those of {preset.name}",) if blank else ()
    # NOTE: no source states it; the memory of SimuMax's two stages of DeepSeek-V3 is that of one
    # dense layer and three with experts.
    if preset.moe and changed.get("num_layers", preset.num_layers) < preset.num_layers:
        dense = min(preset.moe.first_dense_layers, 1)
        changed |= {"moe": preset.moe.model_dump() | {"first_dense_layers": dense}, "mtp_layers": 0}
        assumed = (
            *assumed,
            f"trimmed layers: {dense} dense, the others with experts, no multi-token prediction",
        )
    return _valid(preset.model_dump(exclude_unset=True) | {"parameters": None} | changed), assumed


def _built(
    name: str, row_fields: dict[str, Any], seq: int, stack: str, head_dim: int | None
) -> tuple[ModelSpec, tuple[str, ...]]:
    family = _family(name, row_fields, stack)
    heads = row_fields.get("num_heads") or max(row_fields["hidden_size"] // 128, 1)
    gated = row_fields.get("gated_mlp", FAMILIES[family]["gated_mlp"])
    usual = FAMILIES[family] | {
        "num_heads": heads,
        "num_kv_heads": heads,
        "ffn_size": _ffn(row_fields["hidden_size"], gated),
    }
    blank = {cell: usual[field] for cell, field in CELLS.items() if field not in row_fields}
    fields = usual | row_fields
    fields |= {"head_dim": _head_dim(head_dim, fields["hidden_size"], heads), "max_seq_length": seq}
    if fields["position"] == "learned":
        fields["position_rows"] = seq
    assumed = (
        (", ".join(f"{cell} {value:,}" for cell, value in blank.items()) + f": usual for {family}",)
        if blank
        else ()
    )
    return _valid(
        fields | {"name": name or "unnamed", "family": family, "source": "the row"}
    ), assumed


def _family(name: str, fields: dict[str, Any], stack: str) -> str:
    """By name; else by the MLP: gated ones came with Llama."""
    low = name.lower()
    if low.startswith("mpt"):
        return "mpt"
    if "gated_mlp" in fields:
        return "llama" if fields["gated_mlp"] else "gpt"
    if low.startswith(("gpt", "opt", "bloom", "megatron", "nemotron", "falcon", "pythia", "neox")):
        return "gpt"
    square = fields.get("ffn_size") == 4 * fields["hidden_size"]
    return "gpt" if square or re.match(r"megatron-20", stack) else "llama"


def _ffn(hidden: int, gated: bool) -> int:
    """4 h, or what holds as many parameters with three matrices, in whole 256ths as Llama has
    it.
    """
    return -(-8 * hidden // 3 // 256) * 256 if gated else 4 * hidden


def _valid(fields: dict[str, Any]) -> ModelSpec:
    try:
        return ModelSpec(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Skipped(
            f"no such model can be: {where or 'shape'}:"
            f" {first['msg'].removeprefix('Value error, ')[:120]}"
        ) from None
