"""What of a network has parameters here but no formula of time and memory: estimates refuse it, in
one place and by one message. A part that is modelled leaves this list.
"""

from __future__ import annotations

from planner.errors import InputError
from planner.specs.layers import kinds
from planner.specs.model import ModelSpec


def uncosted(model: ModelSpec) -> tuple[str, ...]:
    """The parts of a model that no estimate has in."""
    found: list[str] = []
    for kind in kinds(model).values():
        found += _of_layer(kind)
    return tuple(dict.fromkeys(found))


def _of_layer(kind: ModelSpec) -> list[str]:
    has = {
        "several streams of the hidden state (AltUp)": kind.altup_streams > 0,
        "low-rank products beside attention (Laurel)": kind.laurel_rank > 0,
        "per-layer inputs": kind.per_layer_inputs is not None,
    }
    return [part for part, there in has.items() if there]


def reason(model: ModelSpec) -> str:
    """Why estimates refuse a model; empty where they do not."""
    parts = uncosted(model)
    if not parts:
        return ""
    return (
        f"model must be one whose layers are costed, but {model.name} has {', '.join(parts)}: no"
        f" formula of their time and memory yet; `ppplan models {model.name}` shows its parameters"
    )


def refuse(model: ModelSpec) -> None:
    """Raises InputError for a model that would be answered as if it were something else."""
    says = reason(model)
    if says:
        raise InputError(says)
