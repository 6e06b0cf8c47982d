"""What changes the numbers that a run computes: values of switches that are lossy, and states in
fewer bits than Adam's 32.
"""

from __future__ import annotations

from planner.layout import Layout
from planner.specs.recipe import Recipe
from planner.specs.switches.numbers import MOMENTS
from planner.specs.switches.switch import setting
from planner.specs.switches.table import BY_FRAMEWORK, shown

LOSSY, BENCHMARK = "lossy", "benchmark-only"
MOMENT, GRADIENT = "optimizer moments", "gradients"
FULL_BYTES = 4.0


def in_force(recipe: Recipe, layout: Layout) -> dict[str, str]:
    """What a layout's run has of them, by name: `{"grad_reduce_dtype": "bf16"}`. The precision of
    its products is asked for, and none of them.
    """
    held: dict[str, str] = {}
    for switch in BY_FRAMEWORK[recipe.framework].values():
        value = setting(recipe, switch.name, switch.default)
        acts = switch.exists(recipe, layout) & switch.acts(recipe, layout)
        if acts and switch.arithmetic_of(value) in (LOSSY, BENCHMARK):
            held[switch.name] = shown(value)
    states = recipe.software.states
    of_gradients = "grad_reduce_dtype" in BY_FRAMEWORK[recipe.framework]
    reduced = layout.dp * layout.cp > 1 and states.grad_reduce_bytes < FULL_BYTES
    if reduced and not of_gradients and recipe.precision != "fp32":
        held[GRADIENT] = f"{8 * states.grad_reduce_bytes:.0f} bits"
    moments = {held.pop(name) for name in MOMENTS if name in held}
    if moments:
        held[MOMENT] = " and ".join(sorted(moments))
    if recipe.optimizer == "adam-8bit":
        held[MOMENT] = "8 bits"
    return held


def text(held: dict[str, str]) -> str:
    """In one line: `grad_reduce_dtype bf16, optimizer moments fp8`."""
    return ", ".join(f"{name} {value}" for name, value in held.items())
