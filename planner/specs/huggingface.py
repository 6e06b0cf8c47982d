"""Models from a Hugging Face config.json: planner/specs/families.py says how each architecture's is
read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveFloat

from planner.errors import InputError
from planner.specs.architectures import TextModel, architecture
from planner.specs.config_layers import Fields, layered, repeating
from planner.specs.documents import build
from planner.specs.family import Family
from planner.specs.mixers import Count, Width
from planner.specs.model import ModelSpec
from planner.specs.vision import vision

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch": "gelu",
    "relu2": "squared_relu",
    "relu_2": "squared_relu",
    "relu": "relu",
    "swigluoai": "quick_gelu",
}
_WINDOWED = {"sliding_attention": "sliding", "chunked_attention": "chunked"}
_MORE = "the rest of the file is understood; write it as a model YAML"


class _Config(BaseModel):
    """The fields that are read. What does not change size or cost (rope_scaling,
    quantization_config, torch_dtype, ...) may be there.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    hidden_size: Width
    intermediate_size: Width
    num_hidden_layers: Width
    num_attention_heads: Width
    num_key_value_heads: Width | None = None
    head_dim: Width | None = None
    vocab_size: Width
    max_position_embeddings: Width
    hidden_act: str | None = None
    hidden_activation: str | None = None
    tie_word_embeddings: bool | None = None
    rope_theta: PositiveFloat | None = None
    rope_parameters: dict[str, Any] | None = None
    """Where Transformers 5 keeps rope_theta and partial_rotary_factor."""
    partial_rotary_factor: PositiveFloat | None = None
    no_rope_layers: tuple[int, ...] | None = None
    no_rope_layer_interval: Count | None = None
    sliding_window: Count | None = None
    attention_chunk_size: Count | None = None
    use_sliding_window: bool | None = None
    max_window_layers: Count | None = None
    full_every: Count | None = None
    layer_types: tuple[str, ...] | None = None
    q_lora_rank: Width | None = None
    kv_lora_rank: Width | None = None
    qk_nope_head_dim: Width | None = None
    qk_rope_head_dim: Width | None = None
    v_head_dim: Width | None = None
    index_n_heads: Width | None = None
    index_head_dim: Width | None = None
    index_topk: Width | None = None
    indexer_types: tuple[str, ...] | None = None
    num_experts: Count | None = None
    num_local_experts: Count | None = None
    num_experts_per_tok: Width | None = None
    moe_intermediate_size: Width | None = None
    n_shared_experts: Count | None = None
    shared_expert_intermediate_size: Count | None = None
    first_k_dense_replace: Count | None = None
    moe_every: Width | None = None
    mlp_only_layers: tuple[int, ...] | None = None
    moe_layers: tuple[int, ...] | None = None
    mlp_layer_types: tuple[str, ...] | None = None
    n_group: Count | None = None
    topk_group: Count | None = None
    topk_method: str | None = None
    routed_scaling_factor: PositiveFloat | None = None
    norm_topk_prob: bool | None = None
    moe_latent_size: Count | None = None
    num_nextn_predict_layers: Count | None = None
    num_mtp_modules: Count | None = None
    mtp_use_repeated_layer: bool | None = None
    hidden_size_per_layer_input: Count | None = None
    vocab_size_per_layer_input: Count | None = None
    altup_num_inputs: Count | None = None
    laurel_rank: Count | None = None
    value_head_dim: Width | None = None


def model_from_config(config: dict[str, Any], name: str, where: str) -> ModelSpec:
    """The model of a config.json; InputError for an architecture that is not understood and for
    missing or wrong fields.

    Of a multimodal model the text part and its vision tower, which estimates have in where the
    question states its images; the note says so.
    """
    text_model = architecture(config, where)
    family = text_model.family
    plain = _plain(family, text_model.text, where)
    _check(family, plain, where)
    read = _read(family, plain, where)
    experts, has_experts = _experts(read, family, where)
    window, sees_window = _window(read, where)
    tower = vision(config, where) if text_model.multimodal else None
    fields = {
        **family.fixed,
        "name": name,
        "hidden_size": read.hidden_size,
        "ffn_size": read.intermediate_size,
        "num_layers": read.num_hidden_layers,
        "num_heads": read.num_attention_heads,
        "vocab_size": read.vocab_size,
        "max_seq_length": read.max_position_embeddings,
        "tied_embeddings": bool(read.tie_word_embeddings),
        "source": where,
        **_attention(read, family, where),
        **_positions(read, family, where),
        **_streams(read),
        "moe": experts,
        "window": window,
        "mtp_layers": read.num_nextn_predict_layers or 0,
        "mtp_repeated": bool(read.mtp_use_repeated_layer),
        "vision": tower,
        "note": _note(read, text_model, tower),
    }
    fields.setdefault("activation", _activation(read, where))
    named = {**_named(family, plain), "head_dim": fields["head_dim"]}
    own = _own_layers(family, named, where)
    fields |= layered(fields, own, has_experts, sees_window, where)
    if family.mtp_layers and fields.get("kinds") and fields["mtp_layers"]:
        fields["mtp_pattern"] = " ".join(family.mtp_layers(named))
    for switch, more in family.switches.items():
        if plain.get(switch, family.defaults.get(switch)):
            fields.update(more)
    return build(ModelSpec, fields, where)


def _own_layers(family: Family, named: Fields, where: str) -> list[Fields]:
    """What is a layer's own, first to last, beside window and experts; none where that is nothing.
    Raises InputError.
    """
    if family.layers is None:
        return []
    try:
        own = family.layers(named)
    except (
        KeyError,
        TypeError,
        ZeroDivisionError,
        IndexError,
        ValueError,
        AttributeError,
    ) as fault:
        missing = f"{fault.args[0]} is missing" if isinstance(fault, KeyError) else "are not sizes"
        raise InputError(f"{where}: the fields of its mixers: {missing}") from None
    if len(own) != named["num_hidden_layers"]:
        raise InputError(
            f"{where}: num_hidden_layers must be the number of layers that the file lists, but got"
            f" {named['num_hidden_layers']} and {len(own)}"
        )
    return own


def _read(family: Family, config: dict[str, Any], where: str) -> _Config:
    """Checked fields; faults are named as the file names them."""
    try:
        return build(_Config, _named(family, config), where)
    except InputError as fault:
        message = re.sub(
            r"\b(\w+)(?= must | is missing)",
            lambda match: family.names.get(match[1], match[1]),
            str(fault),
        )
        raise InputError(message) from None


def _plain(family: Family, config: dict[str, Any], where: str) -> dict[str, Any]:
    """The file's fields with what its class adds, nested ones under their dotted path too."""
    nested = {
        f"{outer}.{key}": x
        for outer, held in config.items()
        if isinstance(held, dict)
        for key, x in held.items()
    }
    flat = {**config, **nested}
    try:
        return {**flat, **(family.prepare(flat) if family.prepare else {})}
    except (TypeError, ValueError, ZeroDivisionError):
        raise InputError(f"{where}: sizes must be whole numbers, but some are not") from None


def _named(family: Family, config: dict[str, Any]) -> dict[str, Any]:
    """By common names, with the defaults of the class."""
    own = {common: config[name] for common, name in family.names.items() if name in config}
    hidden = {common for common, name in family.names.items() if name != common}
    rest = {key: x for key, x in config.items() if key not in hidden}
    out = {**family.defaults, **rest, **own}
    if (
        family.ffn_times
        and not out.get("intermediate_size")
        and isinstance(out.get("hidden_size"), int)
    ):
        out["intermediate_size"] = family.ffn_times * out["hidden_size"]
    return out


def _check(family: Family, config: dict[str, Any], where: str) -> None:
    """Switches are true or false; what the family cannot vary has its value."""
    for key in family.switches:
        if config.get(key) is not None and not isinstance(config[key], bool):
            raise InputError(
                f"{where}: {key} must be true or false, but got {str(config[key])[:60]!r}"
            )
    for key, value in family.must.items():
        if config.get(key) is not None and config[key] != value:
            raise InputError(
                f"{where}: {key} must be {str(value).lower()}, but got {str(config[key])[:60]}: not"
                f" understood; {_MORE}"
            )


def _activation(read: _Config, where: str) -> str:
    activation = read.hidden_activation or read.hidden_act or "silu"
    if activation not in _ACTIVATIONS:
        raise InputError(
            f"{where}: hidden_act must be one of {', '.join(_ACTIVATIONS)}, but got"
            f" {activation[:60]!r}"
        )
    return _ACTIVATIONS[activation]


def _attention(read: _Config, family: Family, where: str) -> dict[str, Any]:
    """Heads, grouped or latent."""
    if read.kv_lora_rank and "kv_lora_rank" in family.defaults:
        return _latent(read)
    given = read.head_dim or family.defaults.get("head_dim")
    if given is None and read.hidden_size % read.num_attention_heads:
        raise InputError(
            f"{where}: hidden_size must be a multiple of num_attention_heads, but got"
            f" {read.hidden_size} and {read.num_attention_heads}; or give head_dim"
        )
    head_dim = given or read.hidden_size // read.num_attention_heads
    return {
        "num_kv_heads": read.num_key_value_heads or read.num_attention_heads,
        "head_dim": head_dim,
        "value_head_dim": read.value_head_dim if read.value_head_dim != head_dim else None,
    }


def _latent(read: _Config) -> dict[str, Any]:
    indexer = {
        "num_heads": read.index_n_heads,
        "head_dim": read.index_head_dim,
        "keys_per_query": read.index_topk,
    }
    mla = {
        "q_lora_rank": read.q_lora_rank,
        "kv_lora_rank": read.kv_lora_rank,
        "qk_nope_dim": read.qk_nope_head_dim,
        "qk_rope_dim": read.qk_rope_head_dim,
        "v_head_dim": read.v_head_dim,
        "indexer": indexer if read.index_n_heads else None,
    }
    width = (read.qk_nope_head_dim or 0) + (read.qk_rope_head_dim or 0)
    return {"mla": mla, "num_kv_heads": read.num_attention_heads, "head_dim": width}


def _positions(read: _Config, family: Family, where: str) -> dict[str, Any]:
    if family.fixed["position"] == "learned":
        return {"position_rows": read.max_position_embeddings + family.more_rows}
    if family.fixed["position"] != "rope":
        return {}
    out: dict[str, Any] = {"rope_theta": _rope(read, "rope_theta", where) or 10_000.0}
    share = _rope(read, "partial_rotary_factor", where)
    if share:
        out["rotary_share"] = share
    if read.no_rope_layers:
        flags = _each([not has for has in read.no_rope_layers], read, "no_rope_layers", where)
        rule = repeating(flags)
        return {**out, "no_rope_every": rule[1] if rule else 0}
    return (
        {**out, "no_rope_every": read.no_rope_layer_interval}
        if read.no_rope_layer_interval
        else out
    )


def _rope(read: _Config, key: str, where: str) -> float | None:
    """As rope_parameters states it (for the layers that see all), else as the file does at its top,
    as Transformers takes it.
    """
    nested = read.rope_parameters or {}
    nested = nested["full_attention"] if isinstance(nested.get("full_attention"), dict) else nested
    value = nested.get(key, getattr(read, key))
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise InputError(
            f"{where}: rope_parameters.{key} must be a number, but got {str(value)[:60]!r}"
        )
    return None if value is None else float(value)


def _each(entries: Sequence[bool], read: _Config, field: str, where: str) -> list[bool]:
    """One entry for each layer; more are left out, as Transformers does. Raises InputError."""
    layers = read.num_hidden_layers
    if len(entries) < layers:
        raise InputError(
            f"{where}: {field} must have an entry for each of {layers} layers, but has"
            f" {len(entries)}"
        )
    return list(entries[:layers])


def _window(read: _Config, where: str) -> tuple[Fields | None, list[bool]]:
    """The part of the sequence that some layers see, and which layers do."""
    kind = "chunked" if read.attention_chunk_size else "sliding"
    layers = read.num_hidden_layers
    if read.layer_types:
        named = {x: _WINDOWED[x] for x in read.layer_types if x in _WINDOWED}
        kind = next(iter(named.values()), kind)
        windowed = _each([x in named for x in read.layer_types], read, "layer_types", where)
    else:
        every, first = read.full_every or 0, read.max_window_layers or 0
        windowed = [i >= first and (every == 0 or (i + 1) % every != 0) for i in range(layers)]
    tokens = read.attention_chunk_size if kind == "chunked" else read.sliding_window
    none = not tokens or tokens >= read.max_position_embeddings or read.use_sliding_window is False
    if none or not any(windowed):
        return None, [False] * layers
    return {"tokens": tokens, "kind": kind}, windowed


def _experts(read: _Config, family: Family, where: str) -> tuple[Fields | None, list[bool]]:
    """The mixture of experts, and which layers have it."""
    nowhere = [False] * read.num_hidden_layers
    if family.experts is None:
        _dense(read, family, where)
        return None, nowhere
    if read.num_experts == 0:
        return None, nowhere
    missing = [
        key
        for key in ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
        if getattr(read, key) is None
    ]
    if missing:
        raise InputError(f"{where}: " + "; ".join(f"{key} is missing" for key in missing))
    moe = {
        **family.experts,
        **_routing(read, family.experts.get("router_score", "softmax")),
        "num_experts": read.num_experts,
        "experts_per_token": read.num_experts_per_tok,
        "expert_ffn_size": read.moe_intermediate_size,
        "latent_size": read.moe_latent_size or 0,
        "shared_ffn_size": (
            read.shared_expert_intermediate_size
            or (read.n_shared_experts or 0) * (read.moe_intermediate_size or 0)
        ),
    }
    return moe, _expert_layers(read, where)


def _streams(read: _Config) -> Fields:
    """Per-layer inputs, AltUp and Laurel of Gemma 3n and 4."""
    width = read.hidden_size_per_layer_input
    inputs = {"vocab_size": read.vocab_size_per_layer_input, "width": width} if width else None
    return {
        "per_layer_inputs": inputs,
        "altup_streams": read.altup_num_inputs or 0,
        "laurel_rank": read.laurel_rank or 0,
    }


def _dense(read: _Config, family: Family, where: str) -> None:
    """Refuses experts in the config of a dense class: Transformers would ignore them silently.
    Raises InputError.
    """
    if (read.num_experts or 0) > 1 or (read.num_local_experts or 0) > 1:
        raise InputError(
            f"{where}: a model of family {family.fixed['family']} must have no experts, but got "
            f"{read.num_experts or read.num_local_experts}; name the architecture that has them"
        )


def _routing(read: _Config, score: str) -> dict[str, Any]:
    """Score function of the router. Softmax over all experts, normalised over the chosen ones, is a
    softmax over the chosen ones.
    """
    limited = (read.n_group or 0) > 1 and read.topk_method != "greedy"
    return {
        "router_score": "softmax" if score == "softmax_first" and read.norm_topk_prob else score,
        "router_groups": read.n_group if limited else 0,
        "groups_per_token": (read.topk_group or 0) if limited else 0,
        "router_scale": read.routed_scaling_factor or 1.0,
    }


def _expert_layers(read: _Config, where: str) -> list[bool]:
    """Which layers have experts: the file lists them, or says how many first ones are dense and how
    often the others have them.
    """
    layers, every = range(read.num_hidden_layers), read.moe_every or 1
    if read.moe_layers is not None:
        return [i in read.moe_layers for i in layers]
    if read.mlp_layer_types:
        sparse = [kind == "sparse" for kind in read.mlp_layer_types]
        return _each(sparse, read, "mlp_layer_types", where)
    first, dense = read.first_k_dense_replace or 0, read.mlp_only_layers or ()
    return [i >= first and (i + 1) % every == 0 and i not in dense for i in layers]


def _note(read: _Config, text_model: TextModel, tower: Fields | None) -> str:
    """What of the released model is left out."""
    notes = []
    if text_model.multimodal:
        with_tower = ", and its vision tower where images_per_sample is stated"
        notes += [f"the text part of {text_model.multimodal}{with_tower if tower else ' alone'}"]
    notes += (
        [f"without the {read.num_mtp_modules} multi-token-prediction modules that the file names"]
        if read.num_mtp_modules
        else []
    )
    notes += [text_model.guess] if text_model.guess else []
    return f"model: {', '.join(notes)}" if notes else ""
