"""GPT-NeoX: YAML (or JSON) with dashes or underscores, several files as one, DeepSpeed's own keys
among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from planner.intake.documents.scalars import is_positive_int
from planner.intake.documents.tree import Leaf, Path, last, last_value, location
from planner.intake.frameworks import deepspeed_keys
from planner.intake.frameworks.neox_keys import KEYS
from planner.intake.frameworks.vocabulary import Named, make_reading, named
from planner.intake.reading import Reading

SECTIONS = ("pipe_parallel_size", "model_parallel_size", "no_weight_tying", "pos_emb", "rotary_pct")
"""Names that no other framework has."""
RENAMED = {
    "pipe_parallel_size": "pipeline_model_parallel_size",
    "model_parallel_size": "tensor_model_parallel_size",
    "num_kv_heads": "num_query_groups",
    "no_weight_tying": "untie_embeddings_and_output_weights",
    "rotary_pct": "rotary_percent",
    "rotary_emb_base": "rotary_base",
    "use_qk_layernorm": "qk_layernorm",
    "moe_num_experts": "num_experts",
    "moe_top_k": "moe_router_topk",
    "moe_expert_parallel_size": "expert_model_parallel_size",
    "head_size": "kv_channels",
    "sliding_window_width": "window_size",
    "global_num_gpus": "launch.gpus",
    "num_nodes": "launch.nodes",
    "num_gpus": "launch.gpus_per_node",
    "padded_vocab_size": "vocab_size",
}
ALSO = {
    "checkpoint_num_layers": "recompute_num_layers",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "train_batch_size": "global_batch_size",
}
"""Keys that are kept under their own name and state a value of Megatron's too."""
WORDS = {
    "norm": (
        "normalization",
        {
            "layernorm": "LayerNorm",
            "non_parametric_layernorm": "LayerNorm",
            "rmsnorm": "RMSNorm",
            "te_layernorm": "LayerNorm",
            "te_rmsnorm": "RMSNorm",
            "scalenorm": "RMSNorm",
        },
    ),
    "pos_emb": (
        "position_embedding_type",
        {
            "rotary": "rope",
            "learned": "learned_absolute",
            "alibi": "alibi",
            "none": "none",
            "sinusoidal": "none",
            "rpe": "relative",
        },
    ),
}
TOKENIZER_20B = 50277
"""Entries of 20B_tokenizer.json."""
GATED = ("swiglu", "geglu", "reglu", "bilinear", "glu")


def reading(leaves: Sequence[Leaf], file: str, notes: Sequence[str] = ()) -> Reading:
    """All files' leaves as one configuration; a key stated twice counts as GPT-NeoX takes it: the
    last.

    Source: [gpt-neox] megatron/neox_arguments (names), megatron/model/transformer.py (the width of
            a gated MLP).
    """
    flat = [
        replace(
            leaf, path=tuple(part.replace("-", "_") for part in leaf.path), where=location(leaf)
        )
        for leaf in leaves
    ]
    files: dict[Path, set[str]] = {}
    for leaf in flat:
        files.setdefault(leaf.path, set()).add(leaf.file)
    twice = sorted({path[0] for path in files if len(files[path]) > 1})
    notes = list(notes)
    if twice:
        notes.append(
            f"{', '.join(twice[:6])} stated in several files: GPT-NeoX refuses that; the last"
            " counts here"
        )
    names = [
        *chain.from_iterable(map(_names, flat)),
        *_width(flat),
        *_activation(flat),
        *_pipeline(flat),
        *_biases(flat),
        *_vocabulary(flat),
    ]
    return make_reading(file, "neox", "deepspeed", names, notes=notes)


def _names(leaf: Leaf) -> list[Named]:
    key = leaf.path[0]
    if key in WORDS:
        name, words = WORDS[key]
        return [Named(name, leaf, words.get(str(leaf.value), leaf.value))]
    if key == "attention_config":
        flash = "flash" in str(leaf.value)[:200]
        return [Named("attention_config", leaf, leaf.value), Named("use_flash_attn", leaf, flash)]
    if key in ("precision", "fp16", "bf16", "bfloat16"):
        return _precision(leaf)
    name = RENAMED.get(key, ".".join(leaf.path))
    if key in deepspeed_keys.TOP:
        out = [named(f"deepspeed.{name}", leaf)]
    else:
        out = [named(name, leaf, key in KEYS)]
    if key == "num_kv_heads":
        out.append(Named("group_query_attention", leaf, leaf.value is not None))
    if key == "checkpoint_activations":
        out.append(Named("recompute_granularity", leaf, "full" if leaf.value else None))
    if leaf.path == (key,) and key in ALSO:
        out.append(named(ALSO[key], leaf))
    if leaf.path == ("optimizer", "type"):
        out.append(Named("optimizer", leaf, str(leaf.value).lower()))
    return out


def _precision(leaf: Leaf) -> list[Named]:
    """`precision: bfloat16`, the fp16 section (whose `type` was bfloat16's first switch), or a bare
    bf16 section.
    """
    key = leaf.path[0]
    if key == "precision":
        value = str(leaf.value)
        return [Named("bf16", leaf, value == "bfloat16"), Named("fp16", leaf, value == "fp16")]
    out = [named("deepspeed." + ".".join(leaf.path), leaf)]
    on = leaf.path[1:] in ((), ("enabled",), ("fp16",), ("bf16",))
    if leaf.path[1:] == ("type",):
        wide = str(leaf.value) == "bfloat16"
        out += [Named("bf16", leaf, wide), Named("fp16", leaf, not wide)]
    elif on and isinstance(leaf.value, bool):
        out.append(named("fp16" if key == "fp16" else "bf16", leaf))
    return out


def _activation(leaves: Sequence[Leaf]) -> list[Named]:
    leaf = last(leaves, "activation")
    return [Named("swiglu", leaf, True)] if leaf is not None and str(leaf.value) in GATED else []


def _width(leaves: Sequence[Leaf]) -> list[Named]:
    """The MLP's width. A gated one takes two thirds of what is stated and splits it over its two
    branches, up to a multiple.
    """
    intermediate, hidden = last(leaves, "intermediate_size"), last(leaves, "hidden_size")
    factor = last_value(leaves, "expansion_factor")
    if intermediate is not None and _count(intermediate.value):
        width, leaf = intermediate.value, intermediate
    elif hidden is not None and _count(hidden.value):
        width, leaf = 4 * hidden.value, hidden
        if _number(factor):
            width = int(factor * hidden.value)
    else:
        return []
    if str(last_value(leaves, "activation")) not in GATED:
        if intermediate is None and last(leaves, "expansion_factor") is None:
            return []
        return [Named("ffn_hidden_size", leaf, width)]
    multiple = last_value(leaves, "mlp_multiple_of")
    step = multiple if _count(multiple) else 1
    half = int(width * 2 / 3) // 2
    return [Named("ffn_hidden_size", leaf, -(-half // step) * step)]


def _pipeline(leaves: Sequence[Leaf]) -> list[Named]:
    """0 pipeline stages: no PipelineModule at all."""
    leaf = last(leaves, "pipe_parallel_size")
    if leaf is None or leaf.value != 0:
        return []
    return [
        Named("pipeline_model_parallel_size", leaf, 1),
        Named("no_pipeline_parallel", leaf, True),
    ]


def _biases(leaves: Sequence[Leaf]) -> list[Named]:
    """Megatron has one switch for the biases of all linears and one for those of query, key and
    value.
    """
    mlp, attention = last(leaves, "use_bias_in_mlp"), last(leaves, "use_bias_in_attn_linear")
    if mlp is None or mlp.value is not False:
        return []
    names = [Named("add_bias_linear", mlp, False)]
    if attention is None or attention.value is not False:
        names.append(Named("add_qkv_bias", attention or mlp, True))
    return names


def _vocabulary(leaves: Sequence[Leaf]) -> list[Named]:
    """The tokenizer of GPT-NeoX-20B is known by its file."""
    leaf = last(leaves, "vocab_file")
    if (
        leaf is None
        or not str(leaf.value).endswith("20B_tokenizer.json")
        or last(leaves, "padded_vocab_size")
    ):
        return []
    return [Named("vocab_size", replace(leaf, origin="default"), TOKENIZER_20B)]


def _count(value: Any) -> bool:
    return is_positive_int(value) and value < 10**9


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6
