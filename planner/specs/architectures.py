"""Which architecture a Hugging Face config.json is of, and which part of the file is its text
model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.errors import InputError
from planner.specs.families import (
    FAMILIES,
    HYBRID_FIELDS,
    HYBRIDS,
    MULTIMODAL,
    OTHER_TYPES,
    TEXT_PARTS,
)

ATTENTION = {
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "indexed_attention",
    "deepseek_sparse_attention",
}
"""Layer types that are attention; all others make a hybrid."""


@dataclass(frozen=True, slots=True)
class TextModel:
    """The architecture of the text model, the fields that describe it, and the whole model's where
    it is multimodal.
    """

    name: str
    text: dict[str, Any]
    multimodal: str = ""


def architecture(config: dict[str, Any], where: str) -> TextModel:
    """InputError for one that is not understood, naming it and those that are, and for hybrids."""
    names = _names(config)
    text = next((config[part] for part in TEXT_PARTS if isinstance(config.get(part), dict)), None)
    multimodal = next((name for name in names if name in MULTIMODAL), "")
    own = text if multimodal and text is not None else config
    _refuse_hybrids(names, own, where)
    if multimodal:
        inner = {"tie_word_embeddings": config.get("tie_word_embeddings"), **own}
        inner = {
            key: x for key, x in inner.items() if key != "tie_word_embeddings" or x is not None
        }
        name = MULTIMODAL[multimodal] or _known(_names(own))
        if name:
            return TextModel(name, inner, multimodal)
        names = [f"{multimodal} around {', '.join(_names(own)) or 'an unnamed text part'}"]
    known = _known(names)
    if known:
        return TextModel(known, config)
    got = ", ".join(names)[:120] or "neither architectures nor model_type"
    way_out = (
        f"understood are {', '.join([*FAMILIES, *MULTIMODAL])}; other models can be written as a"
        " model YAML"
    )
    raise InputError(
        f"{where}: architectures must name one that is understood, but got {got}; {way_out}"
    )


def _names(config: dict[str, Any]) -> list[str]:
    """What the file names, else the architecture of its model_type."""
    named = config.get("architectures") or _by_type(config.get("model_type"))
    return (
        [str(x) for x in named]
        if isinstance(named, (list, tuple))
        else [str(named)]
        if named
        else []
    )


def _by_type(model_type: Any) -> str:
    text = str(model_type or "").removesuffix("_text")
    types = {name.removesuffix("ForCausalLM").lower(): name for name in FAMILIES} | OTHER_TYPES
    return types.get(text) or types.get(text.replace("_", "")) or text


def _known(names: list[str]) -> str:
    return next((name for name in names if name in FAMILIES), "")


def _refuse_hybrids(names: list[str], config: dict[str, Any], where: str) -> None:
    layers = config.get("layer_types") or ()
    other = (
        sorted({str(x) for x in layers} - ATTENTION) if isinstance(layers, (list, tuple)) else []
    )
    signs = [key for key in HYBRID_FIELDS if config.get(key)] + [
        f"layer_types with {', '.join(other)[:80]}"
    ] * bool(other)
    kinds = config.get("attn_type_list")
    signs += ["attn_type_list with 0"] if isinstance(kinds, (list, tuple)) and 0 in kinds else []
    named = [name for name in names if any(part in name for part in HYBRIDS)]
    if named or signs:
        got = ", ".join([*(named or names), *signs])[:160]
        raise InputError(
            f"{where}: architectures must be a transformer with attention in every layer, but got"
            f" {got}: hybrids with state-space or linear attention layers are not modelled"
        )
