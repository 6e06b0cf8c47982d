"""What people hand over that is no launch: a folder, a pipe, a model, a saved plan; each with the
way to what they want.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from planner.errors import InputError

PYTHON = (".py", ".pyw", ".ipynb")


def refuse_python(place: Path, head: str) -> None:
    """InputError for a program: what it would pass to a framework only running it tells."""
    first = head.partition("\n")[0]
    if place.suffix.lower() in PYTHON or (first.startswith("#!") and "python" in first):
        raise InputError(
            f"{place.name} must say how a training is launched, but is Python, which is neither run"
            " nor read; name the shell or Slurm script that starts it, its configuration (JSON,"
            " YAML, TOML), or its log"
        )


def says(name: str, keys: Collection[str]) -> str | None:
    """The message for a document that describes something else than a training; None where it does
    not.
    """
    keys = set(keys)
    if {"layout", "question", "estimate"} <= keys:
        return (
            f"{name} must say how a training is launched, but is a saved plan: ppplan explain"
            f" {name} or ppplan emit {name} takes it"
        )
    if {"model_type", "architectures"} & keys and {
        "num_hidden_layers",
        "n_layer",
        "num_layers",
        "n_layers",
        "text_config",
    } & keys:
        return f"{name} must say how a model is trained, but describes a model: " + _model(name)
    if {"num_layers", "hidden_size", "num_heads"} <= keys:
        return f"{name} must say how a model is trained, but is a model of ppplan's: " + _model(
            name
        )
    if "gpu" in keys and {"node", "fabric"} & keys:
        return (
            f"{name} must say how a training is launched, but is a hardware profile: --cluster"
            f" {name} takes it beside a script"
        )
    if {"model", "gpus", "cluster"} <= keys:
        return (
            f"{name} must say how a training is launched, but is a question: ppplan recommend"
            f" {name} answers it"
        )
    if "weight_map" in keys:
        return (
            f"{name} must say how a model is trained, but lists the files of a checkpoint; name the"
            " script that trains it"
        )
    return None


def _model(name: str) -> str:
    return (
        f"ppplan recommend --model {name} --gpus N --cluster NAME plans its training; beside a"
        f" script check takes it as --model {name}"
    )
