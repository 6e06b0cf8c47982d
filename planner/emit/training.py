"""What of a training no flag says: adapters, frozen parts, short samples, images, an optimizer that
the script makes.
"""

from __future__ import annotations

import shlex

from planner.emit import switches
from planner.layout import RECOMPUTE_CODE, Layout, module_names
from planner.specs.recipe import Recipe
from planner.specs.workload import ELSEWHERE, JOINED

MADE = ("adam-8bit",)
"""Optimizers that no flag or JSON names: the script hands them over."""


def left_to_the_script(recipe: Recipe) -> tuple[str, ...]:
    """What the user's own script must do, a sentence each; empty where flags or the JSON say
    all.
    """
    lines: list[str] = []
    if recipe.lora:
        where = ", ".join(_targets(recipe)) + "; its weights in nf4" * (recipe.lora.base == "nf4")
        lines.append(
            f"the script must freeze the model and add LoRA adapters of rank {recipe.lora.rank} to"
            f" {where}"
        )
    if recipe.frozen:
        lines.append(f"the script must freeze {', '.join(recipe.frozen)}")
    if recipe.images_per_sample is not None:
        lines.append(
            f"the script must build the vision tower of {recipe.model.name} in front of the first"
            " stage, as Hugging Face's class and Megatron-Bridge's provider have it, and feed it"
            f" {recipe.images_per_sample:,} images a sample{_sized(recipe)}: no script that is"
            " written here has one"
        )
    if recipe.mean_length:
        how = (
            f"pack samples, about {recipe.mean_length:,} tokens each, into"
            if recipe.packing
            else "pad each sample to"
        )
        lines.append(f"the script must {how} sequences of {recipe.seq_length:,} tokens")
    if recipe.optimizer in MADE:
        lines.append("the script must hand over its optimizer, bitsandbytes' AdamW8bit")
    return tuple(lines)


def _sized(recipe: Recipe) -> str:
    edge = recipe.image_size
    return f" of {edge:,} x {edge:,} pixels" if edge else ""


def _tower(recipe: Recipe) -> str:
    """Its sizes, which no flag of a framework has, as a shell takes them without quotes:
    `num_layers=27,full_layers=7+15`.
    """
    tower = recipe.model.vision
    stated = tower.model_dump(exclude_defaults=True) if tower else {}
    each = {name: x if isinstance(x, tuple) else (x,) for name, x in stated.items()}
    return ",".join(f"{name}={'+'.join(map(str, x))}" for name, x in each.items())


def variables(recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """The same for the script to read, and for whoever reads the launch file back."""
    stated: dict[str, object] = {}
    if recipe.lora:
        stated["LORA_RANK"] = recipe.lora.rank
        stated["LORA_TARGETS"] = ",".join(_targets(recipe))
        stated["LORA_BASE"] = recipe.lora.base
    if recipe.frozen:
        stated["FROZEN"] = ",".join(recipe.frozen)
    if recipe.images_per_sample is not None:
        stated["VISION"] = _tower(recipe)
        stated["IMAGES_PER_SAMPLE"] = recipe.images_per_sample
        if recipe.image_size:
            stated["IMAGE_SIZE"] = recipe.image_size
    if recipe.mean_length:
        stated["MEAN_LENGTH"] = recipe.mean_length
        stated["PACKING"] = int(bool(recipe.packing))
    if recipe.optimizer in MADE:
        stated["OPTIMIZER"] = recipe.optimizer
    return tuple((f"PLAN_{name}", str(value)) for name, value in stated.items())


def layout_variables(recipe: Recipe, layout: Layout) -> tuple[tuple[str, str], ...]:
    """What of the layout a script of one's own must do, where no file of the framework says it."""
    layers = "0"
    if layout.recompute:
        layers = str(layout.recompute_layers or "all")
    if layout.recompute == RECOMPUTE_CODE["selective"]:
        layers = ",".join(module_names(layout.recompute_modules))
    return (
        ("PLAN_MODEL", shlex.quote(recipe.model.name)),
        ("PLAN_MICRO_BATCH_SIZE", str(layout.mbs)),
        ("PLAN_SEQ_LENGTH", str(recipe.seq_length)),
        ("PLAN_RECOMPUTE_LAYERS", layers),
        ("PLAN_ATTENTION", recipe.attention),
        *([("PLAN_PIPELINE_PARALLEL_SIZE", str(layout.pp))] if layout.pp > 1 else ()),
        *([("PLAN_EXPERT_PARALLEL_SIZE", str(layout.ep))] if layout.ep > 1 else ()),
        *([("PLAN_LIGER", "1")] if ("--liger-loss",) in switches.flags(recipe, layout) else ()),
        *([("PLAN_EXPERT_TENSOR_PARALLEL_SIZE", str(layout.etp))] if layout.etp > 1 else ()),
    )


def _targets(recipe: Recipe) -> tuple[str, ...]:
    """The linears of the adapters: by Hugging Face's names, unless some are joined as Megatron's
    are.
    """
    targets = recipe.lora.targets if recipe.lora else ()
    if recipe.framework == "megatron" or {*targets} & {*JOINED}:
        return targets
    return tuple(ELSEWHERE.get(name, name) for name in targets)
