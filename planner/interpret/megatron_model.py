"""The model that Megatron-LM's arguments describe."""

from __future__ import annotations

from typing import Any

from planner.errors import InputError
from planner.interpret import megatron_kinds
from planner.interpret.numbers import whole_number
from planner.specs.documents import build
from planner.specs.megatron import EXACT_NULL_VOCAB
from planner.specs.model import ModelSpec
from planner.specs.versions import version_of

TOKENIZERS = {
    "GPT2BPETokenizer": 50257,
    "BertWordPieceLowerCase": 30522,
    "BertWordPieceCase": 28996,
    "Llama2Tokenizer": 32000,
    "Llama3Tokenizer": 128256,
    "MistralTokenizer": 32000,
    "TikTokenizer": 131072,
    "SentencePieceTokenizer": 32000,
}
"""Entries of the tokenizer that usually goes with a type, where the file does not count them."""
NEEDED = ("num_layers", "hidden_size", "num_attention_heads")


def describes_model(arguments: dict[str, Any]) -> bool:
    """Whether the arguments describe a model; a pattern of letters counts its layers."""
    patterned = arguments.get("hybrid_layer_pattern") or arguments.get("hybrid_override_pattern")
    return bool(patterned or arguments.get("num_layers")) and all(
        arguments.get(name) for name in NEEDED if name != "num_layers"
    )


def ffn_size(arguments: dict[str, Any]) -> int:
    """Megatron's default: 4 h; with --swiglu two thirds of it, down to a multiple of 64."""
    hidden = int(arguments["hidden_size"])
    if arguments.get("ffn_hidden_size"):
        return int(arguments["ffn_hidden_size"])
    return int(4 * hidden * 2 / 3 / 64) * 64 if arguments.get("swiglu") else 4 * hidden


def vocabulary(arguments: dict[str, Any]) -> tuple[int, str]:
    """Entries before padding, and what was assumed about them ('' when stated)."""
    if arguments.get("vocab_size"):
        return int(arguments["vocab_size"]) + _added(arguments), ""
    kind = str(arguments.get("tokenizer_type") or "GPT2BPETokenizer")
    size = TOKENIZERS.get(kind, TOKENIZERS["GPT2BPETokenizer"])
    return (
        size,
        (
            f"vocab_size: {size:,}, of {kind if kind in TOKENIZERS else 'GPT-2'}, as the file does"
            " not count it"
        ),
    )


def _added(arguments: dict[str, Any]) -> int:
    """Entries that the tokenizer adds to those stated."""
    if arguments.get("tokenizer_type") != "NullTokenizer":
        return 0
    version = version_of("megatron", str(arguments.get("framework_version") or "main"))
    return int(version < EXACT_NULL_VOCAB)


def padded(entries: int, unit: int, tp: int) -> int:
    """Rows of the embedding as Megatron pads it: a multiple of make_vocab_size_divisible_by x
    tp.
    """
    step = max(unit * tp, 1)
    return -(-entries // step) * step


def model(arguments: dict[str, Any], where: str) -> ModelSpec:
    """The model of the arguments, defaults filled in. Rows of the embedding as stated; the cost
    model pads them as Megatron does.

    Raises InputError when sizes are missing or contradict one another.
    """
    arguments = arguments | megatron_kinds.implied(arguments)
    megatron_kinds.pattern(arguments)
    missing = [name for name in NEEDED if not arguments.get(name)]
    if missing:
        raise InputError(
            f"{where} must state the model, but not {', '.join(missing)}; add --model NAME or --set"
            f" {missing[0]}=N"
        )
    heads, hidden = int(arguments["num_attention_heads"]), int(arguments["hidden_size"])
    gated = bool(
        arguments.get("swiglu")
        or arguments.get("gated_linear_unit")
        or arguments.get("quick_geglu")
    )
    rows = int(arguments.get("max_position_embeddings") or arguments.get("seq_length") or 2048)
    fields = {
        "name": "from-arguments",
        "family": "gpt",
        "source": where,
        "hidden_size": hidden,
        "ffn_size": ffn_size(arguments),
        "num_layers": int(arguments["num_layers"]),
        "num_heads": heads,
        "vocab_size": vocabulary(arguments)[0],
        "max_seq_length": rows,
        "gated_mlp": gated,
        "activation": _activation(arguments),
        "tied_embeddings": not arguments.get("untie_embeddings_and_output_weights"),
        "norm": (
            "rmsnorm"
            if str(arguments.get("normalization", "")).lower() == "rmsnorm"
            else "layernorm"
        ),
        "attention_bias": _attention_bias(arguments),
        "mlp_bias": bool(arguments.get("add_bias_linear", True)),
        "qk_norm": bool(arguments.get("qk_layernorm")),
        "mtp_layers": int(arguments.get("mtp_num_layers") or 0),
        "mtp_repeated": bool(arguments.get("mtp_use_repeated_layer")),
        "attention_sinks": str(arguments.get("softmax_type") or "vanilla") == "learnable",
        "attention_gate": bool(arguments.get("attention_output_gate")),
        "window": megatron_kinds.window(arguments),
        **_positions(arguments, rows),
        **_attention(arguments, hidden, heads),
        "moe": _experts(arguments),
    }
    return build(ModelSpec, fields | megatron_kinds.layers(arguments, fields, where), where)


def _activation(arguments: dict[str, Any]) -> str:
    if arguments.get("swiglu"):
        return "silu"
    if arguments.get("quick_geglu"):
        return "quick_gelu"
    return "squared_relu" if arguments.get("squared_relu") else "gelu"


def _attention_bias(arguments: dict[str, Any]) -> str:
    if arguments.get("add_bias_linear", True):
        return "qkvo"
    return "qkv" if arguments.get("add_qkv_bias") else "none"


def _positions(arguments: dict[str, Any], rows: int) -> dict[str, Any]:
    kind = str(arguments.get("position_embedding_type") or "")
    if arguments.get("use_rotary_position_embeddings") or kind in (
        "rope",
        "rotary",
        "yarn",
        "mrope",
    ):
        share = float(arguments.get("rotary_percent") or 1.0)
        return {"position": "rope", "rotary_share": min(share, 1.0) if share > 0 else 1.0}
    if kind in ("none", "relative"):
        return {"position": "none"}
    return (
        {"position": "alibi"} if kind == "alibi" else {"position": "learned", "position_rows": rows}
    )


def _attention(arguments: dict[str, Any], hidden: int, heads: int) -> dict[str, Any]:
    """Heads: plain, grouped (both flags are needed) or latent."""
    if arguments.get("multi_latent_attention"):
        nope, rope = (
            int(arguments.get("qk_head_dim") or 128),
            int(arguments.get("qk_pos_emb_head_dim") or 64),
        )
        mla = {
            "q_lora_rank": arguments.get("q_lora_rank"),
            "kv_lora_rank": int(arguments.get("kv_lora_rank") or 32),
            "qk_nope_dim": nope,
            "qk_rope_dim": rope,
            "v_head_dim": int(arguments.get("v_head_dim") or 128),
        }
        return {"mla": mla, "num_kv_heads": heads, "head_dim": nope + rope}
    grouped = arguments.get("group_query_attention") or arguments.get("num_key_value_heads")
    groups = (
        int(arguments.get("num_query_groups") or arguments.get("num_key_value_heads") or 1)
        if grouped
        else heads
    )
    return {
        "num_kv_heads": groups,
        "head_dim": int(arguments.get("kv_channels") or max(hidden // heads, 1)),
    }


def expert_count(arguments: dict[str, Any]) -> int:
    """Experts of a layer: Megatron's number, Megatron-DeepSpeed's list of which the first counts; 0
    of a dense model.
    """
    experts = arguments.get("num_experts")
    if isinstance(experts, list) and experts:
        experts = experts[0]
    count = whole_number({"num_experts": experts}, "num_experts", 0)
    return count if count > 1 else 0


def _experts(arguments: dict[str, Any]) -> dict[str, Any] | None:
    count = expert_count(arguments)
    if not count:
        return None
    score = str(arguments.get("moe_router_score_function") or "softmax")
    groups = int(arguments.get("moe_router_num_groups") or 0)
    biased = bool(arguments.get("add_bias_linear", True))
    return {
        "num_experts": count,
        "experts_per_token": int(arguments.get("moe_router_topk") or arguments.get("topk") or 2),
        "expert_ffn_size": int(arguments.get("moe_ffn_hidden_size") or ffn_size(arguments)),
        "shared_ffn_size": int(arguments.get("moe_shared_expert_intermediate_size") or 0),
        "router_score": (
            "sigmoid"
            if score == "sigmoid"
            else "softmax_first"
            if arguments.get("moe_router_pre_softmax")
            else "softmax"
        ),
        "router_bias": (
            "correction"
            if arguments.get("moe_router_enable_expert_bias")
            else "linear"
            if biased
            else "none"
        ),
        "expert_bias": biased,
        "router_scale": float(arguments.get("moe_router_topk_scaling_factor") or 1.0),
        "latent_size": int(arguments.get("moe_latent_size") or 0),
        "shared_gate": bool(arguments.get("moe_shared_expert_gate")),
        "router_groups": groups,
        "groups_per_token": int(arguments.get("moe_router_group_topk") or 1) if groups else 0,
    }
