"""A recipe and a layout as a Megatron-Bridge run: one of its recipes, and the words of it that the
plan changes.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

from planner.emit import comments, environment, presets, switches
from planner.emit.megatron import FSDP_STRATEGIES, NAMES
from planner.emit.program import Program, escaped, gpus_per_node
from planner.errors import InputError
from planner.layout import RECOMPUTE_CODE, Layout, module_names
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe
from planner.specs.switches.numbers import STATES
from planner.specs.switches.precision import TORCH

VERSION = "0.3"
FILE, SCRIPT = "bridge_overrides.yaml", "train_bridge.py"
RECIPES = {
    "llama2-7b": "llama2_7b",
    "llama3-8b": "llama3_8b",
    "llama3-70b": "llama3_70b",
    "llama3-405b": "llama31_405b",
    "llama3.2-1b": "llama32_1b",
    "llama3.2-3b": "llama32_3b",
    "qwen2-0.5b": "qwen2_500m",
    "qwen2-1.5b": "qwen2_1p5b",
    "qwen2-7b": "qwen2_7b",
    "qwen2-72b": "qwen2_72b",
    "qwen2.5-0.5b": "qwen25_500m",
    "qwen2.5-1.5b": "qwen25_1p5b",
    "qwen2.5-7b": "qwen25_7b",
    "qwen2.5-14b": "qwen25_14b",
    "qwen2.5-32b": "qwen25_32b",
    "qwen2.5-72b": "qwen25_72b",
    "qwen3-0.6b": "qwen3_600m",
    "qwen3-1.7b": "qwen3_1p7b",
    "qwen3-4b": "qwen3_4b",
    "qwen3-8b": "qwen3_8b",
    "qwen3-14b": "qwen3_14b",
    "qwen3-32b": "qwen3_32b",
    "qwen3-30b-a3b": "qwen3_30b_a3b",
    "qwen3-235b-a22b": "qwen3_235b_a22b",
    "deepseek-v2-lite": "deepseek_v2_lite",
    "deepseek-v2": "deepseek_v2",
    "deepseek-v3": "deepseek_v3",
    "gpt-oss-20b": "gpt_oss_20b",
    "gpt-oss-120b": "gpt_oss_120b",
    "glm4.5-355b-a32b": "glm45_355b",
    "glm4.5-air-106b-a12b": "glm45_air_106b",
    "moonlight-16b-a3b": "moonlight_16b",
}
"""Its pre-training recipes, without their common ending. Source: [megatron-bridge] recipes of
0.3.1.
"""
PRECISIONS = {
    "bf16": "bf16_mixed",
    "fp16": "fp16_mixed",
    "fp8-delayed": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8-tensorwise": "bf16_with_fp8_current_scaling_mixed",
    "fp8-blockwise": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
"""Source: [megatron-bridge] training/mixed_precision.py."""
Tree = dict[str, Any]


def recipe_name(model: ModelSpec) -> str:
    """The recipe of a model. InputError where there is none of these sizes."""
    name = presets.same(model, RECIPES)
    if name is None:
        raise InputError(
            f"Megatron-Bridge must have a recipe of the model ({', '.join(RECIPES)}), but got"
            f" {model.name}; leave --format out"
        )
    return f"{RECIPES[name]}_pretrain_config"


def check(recipe: Recipe, layout: Layout) -> None:
    """Raises InputError for what no recipe of Megatron-Bridge takes."""
    if recipe.framework != "megatron":
        raise InputError(
            f"Megatron-Bridge runs plans of megatron, but got {recipe.framework}; try --framework"
            " megatron"
        )
    if recipe.precision not in PRECISIONS:
        raise InputError(
            f"Megatron-Bridge computes in {', '.join(PRECISIONS)}, but got {recipe.precision}; try"
            " bf16"
        )
    if recipe.optimizer not in NAMES:
        raise InputError(
            f"Megatron-LM's optimizers are {', '.join(NAMES)}, but got {recipe.optimizer}; try adam"
        )


def _model(recipe: Recipe, layout: Layout) -> Tree:
    """Degrees and stages; what the recipe may have set and the plan has not is null."""
    out: Tree = {
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "context_parallel_size": layout.cp,
        "virtual_pipeline_model_parallel_size": (
            layout.v if layout.v > 1 and not layout.stage_layout else None
        ),
        "sequence_parallel": bool(layout.sp and layout.tp > 1),
        "seq_length": recipe.seq_length,
        "attention_dropout": 0.1 if recipe.software.dropout else 0.0,
        "hidden_dropout": 0.1 if recipe.software.dropout else 0.0,
        "expert_model_parallel_size": layout.ep,
        "expert_tensor_parallel_size": layout.etp,
        "pipeline_model_parallel_layout": layout.stage_layout or None,
        "account_for_embedding_in_pipeline_split": bool(layout.account_for_embedding),
        "account_for_loss_in_pipeline_split": bool(layout.account_for_loss),
        "num_layers_in_first_pipeline_stage": layout.first_layers or None,
        "num_layers_in_last_pipeline_stage": layout.last_layers or None,
        "overlap_p2p_comm": False,
        "batch_p2p_comm": True,
    }
    if recipe.model.mtp_layers:
        out["mtp_num_layers"] = recipe.model.mtp_layers
    if layout.v > 1 and layout.group:
        out["microbatch_group_size_per_vp_stage"] = layout.group
    return out | _context(layout) | _recomputed(layout)


def _context(layout: Layout) -> Tree:
    if layout.cp == 1:
        return {}
    if layout.cp_a2a == 1:  # switch cp_comm_type says the kind
        return {"hierarchical_context_parallel_sizes": None}
    kind = "a2a" if layout.cp_a2a == layout.cp else "a2a+p2p"
    groups = [layout.cp_a2a, layout.cp // layout.cp_a2a] if kind == "a2a+p2p" else None
    return {"cp_comm_type": kind, "hierarchical_context_parallel_sizes": groups}


def _recomputed(layout: Layout) -> Tree:
    words = (
        "recompute_granularity",
        "recompute_method",
        "recompute_num_layers",
        "recompute_modules",
    )
    if layout.recompute == RECOMPUTE_CODE["selective"]:
        modules = module_names(layout.recompute_modules) or ["core_attn"]
        # Shared experts beside the exchange, as some recipes have it, cannot be recomputed.
        apart = {"moe_shared_expert_overlap": False} if "shared_experts" in modules else {}
        return dict(zip(words, ("selective", None, None, modules), strict=True)) | apart
    if layout.recompute == RECOMPUTE_CODE["full"]:
        method, layers = (
            ("block", layout.recompute_layers) if layout.recompute_layers else ("uniform", 1)
        )
        return dict(zip(words, ("full", method, layers, None), strict=True))
    return dict.fromkeys(words)


def _sharding(recipe: Recipe, layout: Layout) -> dict[str, Tree]:
    """Data-parallel reduction and the optimizer's states."""
    fsdp, distributed = layout.zero >= 2, layout.zero >= 1
    ddp: Tree = {
        "use_distributed_optimizer": distributed,
        "use_megatron_fsdp": fsdp,
        "data_parallel_sharding_strategy": FSDP_STRATEGIES[layout.zero] if fsdp else "no_shard",
        "average_in_collective": not fsdp,
    }
    optimizer: Tree = {
        "optimizer": NAMES[recipe.optimizer],
        "use_distributed_optimizer": distributed,
        **_states(layout),
    }
    return {
        "ddp": ddp,
        "optimizer": optimizer,
        "checkpoint": {"ckpt_format": "fsdp_dtensor" if fsdp else "torch_dist"},
    }


def _states(layout: Layout) -> Tree:
    """Optimizer states in host memory: the code of the precision-aware optimizer, in 32 bits, which
    some recipes keep narrow.
    """
    away = bool(layout.offload)
    held: Tree = {"optimizer_cpu_offload": away, "optimizer_offload_fraction": float(away)}
    if away:
        held |= {"use_precision_aware_optimizer": True} | dict.fromkeys(STATES, TORCH["fp32"])
    return held


def overrides(recipe: Recipe, layout: Layout) -> dict[str, Tree]:
    """The words of the recipe's configuration, by its parts. InputError for what Megatron-Bridge
    does not take.
    """
    check(recipe, layout)
    batch = {"micro_batch_size": layout.mbs, "global_batch_size": layout.gbs}
    parts: dict[str, Tree] = {
        "model": _model(recipe, layout),
        "train": batch,
        "dataset": {"seq_length": recipe.seq_length},
        **_sharding(recipe, layout),
    }
    for part, keys in switches.bridge(recipe, layout).items():
        parts.setdefault(part, {}).update(keys)
    return parts


_VARIABLES = (
    ("TRAIN_ITERS", "20", "steps, on synthetic data unless the call adds dataset.blend=..."),
)
_DATA = (
    f'BRIDGE_FLAGS+=(--overrides "$FILES/{FILE}")\nDATA_FLAGS=("train.train_iters=$TRAIN_ITERS")'
)


def program(
    recipe: Recipe, layout: Layout, expected: tuple[str, ...], script: str | None = None
) -> Program:
    """The run for a launcher to print; expected are lines about its time and memory; script
    replaces the one that is written.
    """
    written = yaml.safe_dump(overrides(recipe, layout), sort_keys=False)
    own = resources.files("planner.emit.scripts").joinpath(SCRIPT).read_text(encoding="utf-8")
    words = (("--recipe", recipe_name(recipe.model)), ("--precision", PRECISIONS[recipe.precision]))
    notes = (
        f"Megatron-Bridge {VERSION}: its recipe {words[0][1]}, changed by {FILE} beside this file",
    )
    return Program(
        name=f"{recipe.model.name}-{recipe.gpus}gpus",
        comments=(
            *comments.plan(recipe, layout, f"Megatron-LM core {recipe.framework_version}"),
            *notes,
            *expected,
        ),
        variables=_VARIABLES,
        environment=environment.megatron(recipe, layout),
        groups=(("BRIDGE", words),),
        data_switch=_DATA,
        entry=escaped(script) if script else f"$FILES/{SCRIPT}",
        gpus=recipe.gpus,
        gpus_per_node=gpus_per_node(recipe.gpus, recipe.hardware.node.gpus),
        versions=(("megatron-bridge", VERSION),),
        files=((FILE, written), *(() if script else ((SCRIPT, own),))),
    )
