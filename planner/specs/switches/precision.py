"""Switches of Megatron-LM about numbers: weights and their gathers in 8 and 4 bits, states of the
precision-aware optimizer.

Source of flags, defaults and refusals: [megatron-core] training/arguments.py,
core/optimizer/optimizer_config.py, core/distributed/param_and_grad_buffer.py of 0.16 to 0.19.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.layout import Layouts, Mask
from planner.specs.megatron import NARROW, sharded_by_torch
from planner.specs.recipe import Recipe
from planner.specs.switches.numbers import FP8, WHOLE_MAIN, can_gather_quantized, is_precise
from planner.specs.switches.switch import Need, Plain, Spelling, Switch, Value, setting

PRECISE = "use_precision_aware_optimizer"
TORCH = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"} | {
    "fp8": "torch.uint8"
}
"""Types as Megatron-Bridge writes them."""


def _in_8_bits(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.precision in FP8)


def _in_4_bits(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.precision == "nvfp4")


def _in_mxfp8(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(recipe.precision == "mxfp8")


def _on_device(recipe: Recipe, layout: Layouts) -> Mask:
    """In host memory states are in 32 bits, whatever these say (HybridDeviceOptimizer)."""
    return np.asarray(np.asarray(layout.offload) == 0)


def _precise(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(is_precise(recipe))


def _precise_in_bf16(recipe: Recipe, layout: Layouts) -> Mask:
    return _precise(recipe, layout) & (setting(recipe, "grad_reduce_dtype", "fp32") == "bf16")


def _has_remainders(recipe: Recipe, layout: Layouts) -> Mask:
    return np.asarray(is_precise(recipe) and recipe.precision not in WHOLE_MAIN)


def _names_a_recipe(recipe: Recipe, layout: Layouts) -> Mask:
    """Without 8 bits Megatron-Bridge hands the optimizer fp8_recipe tensorwise, under which
    Megatron-LM holds whole main weights.
    """
    return np.asarray(recipe.precision not in FP8)


def _read_gather(plain: Plain) -> Value | None:
    """As stated; Megatron-Bridge's blockwise recipe is the only one that does not gather 8 bits."""
    for name in ("fp8_param_gather", "fp8_param"):
        if isinstance(plain.get(name), bool):
            return bool(plain[name])
    return False if plain.get("fp8_recipe") == "blockwise" else None


def _read_fp4_gather(plain: Plain) -> Value | None:
    for name in ("fp4_param_gather", "fp4_param"):
        if isinstance(plain.get(name), bool):
            return bool(plain[name])
    return None


def _read_precise(plain: Plain) -> Value | None:
    """Beside an optimizer in host memory the flag only takes its code path."""
    stated = plain.get(PRECISE)
    return stated if isinstance(stated, bool) and not plain.get("optimizer_cpu_offload") else None


def _read_dtype(name: str, values: tuple[Value, ...]) -> Callable[[Plain], Value | None]:
    def read(plain: Plain) -> Value | None:
        stated = plain.get(name)
        return stated if _read_precise(plain) and stated in values else None

    return read


def _read_remainders(plain: Plain) -> Value | None:
    """Transformer Engine keeps main weights under delayed scaling alone, and where no recipe is
    named: Megatron-Bridge names one under bf16 too.
    """
    if plain.get("fp8_recipe") == "delayed":
        return None
    stated = plain.get("store_param_remainders")
    return stated if isinstance(stated, bool) else None


_MX = "mixed_precision.reuse_grad_buf_for_mxfp8_param_ag"
_FP8 = "mixed_precision.fp8_param_gather"


def _dtype(name: str, values: tuple[str, ...], help: str, says: str, source: str) -> Switch:
    """A type of the precision-aware optimizer's numbers."""
    flag = f"--{name.replace('_', '-')}"
    return Switch(
        name,
        help,
        values,
        "fp32",
        "same",
        tuple(
            Spelling(
                value,
                ((flag, value),) if value != "fp32" else (),
                bridge=((f"optimizer.{name}", TORCH[value]),),
            )
            for value in values
        ),
        says,
        source,
        lossy=values[1:],
        exists=_on_device,
        acts=_precise_in_bf16 if name == "main_grads_dtype" else _precise,
        requires=((PRECISE, True),),
        read=_read_dtype(name, values),
    )


_MOMENTS = ("fp32", "bf16", "fp16", "fp8")
_STATES = "[megatron-core] core/optimizer/optimizer_config.py; [transformer-engine] FusedAdam"

SWITCHES = (
    Switch(
        "fp8_param_gather",
        "Weights of the layers are kept in 8 bits alone, and gathered so.",
        (False, True),
        False,
        "same",
        (
            Spelling(False, bridge=((_FP8, False), (_MX, False)), where=_in_mxfp8),
            Spelling(False, bridge=((_FP8, False),)),
            Spelling(
                True,
                (("--fp8-param-gather",), ("--reuse-grad-buf-for-mxfp8-param-ag",)),
                bridge=((_FP8, True), (_MX, True)),
                where=_in_mxfp8,
            ),
            Spelling(True, (("--fp8-param-gather",),), bridge=((_FP8, True),)),
        ),
        "no 16-bit copy of the weights (2 bytes a parameter less); gathers move 1 byte, in mxfp8 2"
        " through the buffer of gradients. Main weights are rounded to 16 bits before they are"
        " cast, as without it: the same numbers",
        "[megatron-core] core/distributed/param_and_grad_buffer.py; [transformer-engine]"
        " tensor/utils.py",
        exists=_in_8_bits,
        acts=can_gather_quantized,
        read=_read_gather,
    ),
    Switch(
        "fp4_param_gather",
        "Weights of the layers are kept in 4 bits alone, and gathered so.",
        (False, True),
        False,
        "same",
        (
            Spelling(False, bridge=(("model.fp4_param", False),)),
            Spelling(True, (("--fp4-param-gather",),), bridge=(("model.fp4_param", True),)),
        ),
        "no 16-bit copy of the weights; gathers move half a byte a parameter. The same numbers",
        "DeepSeek-V3 on 256 GB300: 235.2 to 202.8 GB (Megatron-Bridge pull request 3364)",
        exists=_in_4_bits,
        acts=can_gather_quantized,
        read=_read_fp4_gather,
    ),
    Switch(
        PRECISE,
        "Adam of Transformer Engine, whose states may be narrower than 32 bits.",
        (False, True),
        False,
        "same",
        (
            Spelling(False, bridge=((f"optimizer.{PRECISE}", False),)),
            Spelling(
                True,
                (("--use-precision-aware-optimizer",),),
                bridge=((f"optimizer.{PRECISE}", True),),
            ),
        ),
        "by itself it changes no number; the types of its states are switches of their own",
        _STATES,
        exists=_on_device,
        needs=(
            Need(
                "narrow optimizer states are distributed",
                lambda recipe, layout: (
                    (layout.zero >= 1) & ~np.asarray(sharded_by_torch(recipe, layout))
                ),
                "the precision-aware optimizer needs the distributed optimizer, but got"
                " zero={layout.zero}",
                "try zero 1",
            ),
            Need(
                "narrow optimizer states belong to bf16",
                lambda recipe, layout: np.asarray(recipe.precision not in ("fp16", "fp32")),
                "the main weight is kept as what bf16 leaves out, but got {recipe.precision}",
                "try bf16",
            ),
            Need(
                "narrow optimizer states belong to Adam",
                lambda recipe, layout: np.asarray(recipe.optimizer in ("adam", *NARROW)),
                "the precision-aware optimizer is Adam, but got {recipe.optimizer}",
                "try adam",
            ),
        ),
        read=_read_precise,
    ),
    _dtype(
        "main_grads_dtype",
        ("fp32", "bf16"),
        "Numbers in which the precision-aware optimizer reads gradients, where they are reduced in"
        " bf16.",
        "bf16 makes no copy of the shard's gradients in 32 bits; below what the model resolves",
        _STATES,
    ),
    _dtype(
        "main_params_dtype",
        ("fp32", "fp16"),
        "Numbers of the precision-aware optimizer's main weights.",
        "2 bytes a parameter in place of 4, and no remainders",
        _STATES,
    ),
    _dtype(
        "exp_avg_dtype",
        _MOMENTS,
        "Numbers of the precision-aware optimizer's first moments.",
        "bytes a parameter: 4, 2, 2 or 1",
        _STATES,
    ),
    _dtype(
        "exp_avg_sq_dtype",
        _MOMENTS,
        "Numbers of the precision-aware optimizer's second moments.",
        "bytes a parameter: 4, 2, 2 or 1",
        _STATES,
    ),
    Switch(
        "store_param_remainders",
        "The precision-aware optimizer keeps of main weights the bits that bf16 weights have not.",
        (False, True),
        True,
        "same",
        (
            Spelling(
                True, bridge=(("mixed_precision.fp8_recipe", "delayed"),), where=_names_a_recipe
            ),
            Spelling(True),
        ),
        "2 bytes a parameter less, where Transformer Engine holds the main weights: under bf16,"
        " delayed scaling and nvfp4; under other 8-bit recipes Megatron-LM holds them whole",
        _STATES,
        exists=_on_device,
        acts=_has_remainders,
        requires=((PRECISE, True), ("main_params_dtype", "fp32")),
        read=_read_remainders,
    ),
)
