"""The TOML of torchtitan 0.2 of a plan."""

from __future__ import annotations

from typing import Any

from planner.emit import comments
from planner.errors import InputError
from planner.layout import RECOMPUTE_CODE, SCHEDULES, Layout
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import setting

NEWER = (("llama3", "1B"), ("llama3", "3B"))
"""Models that came with 0.3."""
DEEPEP = ("deepseek_v3", "llama4")
"""Families whose experts reach DeepEP in 0.2."""
QUANTIZED: dict[str, tuple[str, dict[str, Any]]] = {
    "fp8-rowwise": ("float8", {"recipe_name": "rowwise", "filter_fqns": ["output"]}),
    "mxfp8": ("mx", {"recipe_name": "mxfp8_cublas"}),
}
"""Section of [quantize.linear], which is the converter's name too, and its words."""


def sections(
    recipe: Recipe, layout: Layout, known: dict[str, dict[str, Any]], model: tuple[str, str]
) -> dict[str, dict[str, Any]]:
    """Tables of the job by name. InputError for what 0.2 cannot say."""
    recomputed = _recomputed(recipe, layout)
    deepep = layout.ep > 1 and setting(recipe, "moe_dispatcher", "alltoall") == "deepep"
    unsaid = {
        "tp without sequence parallelism": layout.tp > 1 and not layout.sp,
        "multi-token prediction": recipe.model.mtp_layers > 0,
        "nvfp4": recipe.precision == "nvfp4",
        f"{recipe.model.name}, which came with 0.3": model in NEWER,
        "recomputation of some layers that are not every n-th": recomputed is None,
        f"DeepEP under {model[0]}": deepep and model[0] not in DEEPEP,
    }
    for what, asked in unsaid.items():
        if asked:
            raise InputError(
                f"torchtitan 0.2 must have words for the plan, but has none for {what}; try"
                " --software torchtitan@0.3"
            )
    converter, words = QUANTIZED.get(recipe.precision, ("", {}))
    out: dict[str, dict[str, Any]] = {
        "job": {
            "dump_folder": "./outputs",
            "description": f"{recipe.model.name} on {recipe.gpus} GPUs",
        },
        "model": {
            "name": model[0],
            "flavor": model[1],
            "hf_assets_path": "./assets/hf",
            **({"converters": [f"quantize.linear.{converter}"]} if converter else {}),
        },
        "optimizer": {"name": "AdamW", "lr": 3e-4},
        "training": {"dataset": "c4", "steps": 1000, **known["training"]},
        "parallelism": dict(known["parallelism"]),
        "activation_checkpoint": recomputed or {},
    }
    if words:
        out[f"quantize.linear.{converter}"] = words
    if layout.ep > 1 and SCHEDULES[layout.schedule] == "dualpipev":
        # on by default, refused with recomputation, and gone in 0.3
        out["parallelism"]["pipeline_parallel_expert_parallel_overlap"] = False
    return out


def _recomputed(recipe: Recipe, layout: Layout) -> dict[str, Any] | None:
    """All layers, none, operations, or every so many layers; other shares cannot be said."""
    if layout.recompute == RECOMPUTE_CODE["selective"]:
        return {"mode": "selective", "selective_ac_option": "op"}
    if layout.recompute != RECOMPUTE_CODE["full"]:
        return {"mode": "none"}
    of_stage = recipe.model.num_layers // (layout.pp * layout.v)
    if not layout.recompute_layers or layout.recompute_layers == of_stage:
        return {"mode": "full"}
    every, rest = divmod(of_stage, layout.recompute_layers)
    return None if rest else {"mode": "selective", "selective_ac_option": str(every)}


def text(tables: dict[str, dict[str, Any]], recipe: Recipe, layout: Layout) -> str:
    """The file of sections."""
    head = (
        *comments.plan(recipe, layout, comments.torch(recipe)),
        (
            "torchtitan 0.2 reads this: torchrun ... -m torchtitan.train --job.config_file"
            " torchtitan.toml"
        ),
    )
    body = [
        "\n".join([f"[{name}]", *(f"{key} = {_value(value)}" for key, value in table.items())])
        for name, table in tables.items()
    ]
    return "\n".join(f"# {line}" for line in head) + "\n\n" + "\n\n".join(body) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
