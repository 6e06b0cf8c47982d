"""Hugging Face configs whose layers differ: for each layer, first to last, the fields of Kind that
are its own.
"""

from __future__ import annotations

from typing import Any

from planner.errors import InputError

Fields = dict[str, Any]


def attention_or(name: str, mixer: Fields, attends: list[bool]) -> list[Fields]:
    """Attention in some layers, one other mixer in the rest."""
    return [{"name": "attention"} if x else {"name": name, "mixer": mixer} for x in attends]


def _attends(config: Fields) -> list[bool]:
    """By layer_types, else every full_attention_interval-th layer."""
    layers = config["num_hidden_layers"]
    if config.get("layer_types"):
        return [x in ("attention", "full_attention") for x in config["layer_types"]]
    every = config.get("full_attention_interval") or 4
    return [(layer + 1) % every == 0 for layer in range(layers)]


def mamba2(config: Fields, beside_attention: bool = False) -> Fields:
    """In the names of Bamba, Granite 4 and Falcon-H1."""
    heads = config["mamba_n_heads"]
    inner = config.get("mamba_d_ssm") or config["mamba_expand"] * config["hidden_size"]
    head_dim = config.get("mamba_d_head")
    return {
        "kind": "mamba2",
        "num_heads": heads,
        "head_dim": head_dim if isinstance(head_dim, int) else inner // heads,
        "num_groups": config["mamba_n_groups"],
        "state_size": config["mamba_d_state"],
        "conv_kernel": config["mamba_d_conv"],
        "conv_bias": config["mamba_conv_bias"],
        "projection_bias": config["mamba_proj_bias"],
        "gated_norm": config.get("mamba_rms_norm", True),
        "chunk": config["mamba_chunk_size"],
        "beside_attention": beside_attention,
    }


def bamba(config: Fields) -> list[Fields]:
    """Attention where attn_layer_indices or layer_types say so."""
    if config.get("layer_types"):
        attends = _attends(config)
    else:
        indices = config.get("attn_layer_indices") or ()
        attends = [layer in indices for layer in range(config["num_hidden_layers"])]
    return attention_or("mamba", mamba2(config), attends)


def granite_hybrid(config: Fields) -> list[Fields]:
    """Mamba in every layer that layer_types does not name."""
    types = config.get("layer_types") or ["mamba"] * config["num_hidden_layers"]
    return attention_or(
        "mamba", mamba2(config), [x in ("attention", "full_attention") for x in types]
    )


def falcon_h1(config: Fields) -> list[Fields]:
    """Both in every layer."""
    mixer = mamba2(config, beside_attention=True)
    return [{"name": "both", "mixer": mixer}] * config["num_hidden_layers"]


def jamba(config: Fields) -> list[Fields]:
    """Attention and experts each every so many layers; the other layers are Mamba-1 and dense."""
    inner = config["mamba_expand"] * config["hidden_size"]
    rank = config["mamba_dt_rank"]
    mixer = {
        "kind": "mamba1",
        "inner_size": inner,
        "state_size": config["mamba_d_state"],
        "dt_rank": -(-config["hidden_size"] // 16) if rank == "auto" else rank,
        "conv_kernel": config["mamba_d_conv"],
        "conv_bias": config["mamba_conv_bias"],
        "projection_bias": config["mamba_proj_bias"],
        "inner_norms": True,
    }
    period, offset = config["attn_layer_period"], config["attn_layer_offset"]
    layers = range(config["num_hidden_layers"])
    return attention_or("mamba", mixer, [layer % period == offset for layer in layers])


def delta_nets(config: Fields) -> list[Fields]:
    """Gated delta nets but for every full_attention_interval-th layer."""
    return attention_or("delta", _delta_net(config), _attends(config))


def _delta_net(config: Fields) -> Fields:
    return {
        "kind": "gated_delta_net",
        "num_key_heads": config["linear_num_key_heads"],
        "num_value_heads": config["linear_num_value_heads"],
        "key_head_dim": config["linear_key_head_dim"],
        "value_head_dim": config["linear_value_head_dim"],
        "conv_kernel": config["linear_conv_kernel_dim"],
    }


def olmo_hybrid(config: Fields) -> list[Fields]:
    """Norms before a delta net, after attention, whose queries and keys have norms too."""
    attention = {"name": "attention", "norm_place": "after", "qk_norm": True}
    delta = {"name": "delta", "mixer": _delta_net(config)}
    return [attention if x else delta for x in _attends(config)]


def kimi_linear(config: Fields) -> list[Fields]:
    """KDA but where full_attn_layers, counted from 1, names latent attention."""
    linear = config.get("linear_attn_config") or {}
    layers = config["num_hidden_layers"]
    if config.get("layer_types"):
        attends = [x == "full_attention" for x in config["layer_types"]]
    elif linear:
        attends = [layer + 1 in linear["full_attn_layers"] for layer in range(layers)]
    else:
        attends = [layer > 0 and layer % 4 == 0 for layer in range(layers)]
    mixer = {
        "kind": "kda",
        "num_heads": linear.get("num_heads") or config["linear_num_heads"],
        "head_dim": linear.get("head_dim") or config["linear_head_dim"],
        "conv_kernel": linear.get("short_conv_kernel_size") or config["linear_conv_kernel_dim"],
        "full_rank_gates": bool(linear.get("use_full_rank_gate")),
    }
    return attention_or("kda", mixer, attends)


def bailing_hybrid(config: Fields) -> list[Fields]:
    """KDA with full-rank gates; latent attention ends each group of layers and the model."""
    layers, group = config["num_hidden_layers"], config["layer_group_size"]
    if config.get("layer_types"):
        attends = [x == "full_attention" for x in config["layer_types"]]
    else:
        attends = [
            (layer + 1) % group == 0 or layer >= layers // group * group for layer in range(layers)
        ]
    mixer = {
        "kind": "kda",
        "num_heads": config["linear_num_heads"],
        "head_dim": config["linear_head_dim"],
        "conv_kernel": config["linear_conv_kernel_dim"],
        "full_rank_gates": True,
    }
    gated = {"name": "attention", "mla": {**_latent(config), "head_gates": True}}
    return [gated if x else {"name": "kda", "mixer": mixer} for x in attends]


def lightning(config: Fields) -> list[Fields]:
    """By layer_types, or by attn_type_list with 0 for lightning attention."""
    layers = config["num_hidden_layers"]
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    mixer = {
        "kind": "lightning",
        "num_heads": config["num_attention_heads"],
        "head_dim": width,
        "chunk": config["block_size"],
    }
    if config.get("attn_type_list"):
        attends = [x == 1 for x in config["attn_type_list"]]
    elif config.get("layer_types"):
        attends = [x == "full_attention" for x in config["layer_types"]]
    else:
        attends = [layer % 2 == 0 for layer in range(layers)]
    return attention_or("lightning", mixer, attends)


def lfm2(config: Fields) -> list[Fields]:
    """Attention where full_attn_idxs or layer_types say so, else a short convolution."""
    layers = config["num_hidden_layers"]
    if config.get("layer_types"):
        attends = [x == "full_attention" for x in config["layer_types"]]
    else:
        named = config.get("full_attn_idxs")
        attends = [named is None or layer in named for layer in range(layers)]
    mixer = {
        "kind": "short_convolution",
        "conv_kernel": config["conv_L_cache"],
        "bias": config["conv_bias"],
    }
    return attention_or("convolution", mixer, attends)


_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_WORDS = {"linear_attention": "mamba", "full_attention": "attention", "sparse": "moe"}


def nemotron_names(config: Fields, letters: str, words: str) -> list[str]:
    """Sorts of layers by a pattern of letters or a list of words, whichever the file has."""
    if config.get(letters):
        text = str(config[letters])
        strange = sorted(set(text) - set(_LETTERS))
        if strange:
            raise InputError(
                f"{letters} must be of the letters {' '.join(_LETTERS)}, but got {strange[0]!r}"
            )
        return [_LETTERS[letter] for letter in text]
    return [_WORDS.get(x, x) for x in config.get(words) or ()]


def nemotron_h(config: Fields) -> list[Fields]:
    """A mixer or an MLP or experts, each a layer of its own with one norm."""
    named = nemotron_names(config, "hybrid_override_pattern", "layers_block_type")
    kinds: dict[str, Fields] = {
        "mamba": {
            "name": "mamba",
            "has_mlp": False,
            "mixer": {
                "kind": "mamba2",
                "num_heads": config["mamba_num_heads"],
                "head_dim": config["mamba_head_dim"],
                "num_groups": config["n_groups"],
                "state_size": config["ssm_state_size"],
                "conv_kernel": config["conv_kernel"],
                "conv_bias": config["use_conv_bias"],
                "projection_bias": config["use_bias"],
                "chunk": config["chunk_size"],
            },
        },
        "attention": {"name": "attention", "has_mlp": False},
        "mlp": {"name": "mlp", "mixer": {"kind": "none"}, "moe": None},
        "moe": {"name": "experts", "mixer": {"kind": "none"}},
    }
    strange = sorted(set(named) - set(kinds))
    if strange:
        raise InputError(
            f"layers_block_type must be of {', '.join(kinds)}, but got {str(strange[0])[:40]!r}"
        )
    return [kinds[name] for name in named]


def _own_kv(config: Fields) -> int:
    """Layers with keys and values of their own. Raises InputError where none is left."""
    layers, shared = config["num_hidden_layers"], config.get("num_kv_shared_layers") or 0
    if shared >= layers:
        raise InputError(
            f"num_kv_shared_layers must be below num_hidden_layers, but got {shared} and {layers}"
        )
    return int(layers - shared)


def gemma3n(config: Fields) -> list[Fields]:
    """The last layers read earlier keys and values; a width of the MLP for each layer."""
    layers = config["num_hidden_layers"]
    own = _own_kv(config)
    widths = config["intermediate_size"]
    each = [widths] * layers if isinstance(widths, int) else widths
    return [
        {"name": "attention", "ffn_size": each[layer]}
        if layer < own
        else {"name": "shared-kv", "ffn_size": each[layer], "shared_kv": True}
        for layer in range(layers)
    ]


def gemma4(config: Fields) -> list[Fields]:
    """Full layers have heads of their own; the last layers read earlier keys and values."""
    layers = config["num_hidden_layers"]
    types = config["layer_types"]
    own = _own_kv(config)
    doubled = bool(config.get("use_double_wide_mlp"))
    same_kv = bool(config.get("attention_k_eq_v"))
    kv_heads = config.get("num_global_key_value_heads") if same_kv else None
    full: Fields = {"name": "full", "head_dim": config.get("global_head_dim")}
    full |= {"num_kv_heads": kv_heads} if kv_heads else {}
    out = []
    for layer in range(layers):
        is_full = types[layer] == "full_attention"
        kind: Fields = dict(full) if is_full else {"name": "attention"}
        if layer >= own:
            kind |= {"name": f"{kind['name']}-shared-kv", "shared_kv": True}
            kind |= {"ffn_size": 2 * config["intermediate_size"]} if doubled else {}
        elif is_full and same_kv:
            kind["keys_are_values"] = True
        out.append(kind)
    return out


def block_sparse(config: Fields) -> list[Fields]:
    """Attention that chooses blocks of keys, where the file says so."""
    nested = config.get("sparse_attention_config") or {}
    sparse = {
        "num_heads": config.get("index_n_heads") or nested.get("sparse_num_index_heads"),
        "head_dim": config.get("index_head_dim") or nested.get("sparse_index_dim"),
        "block_size": config.get("index_block_size") or nested.get("sparse_block_size"),
        "blocks_per_query": config.get("index_topk_blocks") or nested.get("sparse_topk_blocks"),
        "local_blocks": config.get("index_local_blocks") or nested.get("sparse_local_block") or 0,
    }
    types = config.get("layer_types") or nested.get("sparse_attention_freq")
    types = types or ["full_attention"] * config["num_hidden_layers"]
    return [
        {"name": "sparse", "block_sparse": sparse}
        if kind in ("minimax_m3_sparse", 1)
        else {"name": "attention"}
        for kind in types
    ]


def _latent(config: Fields) -> Fields:
    return {
        "q_lora_rank": config.get("q_lora_rank"),
        "kv_lora_rank": config["kv_lora_rank"],
        "qk_nope_dim": config["qk_nope_head_dim"],
        "qk_rope_dim": config["qk_rope_head_dim"],
        "v_head_dim": config["v_head_dim"],
    }


def indexers(config: Fields) -> list[Fields]:
    """Latent attention, where some layers take an earlier layer's choice of keys."""
    mla = _latent(config)
    indexer = {
        "num_heads": config["index_n_heads"],
        "head_dim": config["index_head_dim"],
        "keys_per_query": config["index_topk"],
    }
    kinds = {
        "full": {"name": "attention", "mla": {**mla, "indexer": indexer}},
        "shared": {"name": "shared-index", "mla": {**mla, "indexer": {**indexer, "shared": True}}},
    }
    return [kinds[str(x)] for x in config["indexer_types"][: config["num_hidden_layers"]]]


def mimo_v2(config: Fields) -> list[Fields]:
    """Layers with a window have sinks and heads of their own: twice the key-value heads where the
    file does not say.
    """
    window: Fields = {"name": "attention", "attention_sinks": True}
    own = {
        "num_heads": config.get("swa_num_attention_heads"),
        "num_kv_heads": config.get("swa_num_key_value_heads"),
        "head_dim": config.get("swa_head_dim"),
        "value_head_dim": config.get("swa_v_head_dim"),
    }
    window |= {"num_kv_heads": 2 * config["num_key_value_heads"]}
    window |= {name: value for name, value in own.items() if value}
    return [
        window if x == "sliding_attention" else {"name": "attention"} for x in config["layer_types"]
    ]
