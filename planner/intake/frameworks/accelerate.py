"""The YAML of `accelerate config`: launcher, FSDP, DeepSpeed and Megatron-LM plugins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from planner.intake.documents.scalars import plain
from planner.intake.documents.tree import Leaf, last, location
from planner.intake.frameworks import huggingface
from planner.intake.frameworks.vocabulary import Framework, Named, make_reading, named
from planner.intake.reading import Reading, Unresolved

SECTIONS = (
    "distributed_type",
    "compute_environment",
    "num_processes",
    "fsdp_config",
    "deepspeed_config",
    "num_machines",
)
RENAMED = {
    "num_machines": "launch.nodes",
    "num_processes": "launch.gpus",
    "deepspeed_config.zero_stage": "deepspeed.zero_optimization.stage",
    "deepspeed_config.offload_optimizer_device": (
        "deepspeed.zero_optimization.offload_optimizer.device"
    ),
    "deepspeed_config.offload_param_device": "deepspeed.zero_optimization.offload_param.device",
    "deepspeed_config.gradient_accumulation_steps": "deepspeed.gradient_accumulation_steps",
    "deepspeed_config.gradient_clipping": "deepspeed.gradient_clipping",
    "megatron_lm_config.megatron_lm_tp_degree": "tensor_model_parallel_size",
    "megatron_lm_config.megatron_lm_pp_degree": "pipeline_model_parallel_size",
    "megatron_lm_config.megatron_lm_sequence_parallelism": "sequence_parallel",
    "megatron_lm_config.megatron_lm_use_distributed_optimizer": "use_distributed_optimizer",
    "parallelism_config.parallelism_config_tp_size": "tensor_model_parallel_size",
    "parallelism_config.parallelism_config_cp_size": "context_parallel_size",
    "parallelism_config.parallelism_config_dp_shard_size": "data_parallel_shard_degree",
    "parallelism_config.parallelism_config_dp_replicate_size": "data_parallel_replicate_degree",
    "fsdp_config.fsdp_offload_params": "hf.fsdp_offload_params",
    "fsdp_config.fsdp_activation_checkpointing": "hf.gradient_checkpointing",
    "parallelism_config.parallelism_config_sp_size": "context_parallel_size",
    "tp_config.tp_size": "tensor_model_parallel_size",
}
"""Source: [accelerate] commands/config and utils/dataclasses.py."""
PLANNED = {
    "PLAN_MODEL": "model",
    "PLAN_MICRO_BATCH_SIZE": "micro_batch_size",
    "PLAN_SEQ_LENGTH": "seq_length",
    "PLAN_RECOMPUTE_LAYERS": "recompute_layers",
    "PLAN_ATTENTION": "attention_backend",
    "PLAN_PIPELINE_PARALLEL_SIZE": "pipeline_model_parallel_size",
    "PLAN_EXPERT_PARALLEL_SIZE": "expert_model_parallel_size",
    "PLAN_LIGER": "liger_loss",
    "PLAN_EXPERT_TENSOR_PARALLEL_SIZE": "expert_tensor_parallel_size",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "gradient_accumulation_steps",
}
"""Variables that tell a training script what of a plan no file of Accelerate's says. Source: the
files that `emit` writes; [accelerate] accelerator.py for its own.
"""
FRAMEWORKS: dict[str, Framework] = {"DEEPSPEED": "deepspeed", "MEGATRON_LM": "megatron"}


def reading(leaves: Sequence[Leaf], file: str, notes: Sequence[str] = ()) -> Reading:
    """What the launcher and its plugins state; the script's own arguments (batch, model) are
    elsewhere and listed as unresolved.
    """
    kind = last(leaves, "distributed_type")
    unresolved = []
    if not any(leaf.path[-1] == "per_device_train_batch_size" for leaf in leaves):
        why = (
            "the micro-batch stands in the training script, not here; --set"
            " hf.per_device_train_batch_size=N supplies it"
        )
        where = location(kind) if kind else file
        unresolved.append(Unresolved("hf.per_device_train_batch_size", why, where))
    framework = FRAMEWORKS.get(str(kind and kind.value), "torch")
    names = chain.from_iterable(map(_names, leaves))
    return make_reading(file, "huggingface", framework, names, notes=notes, unresolved=unresolved)


def planned(out: Reading) -> Reading:
    """The reading with what variables of the environment tell the training script."""
    new, edits = {}, {}
    for variable, name in PLANNED.items():
        stated = out.values.get(f"env.{variable}")
        if stated is None:
            continue
        value = plain(str(stated.value)[:200])
        if name == "recompute_layers" and value == "all":
            name, value = "hf.gradient_checkpointing", True
        elif name == "recompute_layers" and isinstance(value, str):
            name, value = "recompute_modules", value.split(",")
        elif f"env.{variable}" in out.edits:
            edits[name] = out.edits[f"env.{variable}"]
        if name not in out.values:
            new[name] = replace(stated, value=value)
    return replace(out, values={**new, **out.values}, edits={**edits, **out.edits})


def _names(leaf: Leaf) -> list[Named]:
    dotted = ".".join(leaf.path)
    if dotted == "mixed_precision":
        text = str(leaf.value)
        names = [Named("hf.bf16", leaf, text == "bf16"), Named("hf.fp16", leaf, text == "fp16")]
        if text == "fp8":
            names += [Named("hf.bf16", leaf, True), Named("fp8_format", leaf, "hybrid")]
        return names
    if dotted == "fsdp_config.fsdp_sharding_strategy":
        return huggingface.sharding(str(leaf.value), leaf)
    if dotted == "fsdp_config.fsdp_reshard_after_forward":
        strategy = leaf.value
        if not isinstance(strategy, str):
            strategy = "full_shard" if strategy else "shard_grad_op"
        return huggingface.sharding(strategy, leaf)
    if dotted == "distributed_type":
        names = [named("distributed_type", leaf)]
        if leaf.value == "FSDP":
            names.append(Named("use_torch_fsdp2", leaf, True))
        return names
    return [named(RENAMED.get(dotted, dotted), leaf)]
