"""A recipe and a layout as DeepSpeed's JSON, 0.16 to 0.19: only keys that it reads."""

from __future__ import annotations

import json
from typing import Any

from planner.emit import switches
from planner.layout import OFFLOADS, Layout
from planner.specs.deepspeed import in_megatron, with_autotp
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import setting

UNTESTED = ("sgd", "adafactor", "adam-8bit")
"""Optimizers that ZeRO takes only when told to."""
NVME_FOLDER = "/local_nvme"
SWAP_BUFFER = 100_000_000
"""Elements of a buffer through which a weight's shard comes from NVMe: DeepSpeed's default; a
larger shard is an assertion's end.
"""
LINEARS = (("row", "o_proj|down_proj"), ("column", "q_proj|k_proj|v_proj|gate_proj|up_proj"))
"""How the linears of train.py are split over tp; norms, embedding and head stay whole."""


def _largest_shard(recipe: Recipe, layout: Layout) -> int:
    """Elements of a rank's share of the largest weight: the embedding (AutoTP leaves it whole) or a
    product, fused as in some models.
    """
    model = recipe.model
    rows = max(model.vocab_size, 2 * model.ffn_size, model.query_size + 2 * model.kv_size)
    return -(-rows * model.hidden_size // int(layout.dp * layout.cp))


def _offload(recipe: Recipe, layout: Layout) -> dict[str, Any]:
    """Where the states of the optimizer, and under zero 3 the weights, are kept."""
    if not layout.offload:
        return {}
    what, _, device = OFFLOADS[layout.offload].partition("-")
    pinned = setting(recipe, "pin_memory", True)
    place: dict[str, Any] = {"device": device, "pin_memory": pinned}
    if device == "nvme":
        place["nvme_path"] = NVME_FOLDER
    if what != "params":
        return {"offload_optimizer": place}
    shard = _largest_shard(recipe, layout)
    buffer = {"buffer_size": shard} if device == "nvme" and shard > SWAP_BUFFER else {}
    return {"offload_optimizer": place, "offload_param": place | buffer}


def zero(recipe: Recipe, layout: Layout) -> dict[str, Any]:
    """What is sharded over the data-parallel ranks, and how it moves."""
    out: dict[str, Any] = {"zero_optimization": {"stage": int(layout.zero)}}
    if layout.zero:
        out["zero_optimization"] |= _offload(recipe, layout)
    if layout.zero == 3:
        out["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = True
    if layout.zero == 3 and layout.hpz > 1:
        out["zero_optimization"]["zero_hpz_partition_size"] = int(layout.hpz)
    return dict(_with_switches(out, recipe, layout)["zero_optimization"])


def _with_switches(out: dict[str, Any], recipe: Recipe, layout: Layout) -> dict[str, Any]:
    """The configuration with the keys of the recipe's switches."""
    for path, value in switches.keys(recipe, layout):
        *sections, name = path.split(".")
        section = out
        for each in sections:
            section = section.setdefault(each, {})
        section[name] = value
    return out


def _precision(recipe: Recipe, layout: Layout) -> dict[str, Any]:
    if recipe.precision == "fp32":
        return {}
    out: dict[str, Any] = {recipe.precision: {"enabled": True}}
    if recipe.precision == "bf16" and layout.pp > 1 and layout.zero == 1 and not layout.offload:
        # Micro-batches of a pipeline are summed in 32 bits; zero 0 refuses the word and sums in 16.
        out["data_types"] = {"grad_accum_dtype": "fp32"}
    return out


def _tensor_parallel(layout: Layout, own_script: bool) -> dict[str, Any]:
    """Rules name the linears of train.py; for another model DeepSpeed finds its own (Hugging Face's
    tensor-parallel plan, or by name).
    """
    if own_script:
        return {"autotp_size": int(layout.tp)}
    specs = [
        {"patterns": [rf".*\.({names})\.weight$"], "partition_type": kind}
        for kind, names in LINEARS
    ]
    return {
        "autotp_size": int(layout.tp),
        "partition_config": {"use_default_specs": False, "layer_specs": specs},
    }


def _optimizer(recipe: Recipe) -> dict[str, Any]:
    """By DeepSpeed's name or torch.optim's; none where the script hands over its own (8-bit
    Adam).
    """
    adam: dict[str, Any] = {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "adam": ("AdamW", adam),
        "lion": ("Lion", {"lr": 3e-5, "betas": [0.95, 0.98], "weight_decay": 0.1}),
        "muon": (
            "Muon",
            {
                "lr": 3e-4,
                "muon_lr": 2e-2,
                "adam_lr": 3e-4,
                "momentum": 0.95,
                "betas": [0.9, 0.95],
                "weight_decay": 0.1,
            },
        ),
        "sgd": ("SGD", {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.1}),
        "adafactor": ("Adafactor", {"lr": 1e-2, "weight_decay": 0.1}),
    }
    kind, params = kinds.get(recipe.optimizer, ("", {}))
    out: dict[str, Any] = {"optimizer": {"type": kind, "params": params}} if kind else {}
    return out | ({"zero_allow_untested_optimizer": True} if recipe.optimizer in UNTESTED else {})


def config(recipe: Recipe, layout: Layout, own_script: bool = False) -> dict[str, Any]:
    """The configuration as a mapping.

    Micro-batches are DeepSpeed's gradient accumulation steps, in a pipeline too. With AutoTP the
    product that DeepSpeed asserts counts ranks that share a layer as different ones, so the batch
    is left to follow from its parts.
    """
    autotp = bool(with_autotp(recipe, layout))
    out: dict[str, Any] = {} if autotp else {"train_batch_size": int(layout.gbs)}
    out |= {
        "train_micro_batch_size_per_gpu": int(layout.mbs),
        "gradient_accumulation_steps": int(layout.m),
    }
    if layout.cp > 1:
        out["sequence_parallel_size"] = int(layout.cp)
    out |= {**_precision(recipe, layout), "zero_optimization": zero(recipe, layout)}
    if autotp:
        out["tensor_parallel"] = _tensor_parallel(layout, own_script)
    if (
        layout.ep > 1 and layout.zero >= 3
    ):  # AutoEP replaces the script's own expert layers; deepspeed.moe needs zero 2 at most
        out["expert_parallel"] = {"enabled": True, "autoep_size": int(layout.ep)}
    if not in_megatron(recipe, layout):  # which makes its optimizer from its own flags
        out |= _optimizer(recipe)
    out = _with_switches(out, recipe, layout)
    # Timers of the engine's own breakdown are started twice in a pipeline (0.18.5 and later).
    return {**out, "gradient_clipping": 1.0, "steps_per_print": 10, "wall_clock_breakdown": False}


def text(recipe: Recipe, layout: Layout, own_script: bool = False) -> str:
    return json.dumps(config(recipe, layout, own_script), indent=2) + "\n"
