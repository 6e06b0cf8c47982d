"""What experts and long sequences add to the search: how experts split, what can be recomputed of
them, stages that come out uneven.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.cost.params.experts import routed_params
from planner.specs.layers import experts_layers
from planner.specs.recipe import Recipe

LONG = 32_768
"""Tokens of a sequence from which on context parallelism is searched unasked."""
SHORTEST = 4096
"""Tokens of a sequence that a rank keeps at least when context parallelism is searched unasked:
below, the ring outlasts attention.
"""
MAX_RANKS = 64
"""Largest context-parallel group that is searched unasked."""


def modules(recipe: Recipe) -> list[list[str]]:
    """Sets of modules for selective recomputation, each saving more for more time than the one
    before.
    """
    model = recipe.model
    if not (model.moe or model.mla) or recipe.framework != "megatron":
        return []
    light = ["layernorm"]
    sets = [light] + [[*light, "moe_act"]] * (model.moe is not None)
    if model.mla:
        sets.append([*sets[-1], "mla_up_proj"])
    if model.moe:
        rest = [name for name in sets[-1] if name != "moe_act"]
        sets += [[*sets[-1], "shared_experts"]] * (model.moe.shared_ffn_size > 0) + [[*rest, "moe"]]
    return sets


def expert_splits(
    recipe: Recipe, columns: dict[str, np.ndarray], divisors: np.ndarray
) -> tuple[Any, Any, Any]:
    """Every row with every way to split the experts: (row, ep, etp).

    ep divides the experts, etp is 1 or tp, and both with pp divide the GPUs. Left out is what
    cannot fit: weights and gradients of a rank's experts beyond the device's memory; unless the
    question says ep itself.
    """
    moe, tp, pp = recipe.model.moe, columns["tp"], columns["pp"]
    rows = np.arange(len(tp))
    if moe is None:
        lows = {name: bounds.low for name, bounds in recipe.knobs.items()}
        ep, etp = (np.full(len(tp), lows.get(name, 1)) for name in ("ep", "etp"))
        return rows, ep, etp
    eps = within(recipe, "ep", divisors[divisors <= recipe.gpus])
    splits = [_split(rows, ep, etp) for ep in eps.tolist() for etp in _widths(recipe, tp)]
    row, ep, etp = (np.concatenate(parts) for parts in zip(*splits, strict=True))
    kept = recipe.gpus % (ep * etp * pp[row]) == 0
    if "ep" not in recipe.knobs:
        layers = experts_layers(recipe.model)
        each = (
            (recipe.software.states.weight_bytes + recipe.software.states.gradient_bytes)
            * routed_params(recipe.model, moe)
            * layers
        )
        kept &= each / (ep * etp * pp[row]) <= recipe.hardware.gpu.usable_bytes
    kept |= not kept.any()  # for the rules to judge
    return row[kept], ep[kept], etp[kept]


def _split(rows: np.ndarray, ep: int, etp: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    some = np.flatnonzero(etp > 0)
    return rows[some], np.full(len(some), ep), etp[some]


def _widths(recipe: Recipe, tp: np.ndarray) -> list[np.ndarray]:
    """Columns of etp: 1, and tp where that is another; 0 leaves a row out. What the question fixes
    is taken.
    """
    fixed = recipe.fixed("etp")
    if fixed is not None:
        return [np.full_like(tp, fixed)]
    both = (np.ones_like(tp), np.where(tp > 1, tp, 0))
    return [np.where(recipe.allows("etp", etp), etp, 0) for etp in both]


def within(recipe: Recipe, knob: str, values: np.ndarray) -> np.ndarray:
    """The candidates that the question allows; a single value that it fixes is always one."""
    fixed = recipe.fixed(knob)
    if fixed is not None:
        return np.array([fixed])
    return values[recipe.allows(knob, values)] if knob in recipe.knobs else values


def sequence_ranks(recipe: Recipe, divisors: np.ndarray) -> np.ndarray:
    """cp of Megatron's ring when nobody asked: 1, and for long sequences up to 64 as long as ranks
    keep enough of them.
    """
    most = min(recipe.seq_length // SHORTEST, MAX_RANKS) if recipe.seq_length >= LONG else 1
    return divisors[divisors <= max(most, 1)]


def uneven_ends(num_layers: int, pp: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Layers of first and last rank where no accounting makes stages even: the ranks between hold
    ceil(L / pp), the last the fewest.

    0, 0 where layers divide, counted with or without embedding and loss, or no such split is legal.
    """
    divides = np.zeros(len(pp), dtype=bool)
    for more in range(3):
        divides |= (num_layers + more) % pp == 0
    between = -(-num_layers // (pp * v)) * v
    rest = num_layers - between * np.maximum(pp - 2, 0)
    first = np.minimum(-(-rest // (2 * v)) * v, between)
    last = rest - first
    ok = ~divides & (pp > 1) & (last > 0) & (last <= between) & (last % v == 0)
    return np.where(ok, first, 0), np.where(ok, last, 0)
