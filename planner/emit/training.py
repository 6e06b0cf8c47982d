"""What of a training no flag says: adapters, frozen parts, short samples, an optimizer that the
script makes.
"""

from __future__ import annotations

from planner.specs.recipe import Recipe


def left_to_the_script(recipe: Recipe) -> tuple[str, ...]:
    """What the user's own script must do, a sentence each; empty where flags or the JSON say
    all.
    """
    lines: list[str] = []
    if recipe.lora:
        where = ", ".join(recipe.lora.targets) + "; its weights in nf4" * (
            recipe.lora.base == "nf4"
        )
        lines.append(
            f"the script must freeze the model and add LoRA adapters of rank {recipe.lora.rank} to"
            f" {where}"
        )
    if recipe.frozen:
        lines.append(f"the script must freeze {', '.join(recipe.frozen)}")
    if recipe.mean_length:
        how = (
            f"pack samples, about {recipe.mean_length:,} tokens each, into"
            if recipe.packing
            else "pad each sample to"
        )
        lines.append(f"the script must {how} sequences of {recipe.seq_length:,} tokens")
    if recipe.optimizer == "adam-8bit":
        lines.append("the script must hand over its optimizer, bitsandbytes' AdamW8bit")
    return tuple(lines)
