"""What is known by name: models, clusters, schedules, stacks, each with its sources."""

from __future__ import annotations

from typing import Any

from planner.cost.params.experts import moe_layers_below
from planner.cost.params.layer import (
    active_params,
    layer_params,
    moe_layer_params,
    mtp_params,
    total_params,
)
from planner.errors import unknown
from planner.specs import library
from planner.specs.model import ModelSpec

Documents = tuple[dict[str, Any], ...]


def models(name: str | None = None) -> Documents:
    """Presets with their parameter counts; one of them (or a config.json) in full."""
    documents = [library.model(key) for key in ([name] if name is not None else library.models())]
    return tuple({**model.model_dump(mode="json"), **_counts(model)} for model in documents)


def _counts(model: ModelSpec) -> dict[str, Any]:
    """All parameters, those that a token uses, and those of a layer; None for a kind of layer that
    the model has not.
    """
    experts = int(moe_layers_below(model, model.num_layers))
    return {
        "parameters": total_params(model),
        "active_parameters": active_params(model),
        "layer_parameters": int(layer_params(model)) if experts < model.num_layers else None,
        "moe_layer_parameters": int(moe_layer_params(model)) if experts else None,
        "mtp_parameters": int(mtp_params(model)) if model.mtp_layers else None,
    }


def clusters(name: str | None = None) -> Documents:
    """Hardware profiles: GPU, node, fabric, kernel rates, each group of figures with its source."""
    return tuple(
        library.hardware(key).model_dump(mode="json")
        for key in ([name] if name is not None else library.clusters())
    )


def stacks(name: str | None = None) -> Documents:
    """Training software: what it overlaps, fuses and keeps."""
    return tuple(
        library.stack(key).model_dump(mode="json")
        for key in ([name] if name is not None else library.stacks())
    )


def schedules(name: str | None = None) -> Documents:
    """Pipeline schedules, each with what its module says of it, and the stacks that can run it."""
    from planner.schedules.table import SCHEDULES

    if name is not None and name not in SCHEDULES:
        raise unknown("schedule", name, SCHEDULES)
    able = {stack: library.stack(stack).schedules for stack in library.stacks()}
    documents = (
        {
            "name": key,
            "says": " ".join((SCHEDULES[key].says or "").split()),
            "stacks": [stack for stack, runs in able.items() if key in runs],
        }
        for key in ([name] if name is not None else SCHEDULES)
    )
    return tuple(documents)
