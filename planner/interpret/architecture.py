"""The model of a file: named on the command line, described by arguments, in a config.json beside
it, or named as a preset.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from planner.errors import InputError
from planner.intake.reading import Reading, Unresolved, Value
from planner.interpret import megatron_model
from planner.interpret.numbers import whole_number
from planner.layout import Layout
from planner.specs import library
from planner.specs.documents import build
from planner.specs.model import ModelSpec
from planner.specs.names import own_name

OURS = ("num_layers", "hidden_size", "ffn_size", "num_heads", "num_kv_heads")
UNKNOWN = "unknown"
"""Name of a model of which too little is known."""


class Architecture(NamedTuple):
    """The model; None where too little is known to cost it."""

    spec: ModelSpec | None
    origin: Value | None
    open: tuple[Unresolved, ...] = ()
    says: str = ""


def architecture(plain: dict[str, Any], reading: Reading, option: str | None) -> Architecture:
    """The model, where enough is known of it. option: --model.

    Raises InputError only for a model that the option names and nobody knows.
    """
    if option:
        return Architecture(library.model(option), Value(option, "option", "--model"))
    if megatron_model.describes_model(plain):
        return _of_arguments(plain, reading)
    if all(plain.get(name) for name in OURS):
        return Architecture(
            _of_ours(plain, reading), Value("from-arguments", "flag", "the arguments")
        )
    config = plain.get("hf_config")
    faults = []
    if isinstance(config, dict):
        try:
            return Architecture(_of_config(config, plain, reading), reading.values.get("hf_config"))
        except InputError as fault:
            faults.append(" ".join(str(fault).split())[:200])
    name = str(plain.get("model") or "")
    known = _preset(name)
    if known:
        depth = plain.get("model.num_mtp_layers")
        if depth is not None:
            depths = {"mtp_layers": whole_number(plain, "model.num_mtp_layers", 0)}
            known = known.model_copy(update=depths)
        return Architecture(known, reading.values.get("model"))
    if name:
        faults.append(f"{name} is no preset")
    why = "; ".join(faults) or "the file names no model"
    missing = Unresolved("model", f"{why}; --model NAME supplies it", reading.file)
    return Architecture(None, None, (missing,))


def _of_arguments(plain: dict[str, Any], reading: Reading) -> Architecture:
    try:
        spec = megatron_model.model(plain, reading.file)
    except (InputError, ValueError, TypeError) as fault:
        why = " ".join(str(fault).split())[:200]
        return Architecture(None, None, (Unresolved("model", why, reading.file),))
    says = megatron_model.vocabulary(plain)[1]
    origin = Value(spec.name, "flag", "the arguments")
    if not says:
        return Architecture(spec, origin)
    named = _preset(str(plain.get("tokenizer_model") or plain.get("model") or ""))
    if named:
        spec = spec.model_copy(update={"vocab_size": named.vocab_size})
        says = f"vocab_size: {named.vocab_size:,}, of {named.name}"
    missing = Unresolved("vocab_size", f"{says}; --set vocab_size=N supplies it", reading.file)
    return Architecture(spec, origin, (missing,), says)


def _of_ours(plain: dict[str, Any], reading: Reading) -> ModelSpec | None:
    """The model of the training script that `emit` writes for DeepSpeed, whose flags are the words
    of a model document.
    """
    sizes = [name for name in (*OURS, "head_dim", "vocab_size") if plain.get(name)]
    length = plain.get("seq_length") or 8192
    words = {"activation": "silu", "norm": "rmsnorm", "position": "rope", "attention_bias": "none"}
    fields: dict[str, Any] = {
        "name": "from-arguments",
        "family": UNKNOWN,
        "source": reading.file,
        "max_seq_length": length,
    }
    for name in sizes:
        fields[name] = whole_number(plain, name)
    for name, usual in words.items():
        fields[name] = plain.get(name) or usual
    if fields["position"] == "learned":
        fields["position_rows"] = length
    for name in ("gated_mlp", "tied_embeddings", "mlp_bias", "qk_norm"):
        fields[name] = bool(plain.get(name))
    try:
        return build(ModelSpec, fields, reading.file)
    except InputError:
        return None


def _of_config(config: dict[str, Any], plain: dict[str, Any], reading: Reading) -> ModelSpec:
    """A config.json beside the file; one that leaves the longest sequence out has at least what the
    run uses.
    """
    from planner.specs.huggingface import model_from_config

    longest = plain.get("seq_length") or 8192
    where = reading.values["hf_config"].where or "config.json"
    return model_from_config({"max_position_embeddings": longest, **config}, "config", where)


def _preset(name: str) -> ModelSpec | None:
    """The preset of a name as people write it in paths and job names: the last part, without what
    converters add.
    """
    tail = own_name(name)
    short = tail.removesuffix("-mcore")
    for text in (tail, short, short.removesuffix("_mcore").removesuffix("-hf")):
        if not text or text.startswith(".") or text.endswith((".json", ".yaml", ".yml")):
            return None
        try:
            return library.model(text)
        except InputError:
            continue
    return None


def stand_in(plain: dict[str, Any], layout: Layout, seq_length: int) -> ModelSpec:
    """A model for the rules alone: what is stated as stated, and the rest such that it breaks none
    of them.
    """
    config = plain.get("hf_config") if isinstance(plain.get("hf_config"), dict) else {}
    assert isinstance(config, dict)
    split = math.lcm(layout.tp, layout.cp, 16)
    heads = _size(plain.get("num_attention_heads") or config.get("num_attention_heads")) or split
    groups = _size(plain.get("num_query_groups") or config.get("num_key_value_heads")) or heads
    if heads % groups:
        groups = heads
    width = _size(plain.get("kv_channels") or config.get("head_dim")) or 64 * split
    first, last = layout.first_layers, layout.last_layers
    middle = max(layout.pp - bool(first) - bool(last), 0)
    even = first + last + middle * layout.v * max(layout.recompute_layers, 1)
    layers = _size(plain.get("num_layers") or config.get("num_hidden_layers")) or even
    count = megatron_model.expert_count(plain) or _size(
        config.get("num_experts") or config.get("n_routed_experts")
    )
    if not count and layout.ep > 1:
        count = layout.ep * layout.etp
    moe = {
        "num_experts": count,
        "experts_per_token": 1,
        "expert_ffn_size": 256 * split * layout.etp,
    }
    fields = {
        "name": UNKNOWN,
        "family": UNKNOWN,
        "source": "too little is stated",
        "hidden_size": 64 * split,
        "ffn_size": 256 * split,
        "num_layers": layers,
        "num_heads": heads,
        "num_kv_heads": groups,
        "head_dim": width,
        "vocab_size": 128 * split,
        "max_seq_length": seq_length,
        "gated_mlp": True,
        "tied_embeddings": False,
        "norm": "rmsnorm",
        "position": "rope",
        "moe": moe if count > 1 else None,
    }
    return build(ModelSpec, fields, "what the file states of the model")


def _size(value: Any) -> int:
    """A size as stated; 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e8:
        return 0
    return int(value)
