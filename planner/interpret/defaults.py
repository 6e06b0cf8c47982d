"""What a framework takes where a file states nothing: Megatron-LM's arguments and DeepSpeed's keys,
by version.

Source of all: [megatron-core] training/arguments.py, core/transformer/transformer_config.py;
[deepspeed] runtime/config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import InputError
from planner.intake.frameworks import megatron_flags
from planner.intake.frameworks.megatron_flags import Flag
from planner.intake.reading import Reading, Value
from planner.specs.resolve import VERSIONS
from planner.specs.versions import KNOWN, Version, numbers_of, version_of

MEGATRON: dict[str, Any] = {
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "context_parallel_size": 1,
    "expert_model_parallel_size": 1,
    "sequence_parallel": False,
    "use_distributed_optimizer": False,
    "overlap_grad_reduce": False,
    "overlap_param_gather": False,
    "bf16": False,
    "fp16": False,
    "swiglu": False,
    "untie_embeddings_and_output_weights": False,
    "normalization": "LayerNorm",
    "add_bias_linear": True,
    "add_qkv_bias": False,
    "group_query_attention": False,
    "multi_latent_attention": False,
    "position_embedding_type": "learned_absolute",
    "make_vocab_size_divisible_by": 128,
    "rotary_percent": 1.0,
    "attention_dropout": 0.1,
    "hidden_dropout": 0.1,
    "transformer_impl": "transformer_engine",
    "optimizer": "adam",
}
"""Of every version that the rules know. Sizes that follow from others are in shape.py and
layouts.py.
"""
WITH_EXPERTS: dict[str, Any] = {
    "moe_router_topk": 2,
    "moe_token_dispatcher_type": "allgather",
    "moe_layer_freq": 1,
    "moe_router_score_function": "softmax",
}
SHARDING_CHANGED: Version = (0, 18)
"""Since then Megatron-FSDP shards weights too unless told otherwise; before, nothing."""
DEEPSPEED: dict[str, Any] = {"deepspeed.zero_optimization.stage": 0}
OWN: dict[str, dict[str, Any]] = {
    "swift": {
        "bf16": True,
        "use_distributed_optimizer": True,
        "overlap_grad_reduce": False,
        "attention_backend": "flash",
        "recompute_granularity": "selective",
        "recompute_modules": ["core_attn"],
        "add_bias_linear": False,
        "moe_token_dispatcher_type": "alltoall",
    },
    "nemo": {"bf16": True, "use_distributed_optimizer": True},
    "bridge": {
        "bf16": True,
        "use_distributed_optimizer": True,
        "overlap_grad_reduce": True,
        "overlap_param_gather": True,
        "moe_token_dispatcher_type": "alltoall",
        "optimizer_offload_fraction": 0.0,
        "store_param_remainders": False,
    },
}
"""What dresses of Megatron-LM set by themselves: ms-swift's Megatron arguments, NeMo's mixed
precision, Megatron-Bridge's recipes.
"""
SINCE_0_18 = ("muon", "dist_muon", "lion")
"""Optimizers that no earlier version has: who states one runs it."""
BY_KIND = {"swift": ("megatron", "0.15"), "neox": ("deepspeed", "0.16")}
"""Frameworks that pin another version than the newest: ms-swift's guide installs megatron-core
0.15; GPT-NeoX its own DeepSpeed.
"""
OBSOLETE = (
    "checkpoint_activations",
    "activations_checkpoint_method",
    "activations_checkpoint_granularity",
    "checkpoint_num_layers",
    "partition_activations",
    "scattered_embeddings",
)
"""Megatron-LM's flags of 2021 and 2022, gone since: the code that takes them is of that time."""


def version(reading: Reading, option: str | None = None) -> tuple[str, str]:
    """The version whose rules hold, and a sentence where it was not simply stated ('' else).

    option: --set framework_version.
    """
    stated_version = option or reading.framework_version
    if stated_version is None:
        framework, pinned = BY_KIND.get(reading.kind, ("", ""))
        if framework != reading.framework:
            pinned = VERSIONS[reading.framework]
        optimizer = reading.values.get("optimizer")
        if (
            reading.framework == "megatron"
            and optimizer is not None
            and str(optimizer.value) in SINCE_0_18
        ):
            pinned = max(pinned, "0.18", key=_number)
        return pinned, f"{reading.framework} {pinned}, as the file states no version"
    try:
        version_of(reading.framework, stated_version)
        return numbers_of(stated_version), ""
    except InputError:
        known = KNOWN[reading.framework]
        near = known[-2]
        if _number(stated_version) < _number(known[0]):
            near = known[0]
        short = stated_version[:20]
        return near, f"rules of {reading.framework} {near}, the nearest to {short} that is known"


PARSED = ("megatron", "megatron-yaml")
"""Kinds of files whose arguments pass Megatron-LM's own parser."""


def absent(reading: Reading, values: Mapping[str, Value], version: str) -> dict[str, Flag]:
    """What is stated by flags of Megatron-LM that a version has not, with the flags."""
    if reading.kind not in PARSED:
        return {}
    number = version_of("megatron", version)
    missing = {}
    for name, value in values.items():
        if value.origin == "default":
            continue
        flag = megatron_flags.stated_as(name, value.where)
        if flag is None or megatron_flags.deepspeed_only(flag):
            continue
        if not flag.is_in(number):
            missing[name] = flag
    return missing


def _number(text: str) -> tuple[int, ...]:
    parts = text.strip().lower().removeprefix("core_").removeprefix("v").split(".")[:2]
    return tuple(int(part) if part.isdigit() else 0 for part in parts)


def megatron(
    framework_version: str, with_experts: bool, kind: str = "megatron"
) -> dict[str, Value]:
    """Defaults of Megatron-LM's arguments as values with their origin; those that the file's own
    framework sets above them.
    """
    plain = dict(MEGATRON)
    if with_experts:
        plain |= WITH_EXPERTS
    plain["data_parallel_sharding_strategy"] = "no_shard"
    if version_of("megatron", framework_version) >= SHARDING_CHANGED:
        plain["data_parallel_sharding_strategy"] = "optim_grads_params"
    below = _values(plain, f"Megatron {framework_version}")
    return below | _values(OWN.get(kind, {}), kind)


def deepspeed(framework_version: str) -> dict[str, Value]:
    return _values(DEEPSPEED, f"DeepSpeed {framework_version}")


def _values(plain: dict[str, Any], where: str) -> dict[str, Value]:
    return {name: Value(value, "default", where) for name, value in plain.items()}
