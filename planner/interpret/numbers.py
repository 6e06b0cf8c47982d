"""Counts and figures as files state them: whole numbers and numbers, or one message."""

from __future__ import annotations

import math
from typing import Any

from planner.errors import InputError
from planner.specs.words import MAX_COUNT

COUNTS = (
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "num_key_value_heads",
    "kv_channels",
    "vocab_size",
    "padded_vocab_size",
    "make_vocab_size_divisible_by",
    "max_position_embeddings",
    "seq_length",
    "encoder_seq_length",
    "max_length",
    "mtp_num_layers",
    "moe_router_topk",
    "topk",
    "moe_ffn_hidden_size",
    "moe_shared_expert_intermediate_size",
    "moe_router_num_groups",
    "moe_router_group_topk",
    "moe_latent_size",
    "mamba_num_heads",
    "mamba_head_dim",
    "mamba_num_groups",
    "mamba_state_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "dsa_indexer_n_heads",
    "dsa_indexer_head_dim",
    "dsa_indexer_topk",
    "dsa_indexer_topk_freq",
    "dsa_indexer_skip_topk_offset",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_head_dim",
    "qk_pos_emb_head_dim",
    "v_head_dim",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "micro_batch_size",
    "global_batch_size",
    "num_layers_per_virtual_pipeline_stage",
    "num_virtual_stages_per_pipeline_rank",
    "virtual_pipeline_model_parallel_size",
    "recompute_num_layers",
    "zero_stage",
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    "microbatch_group_size_per_virtual_pipeline_stage",
    "launch.gpus",
    "launch.nodes",
    "launch.gpus_per_node",
    "deepspeed.train_batch_size",
    "deepspeed.train_micro_batch_size_per_gpu",
    "deepspeed.gradient_accumulation_steps",
    "deepspeed.zero_optimization.stage",
    "deepspeed.sequence_parallel_size",
    "hf.per_device_train_batch_size",
    "hf.gradient_accumulation_steps",
)
"""Whose value anything else than a whole number would make nonsense of."""
AT_LEAST = {
    **dict.fromkeys(
        (
            "num_layers",
            "hidden_size",
            "num_attention_heads",
            "seq_length",
            "micro_batch_size",
            "tensor_model_parallel_size",
            "pipeline_model_parallel_size",
            "deepspeed.train_batch_size",
            "deepspeed.train_micro_batch_size_per_gpu",
            "deepspeed.gradient_accumulation_steps",
            "hf.per_device_train_batch_size",
            "hf.gradient_accumulation_steps",
        ),
        1,
    ),
    "deepspeed.zero_optimization.stage": 0,
    "zero_stage": 0,
}
"""Counts that their frameworks refuse below this."""
FIGURES = (
    "rotary_percent",
    "hidden_dropout",
    "attention_dropout",
    "moe_router_topk_scaling_factor",
    "hybrid_attention_ratio",
    "hybrid_mlp_ratio",
    "dsa_indexer_loss_coeff",
)


def clean(plain: dict[str, Any]) -> dict[str, Any]:
    """The values with counts as whole numbers and figures as numbers; `auto` and what is empty
    count as not stated.

    Raises InputError for the first that is neither.
    """
    out = dict(plain)
    for name in COUNTS:
        if name in out and not _open(out[name]):
            out[name] = _enough(whole_number(out, name), name)
        elif name in out and out[name] != "auto":
            out[name] = None
    for name in FIGURES:
        if name in out and not _open(out[name]):
            out[name] = _figure(out[name], name)
    experts = out.get("num_experts")
    experts = experts[0] if isinstance(experts, list) and experts else experts
    if "num_experts" in out:
        out["num_experts"] = (
            None
            if _open(experts) or isinstance(experts, list)
            else whole_number({"num_experts": experts}, "num_experts")
        )
    return out


def _enough(count: int, name: str) -> int:
    least = AT_LEAST.get(name)
    if least is not None and count < least:
        raise InputError(
            f"{name} must be at least {least}, but got {count:,}; --set {name}=N restates it"
        )
    return count


def _open(value: Any) -> bool:
    return value is None or value == "" or value == "auto"


def whole_number(plain: dict[str, Any], name: str, default: int = 1) -> int:
    """A count as stated; the default where it is not. InputError when it is no whole number."""
    value = plain.get(name)
    if _open(value):
        return default
    try:
        exact = isinstance(value, (bool, int))
        number = int(value) if exact else float(value)  # type: ignore[arg-type]
        count = int(number)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{name} must be a whole number, but got {str(value)[:40]!r}; --set {name}=N"
            " restates it"
        ) from None
    if count != number or abs(count) > MAX_COUNT:
        raise InputError(
            f"{name} must be a whole number of at most {MAX_COUNT:,}, but got {str(value)[:40]};"
            f" --set {name}=N restates it"
        )
    return count


def _figure(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"{name} must be a number, but got {str(value)[:40]!r}; --set {name}=X restates it"
        )
    return number
