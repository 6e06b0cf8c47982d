"""What other software that starts a framework cannot express: Accelerate's configuration, recipes
of Megatron-Bridge, scripts of Hugging Face's Trainer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.layout import Layout, Layouts, Mask
from planner.rules.rule import Rule
from planner.specs.deepspeed import in_megatron
from planner.specs.megatron import sharded_by_torch
from planner.specs.recipe import Recipe


def _where(
    launchers: tuple[str, ...], framework: str, holds: Callable[[Recipe, Layouts], Mask]
) -> Callable[[Recipe, Layouts], Mask]:
    """Holds under every other launcher, and framework where one is named."""

    def bound(recipe: Recipe, layout: Layouts) -> Mask:
        started = recipe.launched_by in launchers and framework in ("", recipe.framework)
        return holds(recipe, layout) if started else np.asarray(True)

    return bound


def _way(says: str) -> Callable[[Recipe, Layout], str]:
    return lambda recipe, layout: says


RULES = (
    Rule(
        "Accelerate has no pipeline",
        _where(("accelerate", "trainer"), "", lambda recipe, layout: np.asarray(layout.pp) == 1),
        "Accelerate has no pipeline, but got pp={layout.pp}",
        _way("try --pp 1, or leave --format out"),
    ),
    Rule(
        "Accelerate's FSDP shards",
        _where(
            ("accelerate",),
            "torch",
            lambda recipe, layout: np.asarray(layout.dp) * np.asarray(layout.cp) > 1,
        ),
        "Accelerate's FSDP shards over dp and cp, but both are 1",
        _way("try dp 2 or more"),
    ),
    Rule(
        "Accelerate's FSDP splits no experts",
        _where(
            ("accelerate", "trainer"), "torch", lambda recipe, layout: np.asarray(layout.ep) == 1
        ),
        "Accelerate's FSDP splits no experts, but got ep={layout.ep}",
        _way("try ep 1, or --framework deepspeed"),
    ),
    Rule(
        "Accelerate does not start Megatron-DeepSpeed",
        _where(
            ("accelerate", "trainer"),
            "deepspeed",
            lambda recipe, layout: ~np.asarray(in_megatron(recipe, layout), bool),
        ),
        "tp under DeepSpeed {recipe.framework_version} is Megatron-DeepSpeed's, which Accelerate"
        " does not start, but got tp={layout.tp}",
        _way("try --tp 1, or a later --framework-version"),
    ),
    Rule(
        "Megatron-Bridge shards by Megatron-FSDP",
        _where(
            ("bridge",),
            "megatron",
            lambda recipe, layout: ~np.asarray(sharded_by_torch(recipe, layout), bool),
        ),
        "zero 2 and 3 under Megatron-Bridge are Megatron-FSDP, but got torch's FSDP2",
        _way("try stack megatron-bridge"),
    ),
)
