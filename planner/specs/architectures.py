"""Which architecture a Hugging Face config.json is of, and which part of the file is its text
model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from planner.errors import InputError
from planner.specs.families import (
    ANY_DECODER,
    FAMILIES,
    MULTIMODAL,
    NOT_READ,
    OTHER_NAMES,
    OTHER_TYPES,
    TEXT_PARTS,
)
from planner.specs.family import Family

_LAYERS = {
    "full_attention",
    "attention",
    "sliding_attention",
    "chunked_attention",
    "indexed_attention",
    "deepseek_sparse_attention",
}
"""Layer types that a decoder of attention alone may have."""
_OTHER_MIXERS = re.compile(
    r"mamba|ssm|conv|linear_(?!bias)|kda|rwkv|lru|attn_type_list|layers_block_type|hybrid"
    r"|delta|retention|gla_|block_type"
)
_OTHER_PARTS = re.compile(
    r"^index|_index|^hc_|altup|laurel|per_layer|encoder|cross_attention|adapter|latent|^cla_"
    r"|compress|hash|mem_blocks|mod_|loop|zero_expert|attn_res_|embedding_size|swa_"
)
_HEADS = re.compile(
    r"(For(SequenceClassification|TokenClassification|QuestionAnswering|RewardModel)|Model)$"
)
_NEEDED = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "rms_norm_eps",
)
_GATED = ("silu", "swish")
"""What decoders of gated MLPs are activated with."""


@dataclass(frozen=True, slots=True)
class TextModel:
    """How the text model is read, the fields that describe it, and the whole model's architecture
    where it is multimodal.
    """

    family: Family
    text: dict[str, Any]
    multimodal: str = ""
    guess: str = ""
    """What we took for granted of an architecture that we do not know."""


def architecture(config: dict[str, Any], where: str) -> TextModel:
    """InputError for one that is not understood, naming it and those that are."""
    names = _names(config)
    text = next((config[part] for part in TEXT_PARTS if isinstance(config.get(part), dict)), None)
    multimodal = next((name for name in names if name in MULTIMODAL), "")
    if not multimodal and text is not None and not _known(names):
        multimodal = next((x for x in names if x.endswith("ForConditionalGeneration")), "")
    inner = text if multimodal and text is not None else config
    if multimodal:
        tied = config.get("tie_word_embeddings")
        inner = {**({} if tied is None else {"tie_word_embeddings": tied}), **inner}
        own = MULTIMODAL.get(multimodal) or (_known(_names(inner)) if text is not None else "")
        if own:
            return _checked(TextModel(FAMILIES[own], inner, multimodal), own, where)
        names = [f"{multimodal} around {', '.join(_names(inner)) or 'an unnamed text part'}"]
    known = _known(names)
    if known:
        return _checked(TextModel(FAMILIES[known], config), known, where)
    _refuse_known_others(names, where)
    if not multimodal or text is not None:
        guess = _guessed(names, inner)
        if guess:
            return TextModel(ANY_DECODER, inner, multimodal, guess)
    got = ", ".join(names)[:120] or "neither architectures nor model_type"
    others = _unusual(inner)
    reason = f" with {', '.join(others)[:120]}" if others else ""
    way_out = (
        f"understood are {', '.join([*FAMILIES, *MULTIMODAL])}, and plain decoders by their fields;"
        " other models can be written as a model YAML"
    )
    raise InputError(
        f"{where}: architectures must name one that is understood, but got {got}{reason}; {way_out}"
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
    """The first that we know; a reward model or a bare model is read as its language model."""
    for name in names:
        for form in (name, OTHER_NAMES.get(name, ""), _HEADS.sub("ForCausalLM", name)):
            if form in FAMILIES:
                return form
    return ""


def _checked(found: TextModel, name: str, where: str) -> TextModel:
    """Refuses layers that the class does not have: Transformers would not build them either.
    Raises InputError.
    """
    kinds = found.text.get("attn_type_list")
    others = _layer_types(found.text)
    if isinstance(kinds, (list, tuple)) and 0 in kinds:
        others.append("attn_type_list with 0")
    if others and found.family.layers is None:
        raise InputError(
            f"{where}: architectures must name one that has all layers of the file, but {name} has"
            f" none of {', '.join(others)[:120]}"
        )
    return found


def _refuse_known_others(names: list[str], where: str) -> None:
    for name in names:
        reason = NOT_READ.get(name) or NOT_READ.get(_HEADS.sub("ForCausalLM", name))
        if reason:
            raise InputError(
                f"{where}: architectures must name one that is understood, but {name} has {reason}:"
                " not modelled"
            )


def _unusual(config: dict[str, Any]) -> list[str]:
    """Signs in the fields that this is not a decoder of attention, MLPs and experts."""
    return _layer_types(config) + [
        key
        for key, value in config.items()
        if value not in (None, False, 0, [], {}, "")
        and (_OTHER_MIXERS.search(key) or _OTHER_PARTS.search(key))
        and not key.endswith(("_token_id", "_token_index", "_range", "_loss_coef", "_dropout"))
    ]


def _layer_types(config: dict[str, Any]) -> list[str]:
    """Layer types that are not attention."""
    layers = config.get("layer_types")
    listed = {str(x) for x in layers} if isinstance(layers, (list, tuple)) else set()
    other = sorted(listed - _LAYERS)
    return [f"layer_types of {', '.join(other)[:80]}"] if other else []


def _guessed(names: list[str], config: dict[str, Any]) -> str:
    """How we read an architecture that we do not know: as a plain decoder, where its fields say one
    and nothing else; empty where they do not.
    """
    named = [name for name in names if "CausalLM" in name or " around " in name]
    if not named or any(key not in config for key in _NEEDED) or _unusual(config):
        return ""
    if config.get("is_encoder_decoder") or config.get("hidden_act") not in _GATED:
        return ""
    if not any(str(key).startswith("rope_") for key in config):
        return ""
    return (
        f"{named[0][:80]} is not known: read by its fields as a plain decoder (gated MLP, RMS norms"
        " before attention and MLP, rotary positions)"
    )
