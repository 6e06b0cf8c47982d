"""ZB1P: zero bubble with the order planned for the durations, at the activation memory of 1F1B.

No closed form: the order depends on durations, transfers and memory; the simulator answers.
"""

from __future__ import annotations

from planner.action import Order
from planner.schedules import limits
from planner.schedules.automatic.eager import one_chunk_order
from planner.simulator import Floats

NAME = "zb-1p"
CHUNKS = (1, 1)


def legal(p: int, m: int, v: int = 1) -> None:
    """One stage a rank; any m. Raises InputError."""
    limits.sizes(NAME, p, m, v, CHUNKS)


def default_limit(p: int) -> float:
    """Activations a rank may hold when nothing else is said, in full stages: what 1F1B holds on its
    first rank.

    Formula: p
    Source:  [qi2023 sec. 3]
    Assumes: nothing beyond the schedule's name.
    """
    return float(p)


def order(
    p: int,
    m: int,
    v: int = 1,
    durations: Floats | None = None,
    transfer: float | Floats = 0.0,
    memory_limit: float | None = None,
    weight_retained: float = 1.0,
) -> Order:
    """The order planned for durations (S, 4) and transfer, as simulate takes them; None = equal
    kinds.

    memory_limit: activations a rank may hold at any time, in full stages, at least 1; until the end
    of the weight gradient, of which weight_retained is the share that stays after the input
    gradient. Raises InputError.
    """
    legal(p, m, v)
    limit = default_limit(p) if memory_limit is None else memory_limit
    return one_chunk_order(p, m, durations, transfer, limit, weight_retained)
