"""Recipes and layouts that the tests of rules and output share."""

from __future__ import annotations

from typing import Any

from planner.layout import SCHEDULE_CODE, Layout
from planner.specs import library
from planner.specs.model import ModelSpec
from planner.specs.recipe import Bounds, Recipe


def recipe(model: str | ModelSpec = "llama3-70b", gpus: int = 32, **changes: Any) -> Recipe:
    """A question with documents by name: model, hardware and stack may be given as names or as
    documents. framework: the software of that name, where no stack is given.
    """
    known: dict[str, Any] = {
        "hardware": "h100-sxm",
        "software": "megatron",
        "seq_length": 8192,
        "global_batch_size": 512,
        **changes,
    }
    framework = known.pop("framework", None)
    stack = known.pop("stack", framework)
    if stack is not None and "software" not in changes:
        known["software"] = stack
    parts = {"model": library.model(model) if isinstance(model, str) else model}
    for name, find in (("hardware", library.hardware), ("software", library.stack)):
        parts[name] = find(known.pop(name)) if isinstance(known[name], str) else known.pop(name)
    return Recipe(gpus=gpus, **parts, **known)


def layout(question: Recipe, **knobs: Any) -> Layout:
    """A layout that fills the recipe's GPUs and batch: dp and m follow from the rest, as do sp and
    the schedule.
    """
    known = {"tp": 1, "pp": 1, "cp": 1, "v": 1, "mbs": 1, **knobs}
    known.setdefault("dp", question.gpus // (known["tp"] * known["pp"] * known["cp"]))
    known.setdefault("m", question.global_batch_size // (known["dp"] * known["mbs"]))
    known.setdefault("sp", int(known["tp"] > 1))
    known.setdefault("schedule", SCHEDULE_CODE["interleaved" if known["v"] > 1 else "1f1b"])
    return Layout(**known)


def bounds(value: int) -> Bounds:
    """A knob that the question fixes."""
    return Bounds(low=value, high=value)
