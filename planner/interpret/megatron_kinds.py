"""Which layer is of which kind, as Megatron-LM's arguments say it: experts, windows, linear and
sparse attention, and the letters of hybrids.
"""

from __future__ import annotations

import re
from typing import Any

from planner.errors import InputError
from planner.interpret.layer_lists import few_enough, named_layers
from planner.interpret.numbers import whole_number
from planner.specs import hybrids, megatron_letters
from planner.specs.config_layers import layered, written
from planner.specs.megatron_letters import Pattern
from planner.specs.model import expanded

Fields = dict[str, Any]
CONVOLUTION = 4
"""Taps of the convolution of its Mamba layers, which no argument says."""
DELTA_NET = {
    "num_key_heads": ("linear_num_key_heads", 16),
    "num_value_heads": ("linear_num_value_heads", 32),
    "key_head_dim": ("linear_key_head_dim", 128),
    "value_head_dim": ("linear_value_head_dim", 128),
    "conv_kernel": ("linear_conv_kernel_dim", 4),
}
"""Arguments of gated delta nets with their defaults. Source: [megatron-core]
core/transformer/transformer_config.py.
"""
INDEXER = {
    "num_heads": "dsa_indexer_n_heads",
    "head_dim": "dsa_indexer_head_dim",
    "keys_per_query": "dsa_indexer_topk",
}
SHARED = "shared-index"
"""Kinds that take an earlier layer's choice begin so."""
RATIOS = ("hybrid_attention_ratio", "hybrid_mlp_ratio")


def pattern(arguments: Fields) -> Pattern | None:
    """The pattern of letters; None where the model is no hybrid.

    Raises InputError for one that Megatron-LM refuses.
    """
    text = arguments.get("hybrid_layer_pattern") or arguments.get("hybrid_override_pattern")
    if text:
        return _with_prediction(arguments, megatron_letters.parsed(str(text)))
    ratios = [float(arguments.get(name) or 0.0) for name in RATIOS]
    if not any(ratios) and not _says_hybrid(arguments):
        return None
    layers = whole_number(arguments, "num_layers", 0)
    return megatron_letters.parsed(megatron_letters.spread(layers, *ratios)) if layers else None


def _says_hybrid(arguments: Fields) -> bool:
    spec = str(arguments.get("spec") or "")
    return bool(arguments.get("is_hybrid_model")) or "mamba" in spec or "hybrid" in spec


def _with_prediction(arguments: Fields, found: Pattern) -> Pattern:
    """With what stands in an argument of its own until 0.17."""
    own = arguments.get("mtp_hybrid_override_pattern")
    depths = whole_number(arguments, "mtp_num_layers", 0)
    if found.depths or not own or depths < 1:
        return found
    return megatron_letters.parsed(str(found._replace(prediction=str(own), depths=depths)))


def implied(arguments: Fields) -> Fields:
    """What a pattern says of other arguments: the number of layers, of depths of prediction, and
    whether attention is latent.
    """
    try:
        found = pattern(arguments)
    except InputError:
        return {}
    if found is None:
        return {}
    out: Fields = {"num_layers": len(found.letters)}
    if found.depths:
        out["mtp_num_layers"] = found.depths
    if {megatron_letters.SPARSE, megatron_letters.LATENT} & set(found.letters + found.prediction):
        out["multi_latent_attention"] = True
    return out


def layers(arguments: Fields, fields: Fields, where: str) -> Fields:
    """What says which layer is which, of the fields of ModelSpec that have window and experts as
    every layer's.
    """
    found = pattern(arguments)
    if found is not None:
        return _by_letters(arguments, fields, found)
    count = fields["num_layers"]
    variant = str(arguments.get("experimental_attention_variant") or "")
    own = _variants(arguments, fields, variant) if variant else []
    moe, window = fields["moe"], fields["window"]
    has_experts = [True] * count if moe and _differs(arguments, "moe_layer_freq") else []
    if has_experts:
        has_experts = named_layers(arguments, "moe_layer_freq", count, lambda i, n: i % n == 0)
    sees_window = _windowed(arguments, count) if window else []
    if not own and not has_experts and not sees_window:
        return {}
    found_layers = layered(
        fields,
        own,
        has_experts or [bool(moe)] * count,
        sees_window or [bool(window)] * count,
        where,
    )
    return found_layers | _choosing(found_layers, fields)


def _choosing(found: Fields, fields: Fields) -> Fields:
    """Layers of prediction are counted anew, and the first chooses its keys itself."""
    last = "".join(expanded(found.get("pattern", ""))[-1:])
    own = last.replace(SHARED, "attention", 1)
    named = [kind["name"] for kind in found.get("kinds", ())]
    return {"mtp_pattern": own} if fields["mtp_layers"] and own != last and own in named else {}


def _differs(arguments: Fields, name: str) -> bool:
    """Whether an argument of every so many layers or a list names some layers alone."""
    return str(arguments.get(name)).strip() not in ("None", "", "0", "1")


def _windowed(arguments: Fields, count: int) -> list[bool]:
    """Which layers see a window; empty: all."""
    name = "window_attn_skip_freq"
    if str(arguments.get(name)).strip() in ("None", "", "0"):
        return []
    return named_layers(arguments, name, count, lambda index, every: (index + 1) % every != 0)


def window(arguments: Fields) -> Fields | None:
    """Attention in windows: --window-size 127,0 holds 128 tokens."""
    sizes = re.findall(r"-?\d+", str(arguments.get("window_size")))
    if not sizes or not 0 <= int(sizes[0]) < 2**40:
        return None
    return {"tokens": int(sizes[0]) + 1, "kind": "sliding"}


def _variants(arguments: Fields, fields: Fields, variant: str) -> list[Fields]:
    """For each layer of --experimental-attention-variant the fields that are its own."""
    count = fields["num_layers"]
    if variant == "gated_delta_net":
        is_linear = named_layers(
            arguments, "linear_attention_freq", count, lambda index, every: (index + 1) % every != 0
        )
        return hybrids.attention_or("delta", _delta_net(arguments), [not x for x in is_linear])
    if variant != "dsa":
        raise InputError(
            "experimental_attention_variant must be gated_delta_net or dsa, but got"
            f" {variant[:40]!r}: no kind of layer is known for it"
        )
    few_enough(count)
    mla = {**_latent(fields), "indexer": _indexer(arguments)}
    every = whole_number(arguments, "dsa_indexer_topk_freq", 1)
    first = max(whole_number(arguments, "dsa_indexer_skip_topk_offset", 0), 1)
    kinds: dict[bool, Fields] = {
        False: {"name": "attention", "mla": mla},
        True: {
            "name": SHARED,
            "mla": {**mla, "indexer": {**mla["indexer"], "shared": True}},
        },
    }
    return [kinds[max(layer - first, 0) % max(every, 1) != 0] for layer in range(1, count + 1)]


def _latent(fields: Fields) -> Fields:
    if not fields.get("mla"):
        raise InputError("an indexer (dsa) must stand on --multi-latent-attention, but got none")
    return dict(fields["mla"])


def _indexer(arguments: Fields) -> Fields:
    missing = [name for name in INDEXER.values() if not arguments.get(name)]
    if missing:
        raise InputError(f"sparse attention must state its indexer, but got no {missing[0]}")
    sizes = {field: whole_number(arguments, name) for field, name in INDEXER.items()}
    if not float(arguments.get("dsa_indexer_loss_coeff") or 0.0):
        return {**sizes, "loss": "none"}
    sparse = bool(arguments.get("dsa_indexer_use_sparse_loss"))
    return {**sizes, "loss": "chosen" if sparse else "all"}


def _delta_net(arguments: Fields) -> Fields:
    sizes = {
        field: whole_number(arguments, name, usual) for field, (name, usual) in DELTA_NET.items()
    }
    return {"kind": "gated_delta_net", **sizes}


def _mamba(arguments: Fields, hidden: int) -> Fields:
    """Heads over twice the hidden width where none are counted."""
    width = whole_number(arguments, "mamba_head_dim", 64)
    return {
        "kind": "mamba2",
        "num_heads": whole_number(arguments, "mamba_num_heads", 2 * hidden // max(width, 1)),
        "head_dim": width,
        "num_groups": whole_number(arguments, "mamba_num_groups", 8),
        "state_size": whole_number(arguments, "mamba_state_dim", 128),
        "conv_kernel": CONVOLUTION,
    }


def _by_letters(arguments: Fields, fields: Fields, found: Pattern) -> Fields:
    """A layer for each letter: a mixer, an MLP or experts, behind one norm."""
    letters = found.letters
    own = {letter: _of_letter(letter, arguments, fields) for letter in letters + found.prediction}
    each = [own[letter] for letter in letters]
    if fields["window"]:
        sees = _windowed(arguments, len(letters)) or [True] * len(letters)
        each = [_in_window(kind, fields) if x else kind for kind, x in zip(each, sees, strict=True)]
    predicted = [own[letter] for letter in found.prediction]
    every = {"num_layers": len(letters), "norms_per_layer": 1, "window": None}
    if not predicted and all(kind == each[0] for kind in each):
        return every | {name: value for name, value in each[0].items() if name != "name"}
    return {
        **every,
        "kinds": tuple({kind["name"]: kind for kind in each + predicted}.values()),
        "pattern": written([kind["name"] for kind in each]),
        "mtp_layers": found.depths,
        "mtp_pattern": written([kind["name"] for kind in predicted]),
    }


def _in_window(kind: Fields, fields: Fields) -> Fields:
    if "mixer" in kind:
        return kind
    return {**kind, "name": f"{kind['name']}-sliding", "window": fields["window"]}


def _of_letter(letter: str, arguments: Fields, fields: Fields) -> Fields:
    """The kind of a letter. Raises InputError where arguments of it are missing."""
    if letter == megatron_letters.EXPERTS and not fields["moe"]:
        raise InputError("a pattern with E must go with --num-experts, but got none")
    if letter == megatron_letters.MLP:
        return {"name": "mlp", "mixer": {"kind": "none"}, "moe": None}
    if letter == megatron_letters.EXPERTS:
        return {"name": "experts", "mixer": {"kind": "none"}}
    kind: Fields = {"name": "attention", "has_mlp": False}
    if letter == megatron_letters.MAMBA:
        kind |= {"name": "mamba", "mixer": _mamba(arguments, fields["hidden_size"])}
    elif letter == megatron_letters.DELTA:
        kind |= {"name": "delta", "mixer": _delta_net(arguments)}
    elif letter == megatron_letters.SPARSE:
        kind |= {"mla": {**_latent(fields), "indexer": _indexer(arguments)}}
    return kind
