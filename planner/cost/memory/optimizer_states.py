"""Bytes that each optimizer keeps a parameter."""

from __future__ import annotations

from planner.layout import Numeric
from planner.specs.recipe import Recipe
from planner.specs.switches.numbers import WHOLE_MAIN

ADAM = 8.0
"""Bytes a parameter of Adam's two moments in 32 bits."""
MOMENTS = {"adam-8bit": 2.0 + 8.0 / 256, "lion": 4.0, "sgd": 4.0, "muon": 4.0, "adafactor": 4.0}
"""Bytes a parameter of the moments of others. 8-bit Adam: two bytes and two 4-byte scales a block
of 256; Adafactor under a flat partition, which has no rows and columns, keeps its second moment
whole.

Source: [dettmers2022]; [deepspeed] runtime/zero: partitions are flat; [torch-optim] Adafactor, SGD;
[megatron-core] --sgd-momentum 0.9; [jordan2024] Muon
"""


def moments_bytes(recipe: Recipe) -> float:
    """Bytes a parameter of a matrix's moments, where they are not those that the software says.

    Formula: 8 Adam; 4 one moment (Lion, SGD, Muon); 2 + 8/256 8-bit Adam; Adafactor 4 flat, else 0
             (rows and columns alone)
    Source:  [dettmers2022], [torch-optim], [jordan2024]
    Assumes: SGD with momentum; Adafactor without a first moment.
    """
    if recipe.optimizer == "adafactor" and recipe.framework == "torch":
        return 0.0  # sharded by rows, factors stay factors
    return MOMENTS.get(recipe.optimizer, ADAM)


def saved_bytes(recipe: Recipe, params: Numeric, matrices: Numeric) -> Numeric:
    """How many bytes fewer than the software's Adam the states of so many parameters take, of
    which so many are matrices of the layers.

    Formula: (8 - moments_bytes) params; Muon's only of the matrices: Adam updates the others; less
             remainder_bytes where main weights stay whole
    Source:  [jordan2024]; [megatron-core] core/optimizer/layer_wise_optimizer.py,
             optimizer_config.py
    Assumes: embedding, head, norms and biases are no matrices of the layers.
    """
    narrower = matrices if recipe.optimizer == "muon" else params
    whole = recipe.software.states.remainder_bytes * (recipe.precision in WHOLE_MAIN)
    return (ADAM - moments_bytes(recipe)) * narrower - whole * params
