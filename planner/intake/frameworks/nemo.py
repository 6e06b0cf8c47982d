"""NeMo's Hydra YAML, NeMo 2's and Megatron-Bridge's configuration, and verl's: sections around
Megatron's own argument names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from planner.intake.documents.scalars import is_int, plain
from planner.intake.documents.tree import Leaf, Path, last, last_value
from planner.intake.frameworks import nemo_recipes
from planner.intake.frameworks.deepspeed_keys import words
from planner.intake.frameworks.vocabulary import (
    Framework,
    Named,
    doubted,
    make_reading,
    named,
    tail,
)
from planner.intake.reading import Reading

SECTIONS = ("trainer", "exp_manager", "model", "train", "actor_rollout_ref")

_ACTOR = ("actor_rollout_ref", "actor")
PREFIXES: tuple[Path, ...] = tuple(
    tuple(section.split("."))
    for section in sorted(
        words("""
model model.config model.optim model.data model.data.train_ds trainer trainer.strategy \
trainer.strategy.ddp trainer.plugins
data dataset train ddp optimizer dist optim optim.config comm_overlap mixed_precision tokenizer \
rng scheduler logger checkpoint validation profiling
actor_rollout_ref.actor.megatron actor_rollout_ref.actor.megatron.override_transformer_config \
actor_rollout_ref.actor.optim
actor_rollout_ref.actor
""")
    )
)
"""Sections whose keys are Megatron's, once these are taken off."""
IGNORED = words("""
exp_manager run hydra defaults cluster rollout ref critic reward_model algorithm env_vars ft \
straggler
""")
"""Sections that say nothing of the training's shape."""
RENAMED = {
    "trainer.devices": "launch.gpus_per_node",
    "trainer.num_nodes": "launch.nodes",
    "trainer.n_gpus_per_node": "launch.gpus_per_node",
    "trainer.nnodes": "launch.nodes",
    "model.encoder_seq_length": "seq_length",
    "model.restore_from_path": "model",
    "restore_from_path": "model",
    "actor_rollout_ref.model.path": "model",
    "checkpoint.pretrained_checkpoint": "model",
    "model.optim.overlap_grad_sync": "overlap_grad_reduce",
    "model.optim.overlap_param_sync": "overlap_param_gather",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "micro_batch_size",
    "actor_rollout_ref.actor.ppo_micro_batch_size": "micro_batch_size",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "global_batch_size",
    "actor_rollout_ref.model.lora.target_modules": "hf.lora_target",
    "model.tokenizer.type": "tokenizer_type",
    "model.tokenizer.model": "tokenizer_model",
    "model.peft.peft_scheme": "peft.peft_scheme",
    "model.peft.lora_tuning.adapter_dim": "peft.lora_tuning.adapter_dim",
    "model.peft.lora_tuning.target_modules": "peft.lora_tuning.target_modules",
    "actor_rollout_ref.model.target_modules": "hf.lora_target",
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size": "context_parallel_size",
    "actor_rollout_ref.model.enable_gradient_checkpointing": "hf.gradient_checkpointing",
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload": "optimizer_cpu_offload",
    "dataset.sequence_length": "seq_length",
    "ddp.bucket_size": "ddp_bucket_size",
    "ddp.num_buckets": "ddp_num_buckets",
}
LORA_RANKS = ("actor_rollout_ref.model.lora.rank", "actor_rollout_ref.model.lora_rank")
"""0: all weights are trained."""
SHORT = {
    "activations_checkpoint_granularity": "recompute_granularity",
    "activations_checkpoint_method": "recompute_method",
    "activations_checkpoint_num_layers": "recompute_num_layers",
    "bias": "add_bias_linear",
    "layernorm_epsilon": "norm_epsilon",
    "rotary_percentage": "rotary_percent",
    "ub_tp_comm_overlap": "tp_comm_overlap",
    "num_moe_experts": "num_experts",
    "use_flash_attention": "use_flash_attn",
    "microbatch_group_size_per_vp_stage": "microbatch_group_size_per_virtual_pipeline_stage",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "calculate_per_token_loss": "calculate_per_token_loss",
}
"""Keys that mean Megatron's under another name, in whatever section."""
DTYPES = {
    "torch.float32": "fp32",
    "torch.float16": "fp16",
    "torch.bfloat16": "bf16",
    "torch.uint8": "fp8",
}
STATES = ("exp_avg_dtype", "exp_avg_sq_dtype", "main_grads_dtype", "main_params_dtype")
"""Numbers of the optimizer: torch's types in Megatron-Bridge, words in Megatron-LM."""
FP8 = (
    ("mxfp8", "mxfp8"),
    ("current_scaling", "tensorwise"),
    ("subchannel", "blockwise"),
    ("delayed", "delayed"),
)
_SUM = re.compile(
    r"\$\{(multiply|divide_ceil|divide_floor):\s*(\$\{[.\w]+\}|\d{1,9})\s*,\s*"
    r"(\$\{[.\w]+\}|\d{1,9})\s*\}"
)
_REFERENCE = re.compile(r"\$\{\s*([.\w]+)\s*\}")


def reading(leaves: Sequence[Leaf], file: str, notes: Sequence[str] = ()) -> Reading:
    """Values under Megatron's names. Source: [nemo] examples and collections; [megatron-bridge]
    training/config.py, mixed_precision.py.
    """
    flat = references(leaves)
    kind = _kind(flat)
    framework: Framework = "megatron"
    if kind == "verl" and not any(leaf.path[:3] == (*_ACTOR, "megatron") for leaf in flat):
        framework = "torch"
    names = chain.from_iterable(map(_names, flat))
    out, near = doubted([*names, *_together(flat)], exact=False)
    notes = [*notes, *near]
    if any(leaf.path[0] in nemo_recipes.KEYS for leaf in flat):
        notes.append(
            "what the recipe sets in its own code is not known: only the sizes stated beside its"
            " name count"
        )
    return make_reading(file, kind, framework, out, notes=notes)


def _kind(leaves: Sequence[Leaf]) -> str:
    tops = {leaf.path[0] for leaf in leaves}
    if "actor_rollout_ref" in tops:
        return "verl"
    bridge = tops & {
        "train",
        "ddp",
        "dist",
        "mixed_precision",
        "comm_overlap",
        "scheduler",
        "dataset",
        "recipe",
    }
    return "bridge" if bridge and "trainer" not in tops else "nemo"


def _names(leaf: Leaf) -> list[Named]:
    path = leaf.path
    if path[0] in IGNORED or (
        path[0] == "actor_rollout_ref" and path[1:2] in (("rollout",), ("ref",), ("hybrid_engine",))
    ):
        return []
    dotted = ".".join(path)
    if dotted in nemo_recipes.KEYS:
        return nemo_recipes.names(leaf)
    if dotted in RENAMED:
        return [named(RENAMED[dotted], leaf)]
    if dotted in LORA_RANKS:
        return [Named("hf.lora_rank", leaf, leaf.value or None)]
    if dotted == "peft.dim":
        return [named(dotted, leaf), Named("peft", leaf, "lora")]
    short = tail(path, PREFIXES)
    if len(short) > 1:
        return [named(dotted, leaf)]
    key = short[0]
    return _special(key, path, leaf) or [named(SHORT.get(key, key), leaf)]


def _special(key: str, path: Path, leaf: Leaf) -> list[Named]:
    """Keys whose value is not Megatron's word either; nothing for all others."""
    value = leaf.value
    text = str(value).lower()[:80]
    if key == "precision" and path[0] == "trainer":
        return [
            Named("bf16", leaf, "bf16" in text),
            Named("fp16", leaf, text in ("16", "16-mixed", "fp16", "16-true")),
        ]
    if key in ("mixed_precision", "precision_config"):
        return _mixed(text, leaf)
    if key in ("activation", "activation_func"):
        squared = text.replace("-", "_") == "squared_relu"
        return [
            Named("swiglu", leaf, "swiglu" in text or "silu" in text),
            Named("squared_relu", leaf, squared),
        ]
    if key == "normalization":
        return [Named(key, leaf, "RMSNorm" if "rms" in text else "LayerNorm")]
    if key == "share_embeddings_and_output_weights":
        untied = None if value is None else not value
        return [Named("untie_embeddings_and_output_weights", leaf, untied)]
    if key == "transformer_engine":
        return [Named("transformer_impl", leaf, "transformer_engine" if value else "local")]
    if key == "name" and path[-2:] == ("optim", "name"):
        return [
            Named("optimizer", leaf, value),
            Named("use_distributed_optimizer", leaf, "distributed" in text),
        ]
    if key == "num_query_groups":
        return [named(key, leaf), Named("group_query_attention", leaf, value is not None)]
    if key == "grad_reduce_in_fp32":
        narrow = not value if isinstance(value, bool) else None
        wide = named("accumulate_allreduce_grads_in_fp32", leaf)
        return [wide, Named("grad_reduce_in_bf16", leaf, narrow)]
    if key in STATES:
        return [Named(key, leaf, DTYPES.get(text, value))]
    if key == "fp8":
        if value and not isinstance(value, str):
            value = "hybrid"
        return [Named("fp8_format", leaf, value or None)]
    return []


def _mixed(text: str, leaf: Leaf) -> list[Named]:
    """What the name of a mixed precision says; an empty group, or a name that says no numbers,
    leaves what holds without it.
    """
    if not any(number in text for number in ("bf16", "fp16", "32")):
        return []
    out = [
        Named("bf16", leaf, text.startswith("bf16") or "_bf16_" in text),
        Named("fp16", leaf, text.startswith("fp16")),
    ]
    for word, recipe in FP8:
        if word in text:
            out += [Named("fp8_format", leaf, "hybrid"), Named("fp8_recipe", leaf, recipe)]
            break
    if "nvfp4" in text:
        out.append(Named("fp4_format", leaf, "e2m1"))
    return out


def _together(leaves: Sequence[Leaf]) -> list[Named]:
    """What several keys state together: verl's prompts and the two parts of a sequence, NeMo's
    switches of 8 bits.
    """
    out: list[Named] = []
    prompts = last(leaves, *_ACTOR, "ppo_mini_batch_size")
    times = last_value(leaves, "actor_rollout_ref", "rollout", "n")
    if prompts and isinstance(prompts.value, int) and isinstance(times, int):
        out.append(Named("global_batch_size", prompts, prompts.value * times))
    prompt = last_value(leaves, "data", "max_prompt_length")
    response = last(leaves, "data", "max_response_length")
    if response and isinstance(prompt, int) and isinstance(response.value, int):
        out.append(Named("seq_length", response, prompt + response.value))
    e4m3 = last(leaves, "model", "fp8_e4m3")
    if e4m3 and e4m3.value is True and last_value(leaves, "model", "fp8") is True:
        out.append(Named("fp8_format", e4m3, "e4m3"))
    strategy = last(leaves, *_ACTOR, "strategy")
    if strategy and str(strategy.value) in ("fsdp", "fsdp2"):
        out.append(Named("use_torch_fsdp2", strategy, True))
    return out


def references(leaves: Sequence[Leaf]) -> list[Leaf]:
    """Leaves with OmegaConf's `${a.b}` and `${.b}` replaced where they stand for another leaf's
    value; what does not is left.
    """
    values = {leaf.path: leaf.value for leaf in leaves}
    return [
        replace(leaf, value=_resolved(leaf, values), span=None) if _refers(leaf) else leaf
        for leaf in leaves
    ]


def _refers(leaf: Leaf) -> bool:
    value = leaf.value
    return (
        isinstance(value, str)
        and value.startswith("${")
        and bool(_REFERENCE.fullmatch(value) or _SUM.fullmatch(value))
    )


def _resolved(leaf: Leaf, values: Mapping[Path, Any]) -> Any:
    """A reference's value; of NeMo's resolvers multiply and divide the whole number, where both
    sides are known ones.
    """
    match = _SUM.fullmatch(leaf.value)
    if match is None:
        return _referred(leaf, leaf.value, values)
    sides = [_referred(leaf, plain(side), values) for side in (match[2], match[3])]
    if not all(is_int(side) and 0 <= side < 10**9 for side in sides):
        return leaf.value
    if match[1] == "multiply":
        return sides[0] * sides[1]
    if not sides[1]:
        return leaf.value
    return -(-sides[0] // sides[1]) if match[1] == "divide_ceil" else sides[0] // sides[1]


def _referred(leaf: Leaf, value: Any, values: Mapping[Path, Any]) -> Any:
    original, path = value, leaf.path
    for _ in range(8):
        match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            return value
        wanted = match[1]
        dots = len(wanted) - len(wanted.lstrip("."))
        base = path[: len(path) - dots] if dots else ()
        path = (*base, *wanted.lstrip(".").split("."))
        if path not in values:
            path = path[1:]
        if path not in values:
            return original
        value = values[path]
    return original
