"""Rules of models with experts: how they split over ep and etp, and what Megatron-LM asks of them;
windows and latents too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.layout import Layout, Layouts, Mask, module_mask
from planner.rules.rule import Rule, divides, try_knob
from planner.specs.hardware import AMPERE
from planner.specs.recipe import Recipe


def _split(recipe: Recipe, layout: Layouts) -> Mask:
    """ep and etp are 1 without experts; with them ep divides their number."""
    moe = recipe.model.moe
    return (
        (layout.ep == 1) & (layout.etp == 1) if moe is None else divides(layout.ep, moe.num_experts)
    )


def _split_says(recipe: Recipe, layout: Layout) -> str:
    moe = recipe.model.moe
    return (
        "a dense model has no experts: ep and etp must be 1"
        if moe is None
        else try_knob("ep", moe.num_experts, layout.ep)
    )


def _groups(recipe: Recipe, layout: Layouts) -> Mask:
    """Experts fold over all ranks of a pipeline stage, cp not excepted; in floats, as a column of
    small integers would wrap.
    """
    if recipe.model.moe is None:
        return True
    return recipe.gpus % np.maximum(1.0 * layout.etp * layout.ep * layout.pp, 1) == 0


def _groups_out(recipe: Recipe, layout: Layout) -> str:
    return try_knob("ep", max(recipe.gpus // (layout.pp * layout.etp), 1), layout.ep)


def _expert_width(recipe: Recipe) -> int:
    return recipe.model.moe.expert_ffn_size if recipe.model.moe else 0


def _shared_width(recipe: Recipe) -> int:
    return recipe.model.moe.shared_ffn_size if recipe.model.moe else 0


def dense_width(recipe: Recipe) -> int:
    """Width of the dense MLP; 0, which everything divides, where no layer has one."""
    return recipe.model.ffn_size if recipe.model.has_dense_mlp else 0


SIZES = (
    Rule(
        "experts split over ep",
        _split,
        "ep must divide the experts, but got ep={layout.ep}, etp={layout.etp} and"
        " {recipe.model.name}",
        _split_says,
    ),
    Rule(
        "gpus split over etp * ep * pp",
        _groups,
        "etp * ep * pp must divide the GPUs, but got {layout.etp} * {layout.ep} * {layout.pp} and"
        " {recipe.gpus} GPUs",
        _groups_out,
    ),
    Rule(
        "expert width splits over etp",
        lambda recipe, layout: divides(layout.etp, _expert_width(recipe)),
        "etp must divide the width of an expert, but got etp={layout.etp} and {recipe.model.name}",
        lambda recipe, layout: try_knob("etp", _expert_width(recipe), layout.etp),
    ),
    Rule(
        "shared experts split over tp",
        lambda recipe, layout: divides(layout.tp, _shared_width(recipe)),
        "tp must divide the width of the shared experts, but got tp={layout.tp} and"
        " {recipe.model.name}",
        lambda recipe, layout: try_knob("tp", _shared_width(recipe), layout.tp),
    ),
)
"""Of every framework."""


def _bias(recipe: Recipe, layout: Layouts) -> Mask:
    return (layout.etp == 1) | (recipe.model.moe is None or not recipe.model.moe.expert_bias)


def _sequence_parallel(recipe: Recipe, layout: Layouts) -> Mask:
    return (layout.tp == 1) | (layout.sp == 1) | (recipe.model.moe is None)


def modules(recipe: Recipe) -> int:
    """Bit mask of what selective recomputation can name: the parts that the model has, and norms
    that are modules of their own.
    """
    model, fp8_delayed = recipe.model, recipe.precision == "fp8-delayed"
    grouped = recipe.hardware.gpu.compute_capability >= AMPERE
    names = (
        ["core_attn"] + ["mlp"] * model.has_dense_mlp + ["mla_up_proj"] * (model.mla is not None)
    )
    if model.moe:
        names += (
            ["moe"]
            + ["shared_experts"] * (model.moe.shared_ffn_size > 0)
            + ["moe_act"] * (grouped and not fp8_delayed)
        )
    # NOTE: of dense layers Transformer Engine has the norms inside the linear ones: the parser
    # takes "layernorm" and nothing happens.
    if (model.moe or model.mla) and not fp8_delayed:
        names.append("layernorm")
    return module_mask(names)


IDLE = module_mask(["layernorm", "mlp", "moe", "shared_experts"])
"""What Megatron-LM takes of a model that has it not, and does nothing."""


def idle_modules(recipe: Recipe, named: int) -> int:
    """Of modules that a file names to recompute those without effect."""
    if recipe.framework != "megatron":
        return 0
    refused = module_mask(["layernorm"]) if recipe.precision == "fp8-delayed" else 0
    return named & IDLE & ~modules(recipe) & ~refused


def aligned_widths(recipe: Recipe, layout: Layouts, size: int) -> Mask:
    """Whether the widths of all experts on a rank are multiples of what low-precision GEMMs
    need.
    """
    return divides(size * layout.etp, _expert_width(recipe)) & divides(
        size * layout.tp, _shared_width(recipe)
    )


def chunk_of_predictions(stages: Sequence[str], pp: int) -> str:
    """What is wrong with the place of the multi-token-prediction layers (m) in a stage layout;
    empty when it holds.
    """
    held = [index for index, stage in enumerate(stages) if "m" in stage]
    if not held:
        return ""
    letters = "".join(stages)
    if letters.rindex("t") > letters.index("m"):
        return "its m must come after all t"
    if len(held) > 1:
        return "all its m must be in one stage"
    last_chunk = held[0] >= len(stages) - pp
    return (
        ""
        if last_chunk and (held[0] % pp or pp == 1)
        else "its m must be in the last stage of a rank other than the first"
    )


MEGATRON = (
    Rule(
        "biases of experts need etp 1",
        _bias,
        "experts with biases must not be split, but got etp={layout.etp}",
        lambda recipe, layout: "try etp 1",
    ),
    Rule(
        "experts need sequence parallelism",
        _sequence_parallel,
        "a model with experts must use sequence parallelism when tp > 1, but got tp={layout.tp}"
        " with sp off",
        lambda recipe, layout: "turn sequence parallelism on, or try tp 1",
    ),
    Rule(
        "HybridEP came with 0.16",
        lambda recipe, layout: (
            recipe.model.moe is None or recipe.software.experts.dispatcher != "hybridep"
        ),
        "the dispatcher HybridEP is in Megatron-LM since 0.16, but got {recipe.framework_version}",
        lambda recipe, layout: "use a later version, or another stack",
        before=(0, 16),
    ),
)
