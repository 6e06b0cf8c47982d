"""Rules of what is trained: which optimizer, adapters, short samples; Megatron-LM's, DeepSpeed's,
torch's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.layout import OFFLOAD_CODE, Layouts, Mask
from planner.rules.rule import Rule
from planner.specs.deepspeed import in_megatron
from planner.specs.recipe import Recipe

ADAMS = ("adam", "precision-aware", "precision-aware-fp32", "precision-aware-fp8")
EMERGING = ("muon", "lion")
"""Megatron-LM's emerging optimizers: whole matrices are dealt to the ranks of its layer-wise
distributed optimizer.
"""
MEGATRON_HAS = (*ADAMS, *EMERGING, "sgd")
DEEPSPEED_HAS = ("adam", "adam-8bit", "adafactor", "muon", "lion", "sgd")
ON_HOST = ("adam", "lion")
"""DeepSpeed's optimizers that run on a node's processors."""


def _is(*names: str) -> Any:
    return lambda recipe, layout: recipe.optimizer in names


def _unless(condition: Any, *names: str) -> Any:
    """Holds unless the optimizer is one of names and the condition fails."""
    return lambda recipe, layout: (
        np.asarray(condition(recipe, layout)) | (recipe.optimizer not in names)
    )


def _fits_adapters(recipe: Recipe, layout: Layouts) -> Mask:
    return recipe.lora is None or recipe.lora.rank % np.maximum(layout.tp, 1) == 0


def _one_at_a_time(recipe: Recipe, layout: Layouts) -> Mask:
    return (layout.mbs == 1) | (not recipe.packing)


def _adapters_alone(recipe: Recipe, layout: Layouts) -> Mask:
    return (layout.tp == 1) | (recipe.lora is None)


PACKED = (
    Rule(
        "packed samples need a kernel for them",
        lambda recipe, layout: not recipe.packing or recipe.attention != "unfused",
        "packed samples attend to themselves alone in flash or fused attention, but got"
        " attention={recipe.attention}",
        lambda recipe, layout: "try flash attention",
    ),
)

MEGATRON = (
    Rule(
        "Megatron has the optimizer",
        _is(*MEGATRON_HAS),
        "Megatron-LM's optimizers are adam, precision-aware, muon, lion and sgd, but got"
        " {recipe.optimizer}",
        lambda recipe, layout: "try adam, or --framework deepspeed",
    ),
    Rule(
        "Muon and Lion came with 0.18",
        lambda recipe, layout: recipe.optimizer not in EMERGING,
        "muon and lion run under Megatron-LM's layer-wise distributed optimizer since 0.18, but got"
        " {recipe.optimizer} under {recipe.framework_version}",
        lambda recipe, layout: "try adam or version 0.18",
        before=(0, 18),
    ),
    Rule(
        "Megatron's FSDP updates by Adam or SGD",
        _unless(lambda recipe, layout: layout.zero <= 1, *EMERGING),
        "muon and lion have no FSDP (zero 2 and 3), but got {recipe.optimizer} with"
        " zero={layout.zero}",
        lambda recipe, layout: "try zero 1",
        since=(0, 18),
    ),
    Rule(
        "Muon and Lion have no fp16",
        _unless(lambda recipe, layout: recipe.precision != "fp16", *EMERGING),
        "muon and lion train in bf16 or fp32, but got {recipe.precision}",
        lambda recipe, layout: "try bf16",
        since=(0, 18),
    ),
    Rule(
        "host memory holds Adam's states",
        lambda recipe, layout: (layout.offload == 0) | (recipe.optimizer in ADAMS),
        "the optimizer in host memory is the precision-aware Adam, but got {recipe.optimizer} with"
        " offload={knobs[offload]}",
        lambda recipe, layout: "try adam, or no offload",
    ),
    Rule(
        "adapters split over tp",
        _fits_adapters,
        "tp must divide the adapters' rank, but got tp={layout.tp} and lora_rank"
        " {recipe.lora.rank}",
        lambda recipe, layout: f"try lora_rank {layout.tp * 2} or a smaller tp",
    ),
    Rule(
        "Megatron keeps frozen weights in 16 bits",
        lambda recipe, layout: recipe.lora is None or recipe.lora.base == "16bit",
        "adapters under Megatron-LM stand beside 16-bit weights, but got lora_base"
        " {recipe.lora.base}",
        lambda recipe, layout: "try 16bit, or --framework deepspeed",
    ),
    Rule(
        "packed samples come one sequence at a time",
        _one_at_a_time,
        "packed samples are one sequence a micro-batch, but got mbs={layout.mbs}",
        lambda recipe, layout: "try mbs 1",
    ),
    *PACKED,
)
"""Source: [megatron-core] training/arguments.py, core/optimizer/__init__.py; [megatron-bridge]
ParallelLinearAdapter, packed sequences.
"""

DEEPSPEED = (
    Rule(
        "DeepSpeed has the optimizer",
        _is(*DEEPSPEED_HAS),
        "DeepSpeed's optimizers are adam, muon, lion, and of others' sgd, adafactor and adam-8bit,"
        " but got {recipe.optimizer}",
        lambda recipe, layout: "try adam, or --framework megatron",
    ),
    Rule(
        "Muon came with 0.18",
        lambda recipe, layout: recipe.optimizer != "muon",
        "DeepSpeed has muon since 0.18, but got {recipe.framework_version}",
        lambda recipe, layout: "try adam or version 0.18",
        before=(0, 18),
    ),
    Rule(
        "Muon shards no weights before 0.19",
        _unless(lambda recipe, layout: layout.zero <= 2, "muon"),
        "muon goes with zero 1 and 2 before DeepSpeed 0.19, but got zero={layout.zero}",
        lambda recipe, layout: "try zero 2",
        before=(0, 19),
    ),
    Rule(
        "Muon needs matrices",
        _unless(lambda recipe, layout: (layout.zero >= 1) & (layout.pp == 1), "muon"),
        "muon puts matrices together under zero 1 to 3 without a pipeline, elsewhere its tensors"
        " are flat, but got zero={layout.zero}, pp={layout.pp}",
        lambda recipe, layout: "try zero 2 and pp 1",
    ),
    Rule(
        "host processors have the optimizer",
        lambda recipe, layout: (layout.offload == 0) | (recipe.optimizer in ON_HOST),
        "the optimizer in host memory is adam or lion, but got {recipe.optimizer} with"
        " offload={knobs[offload]}",
        lambda recipe, layout: "try adam, or no offload",
    ),
    Rule(
        "lion stays in memory",
        lambda recipe, layout: (
            (recipe.optimizer != "lion")
            | np.isin(
                layout.offload, (0, OFFLOAD_CODE["optimizer-cpu"], OFFLOAD_CODE["params-cpu"])
            )
        ),
        "states on NVMe are Adam's, but got lion with offload={knobs[offload]}",
        lambda recipe, layout: "try optimizer-cpu",
    ),
    Rule(
        "Megatron-DeepSpeed has Adam",
        lambda recipe, layout: (
            ~np.asarray(in_megatron(recipe, layout)) | (recipe.optimizer == "adam")
        ),
        "Megatron-DeepSpeed (tp > 1 in a pipeline) makes its own Adam, but got {recipe.optimizer}",
        lambda recipe, layout: "try adam, tp 1 or pp 1",
    ),
    Rule(
        "adapters are not split by AutoTP",
        _adapters_alone,
        "adapters go without tensor parallelism under DeepSpeed, but got tp={layout.tp} and"
        " lora_rank {recipe.lora.rank}",
        lambda recipe, layout: "try tp 1, or --framework megatron",
    ),
    *PACKED,
)
"""Source: [deepspeed] runtime/engine.py, runtime/zero/stage3.py, runtime/zero/muon; torch.optim by
name.
"""
