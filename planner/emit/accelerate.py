"""A recipe and a layout as the configuration of Hugging Face Accelerate, for a script of one's own:
DeepSpeed's, or torch's FSDP2.
"""

from __future__ import annotations

from typing import Any

import yaml

from planner.emit import comments, deepspeed, deepspeed_config, switches, training
from planner.emit.program import Program, escaped, gpus_per_node
from planner.errors import InputError
from planner.layout import RECOMPUTE_CODE, Layout, module_names
from planner.specs.recipe import Recipe

FILE = "accelerate_config.yaml"
PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp32": "no"}
ATTENTIONS = {"flash": "flash_attention_2", "unfused": "sdpa"}
"""Kernels that the exchange of heads for tokens knows."""
Tree = dict[str, Any]


def check(recipe: Recipe, layout: Layout) -> None:
    """Raises InputError for what Accelerate 1.15 cannot start."""
    if recipe.framework not in ("deepspeed", "torch"):
        raise InputError(
            f"Accelerate starts DeepSpeed or torch's FSDP, but got {recipe.framework}; try"
            " --framework deepspeed, or leave --format out"
        )
    if recipe.precision not in PRECISIONS:
        raise InputError(
            f"precision under Accelerate must be one of {', '.join(PRECISIONS)} here, but got"
            f" {recipe.precision}; try bf16"
        )
    deepspeed_cp = recipe.framework == "deepspeed" and layout.cp > 1
    if deepspeed_cp and recipe.attention not in ATTENTIONS:
        raise InputError(
            f"attention under Ulysses must be one of {', '.join(ATTENTIONS)}, but got"
            f" {recipe.attention}; try flash"
        )


def config(recipe: Recipe, layout: Layout) -> Tree:
    """What Accelerate reads. `accelerate launch` gets nodes, ranks and addresses by its flags,
    which win.

    DeepSpeed's precision and batch stand in its own JSON, and may not be said twice.
    """
    check(recipe, layout)
    nodes = recipe.gpus // gpus_per_node(recipe.gpus, recipe.hardware.node.gpus)
    out: Tree = {
        "compute_environment": "LOCAL_MACHINE",
        "num_machines": nodes,
        "num_processes": recipe.gpus,
        "machine_rank": 0,
        "main_training_function": "main",
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }
    return out | (
        _deepspeed(recipe, layout) if recipe.framework == "deepspeed" else _fsdp(recipe, layout)
    )


def _deepspeed(recipe: Recipe, layout: Layout) -> Tree:
    plugin = {
        "deepspeed_config_file": deepspeed.CONFIG,
        "deepspeed_multinode_launcher": "standard",
        "zero3_init_flag": layout.zero == 3,
    }
    out: Tree = {"distributed_type": "DEEPSPEED", "deepspeed_config": plugin}
    if layout.cp > 1:
        out["parallelism_config"] = _sizes(
            sp_size=layout.cp,
            sp_backend="deepspeed",
            sp_seq_length=recipe.seq_length,
            sp_seq_length_is_variable=False,
            sp_attn_implementation=ATTENTIONS[recipe.attention],
        )
    return out


def _fsdp(recipe: Recipe, layout: Layout) -> Tree:
    """Layers are wrapped as the model's class says; the ring of context parallelism gathers keys
    and values.
    """
    plugin = {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": layout.zero == 3,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_activation_checkpointing": _all_layers(layout),
        "fsdp_offload_params": False,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading": True,
    }
    ring: Tree = (
        {"cp_size": layout.cp, "cp_backend": "torch", "cp_comm_strategy": "allgather"}
        if layout.cp > 1
        else {}
    )
    sizes = _sizes(dp_replicate_size=1, dp_shard_size=layout.dp, tp_size=layout.tp, **ring)
    out: Tree = {
        "distributed_type": "FSDP",
        "mixed_precision": PRECISIONS[recipe.precision],
        "fsdp_config": plugin,
        "parallelism_config": sizes,
    }
    for part, words in switches.configuration(recipe, layout, "accelerate").items():
        out.setdefault(part, {}).update(words)
    sizes[_SHARDS] //= sizes[_COPIES]
    return out


_SHARDS = "parallelism_config_dp_shard_size"
_COPIES = "parallelism_config_dp_replicate_size"


def _sizes(**words: Any) -> Tree:
    return {
        f"parallelism_config_{name}": value if isinstance(value, (bool, str)) else int(value)
        for name, value in words.items()
    }


def _all_layers(layout: Layout) -> bool:
    return bool(layout.recompute == RECOMPUTE_CODE["full"] and not layout.recompute_layers)


def requirements(recipe: Recipe, layout: Layout) -> tuple[str, ...]:
    """What the script itself must do for the figures below to hold."""
    batch = f"{layout.mbs} sequences a device (mbs), {layout.m} steps of gradient accumulation (m)"
    lines = [
        f"Accelerate 1.15, {FILE} beside this file",
        "what the script must do stands in variables, too: PLAN_MICRO_BATCH_SIZE and so on",
        f"the script must train on {batch}, {recipe.seq_length:,} tokens each",
    ]
    if recipe.framework == "deepspeed":
        return (
            *lines,
            "the optimizer is DeepSpeed's own, from its JSON: DummyOptim",
            *deepspeed.left_to_the_script(recipe, layout),
        )
    modules = module_names(layout.recompute_modules)
    if layout.recompute == RECOMPUTE_CODE["selective"] and modules == ["ops"]:
        kept = "attention, every second product and what was sent"
        lines.append(f"the script must checkpoint operations: all but {kept}")
    elif layout.recompute == RECOMPUTE_CODE["selective"]:
        lines.append(f"the script must checkpoint modules of each layer: {', '.join(modules)}")
    elif layout.recompute and not _all_layers(layout):
        lines.append(
            f"the script must checkpoint {layout.recompute_layers or 'some'} of the"
            f" {recipe.model.num_layers} layers"
        )
    if layout.tp > 1:
        how = "with" if layout.sp else "without"
        lines.append(
            f"tp {layout.tp} needs a model of transformers with a plan for it, {how} sequence"
            " parallelism"
        )
    return (*lines, f"the script must use {recipe.attention} attention")


_SCRIPT = ("SCRIPT", "train.py", "your training script, which makes an Accelerator")


def program(
    recipe: Recipe, layout: Layout, expected: tuple[str, ...], script: str | None = None
) -> Program:
    """The run for a launcher to print; the script is the user's in any case. InputError for what
    Accelerate cannot start.
    """
    files = [(FILE, yaml.safe_dump(config(recipe, layout), sort_keys=False))]
    options = f'--config_file "$FILES/{FILE}"'
    if recipe.framework == "deepspeed":
        files.append((deepspeed.CONFIG, deepspeed_config.text(recipe, layout, own_script=True)))
        options += f' --deepspeed_config_file "$FILES/{deepspeed.CONFIG}"'
    return Program(
        name=f"{recipe.model.name}-{recipe.gpus}gpus",
        comments=(
            *comments.plan(recipe, layout, f"{recipe.framework} {recipe.framework_version}"),
            *requirements(recipe, layout),
            *expected,
        ),
        variables=() if script else (_SCRIPT,),
        environment=(
            *deepspeed.environment(recipe, layout),
            *training.layout_variables(recipe, layout),
            # Accelerator() itself takes its steps of accumulation from its variable
            ("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", str(layout.m)),
        ),
        groups=(),
        data_switch="DATA_FLAGS=()",
        entry=escaped(script) if script else "$SCRIPT",
        gpus=recipe.gpus,
        gpus_per_node=gpus_per_node(recipe.gpus, recipe.hardware.node.gpus),
        files=tuple(files),
        accelerate=f"accelerate launch {options}",
    )
