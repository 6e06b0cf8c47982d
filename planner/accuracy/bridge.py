"""What Megatron-Bridge's own recipes and logs make of a run on its pages: numbers of gradients and
states, whose memory was printed.
"""

from __future__ import annotations

import re
from typing import Any

from planner.cost.memory import rank_memory
from planner.cost.terms import Memory
from planner.estimate import parts
from planner.layout import Layout
from planner.specs.recipe import Recipe
from planner.specs.switches.numbers import FP8
from planner.specs.switches.switch import Value
from planner.specs.tuning import precise

TUNED = re.compile(r"Megatron-Bridge skills/\S*perf")
"""Pages of its performance guides in `source_ref`: their runs are of its recipes."""
REDUCED: dict[str, Value] = {"grad_reduce_dtype": "bf16"}
"""Its performance recipes reduce and keep gradients in 16 bits (grad_reduce_in_fp32 false)."""
NARROW: dict[str, Value] = precise("bf16") | {"store_param_remainders": False}
"""Moments in 16 bits (use_precision_aware_optimizer, exp_avg_dtype bf16) and whole main weights:
its MixedPrecisionConfig hands the optimizer fp8_recipe tensorwise under bf16 too, and then Megatron
keeps them itself (use_precision_aware_optimizer_no_fp8_or_ds_fp8)."""
GATHERED: dict[str, Value] = {"fp8_param_gather": True}
"""Of all its recipes of 8 bits but blockwise."""
UNBALANCED = 1.3
"""Set by hand, not fitted: tokens of the busiest rank over the mean under a router that nothing
balances by force; as run_software.yaml has it."""
MOONLIGHT = "moonlight-16b-a3b"
"""Whose recipe has narrow states, and a router that nothing balances by force
(moe_router_force_load_balancing false).
"""


def states(model: str, page: str, precision: str) -> tuple[tuple[str, Any], ...]:
    """Switches that the page's recipes set, and the routing of their experts, sorted; none for
    other pages.
    """
    if TUNED.search(page) is None:
        return ()
    more = NARROW | {"experts.imbalance": UNBALANCED} if model == MOONLIGHT else {}
    weights = GATHERED if precision in FP8 and precision != "fp8-blockwise" else {}
    return tuple(sorted((REDUCED | more | weights).items()))


def of_last(page: str) -> bool:
    """Whether the memory of a run is that of the last pipeline rank: the one that wrote the log,
    until its pull request for issue 3167 took the maximum over the pipeline. Cards are of later
    versions."""
    return TUNED.search(page) is not None


def last_memory(recipe: Recipe, layout: Layout) -> Memory:
    """Memory of the last pipeline rank of one layout, in closed form."""
    layers, _, _, acts = parts(recipe, layout)
    return rank_memory.rank_memory(
        recipe, layout, acts, rank_memory.ranks(recipe, layout, layers)[2]
    )
