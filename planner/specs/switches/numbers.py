"""What Megatron-LM's switches of numbers make of a recipe and a layout: whether weights are
gathered in few bits, how wide states are.
"""

from __future__ import annotations

import numpy as np

from planner.layout import Layouts, Mask
from planner.specs.megatron import WHOLE_STATES, sharded_by_torch
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import setting
from planner.specs.versions import version_of

FP8 = ("fp8-delayed", "fp8-tensorwise", "fp8-blockwise", "mxfp8")
"""Megatron-LM's recipes of 8 bits."""
WHOLE_MAIN = ("fp8-tensorwise", "fp8-blockwise", "mxfp8")
"""Those under which the precision-aware optimizer's main weights are Megatron-LM's, in 32 bits;
elsewhere they are Transformer Engine's.

Source: [megatron-core] core/optimizer/optimizer_config.py
"""


FP4_BUFFERS = (0, 17)
"""Since then the distributed optimizer's buffers hold 4-bit weights."""
MOMENTS = ("exp_avg_dtype", "exp_avg_sq_dtype")
STATES = (*MOMENTS, "main_grads_dtype", "main_params_dtype")
"""Switches of the precision-aware optimizer's types."""
WIDTHS = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
"""Bytes of a number."""


def states_bytes(recipe: Recipe) -> float:
    """Bytes a parameter of Adam's states under bf16: main weight and two moments.

    Formula: 12; of the precision-aware optimizer its moments' bytes, and 2 of the main weight as
             remainders or in fp16
    Source:  [megatron-core] core/optimizer/optimizer_config.py
    """
    if not is_precise(recipe):
        return WHOLE_STATES
    main = WIDTHS[str(setting(recipe, "main_params_dtype", "fp32"))]
    main = 2.0 if setting(recipe, "store_param_remainders", True) else main
    moments = (setting(recipe, name, "fp32") for name in MOMENTS)
    return main + sum(WIDTHS[str(moment)] for moment in moments)


def is_precise(recipe: Recipe) -> bool:
    """Whether the precision-aware optimizer updates."""
    return bool(setting(recipe, "use_precision_aware_optimizer", False))


def can_gather_quantized(recipe: Recipe, layout: Layouts) -> Mask:
    """Whether the layers' weights can be kept and gathered in 8 or 4 bits: under the distributed
    optimizer or Megatron's own FSDP (4 bits under the former alone), with main weights that
    Megatron-LM holds whole; with the optimizer in host memory under delayed scaling alone.

    Source: [megatron-core] training/arguments.py, core/optimizer/distrib_optimizer.py
    """
    main = setting(recipe, "main_params_dtype", "fp32")
    whole = not is_precise(recipe) or (recipe.precision in WHOLE_MAIN and main == "fp32")
    away = np.asarray(layout.offload) > 0
    held = np.where(away, recipe.precision == "fp8-delayed", whole)
    zero = np.asarray(layout.zero)
    distributed = zero >= 1
    if recipe.precision == "nvfp4":
        known = version_of("megatron", recipe.framework_version) >= FP4_BUFFERS
        distributed = (zero == 1) & known
    return np.asarray(held & distributed & ~np.asarray(sharded_by_torch(recipe, layout)))


def gathers_quantized(recipe: Recipe, layout: Layouts) -> Mask:
    """Whether they are."""
    states = recipe.software.states
    asked_for = states.fp4_alone if recipe.precision == "nvfp4" else states.fp8_alone
    quantized = recipe.precision == "nvfp4" or recipe.precision in FP8
    if not (asked_for and quantized):
        return np.asarray(layout.zero) < 0
    return can_gather_quantized(recipe, layout)
