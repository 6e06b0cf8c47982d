"""What Megatron-Bridge's own recipes and logs make of a run on its pages: numbers of gradients and states, whose memory was printed."""

from __future__ import annotations

import re
from typing import Any

from planner.accuracy.dispatchers import routing
from planner.cost import memory
from planner.cost.terms import Memory
from planner.estimate import parts
from planner.layout import Layout
from planner.specs.recipe import Recipe

TUNED = re.compile(r"Megatron-Bridge skills/\S*perf")
"""Pages of its performance guides in `source_ref`: their runs are of its recipes."""
HALVED: dict[str, Any] = {"gradient_bytes": 2.0, "grad_reduce_bytes": 2.0}
"""Its performance recipes reduce and keep gradients in 16 bits (grad_reduce_in_fp32 false)."""
NARROW: dict[str, Any] = {"optimizer_state_bytes": 6.0, "optimizer_bytes": 18.0}
"""Moments in 16 bits (use_precision_aware_optimizer, exp_avg_dtype bf16), and of the main weights what the weights lack
(store_param_remainders, Megatron's default)."""
MOONLIGHT = "moonlight-16b-a3b"
"""Whose recipe has narrow states, and a router that nothing balances by force (moe_router_force_load_balancing false)."""


def states(model: str, page: str) -> tuple[tuple[str, Any], ...]:
    """Fields of the stack that the page's recipes change, sorted; none for other pages."""
    if TUNED.search(page) is None:
        return ()
    more = NARROW | {"imbalance": routing()["unbalanced"]} if model == MOONLIGHT else {}
    return tuple(sorted((HALVED | more).items()))


def of_last(page: str) -> bool:
    """Whether the memory of a run is that of the last pipeline rank: the one that wrote the log, until its pull request for issue 3167
    took the maximum over the pipeline. Cards are of later versions."""
    return TUNED.search(page) is not None


def last_memory(recipe: Recipe, layout: Layout) -> Memory:
    """Memory of the last pipeline rank of one layout, in closed form."""
    layers, _, _, acts = parts(recipe, layout)
    return memory.rank_memory(recipe, layout, acts, memory.ranks(recipe, layout, layers)[2])
