"""What is measured of a plan on the devices that are here: the plan itself, or full-size layers of
it in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.layout import RECOMPUTE_CODE, Layout
from planner.specs.model import ModelSpec
from planner.specs.recipe import Recipe

SHALLOW, DEEP = 1, 3
"""Layers of the two depths whose difference is the time of a layer: what a stack has beside its
layers falls out.
"""


@dataclass(frozen=True, slots=True)
class Proxy:
    """What stands in for a plan."""

    ranks: int
    """Processes, one a device."""
    runs_plan: bool
    """The plan itself runs, and nothing stands in for it."""
    share: int = 1
    """Of tensor parallelism: a lone device runs 1/share of every matrix and none of the
    communication.
    """
    words: str = ""
    """For people; empty when the plan itself runs."""


def decide(recipe: Recipe, layout: Layout, devices: int) -> Proxy:
    """The whole plan where it fits; else its tensor-parallel group; else one rank's share of it.
    Memory is not looked at.
    """
    if layout.gpus <= devices:
        return Proxy(ranks=layout.gpus, runs_plan=True)
    ranks = layout.tp if layout.tp <= devices else 1
    share = layout.tp // ranks
    return Proxy(ranks, False, share, _words(recipe, layout, devices, ranks, share))


def _words(recipe: Recipe, layout: Layout, devices: int, ranks: int, share: int) -> str:
    here = f"{devices} device{'s' * (devices > 1)} for a plan of {layout.gpus:,}"
    parts, on = "embedding, head and layers", "on one of them"
    if len(kinds(recipe)) > 1:
        parts += " (dense and with experts apart)"
    if ranks > 1:
        on = f"on {ranks} of them at tp={layout.tp}"
    if share > 1:
        on += (
            f" as the share of one of {share} tensor-parallel ranks, whose communication stays the"
            " cost model's"
        )
    return (
        f"{here}: full-size {parts} of mbs={layout.mbs}, seq_length={recipe.seq_length:,} were"
        f" timed {on}, a layer as the difference of stacks of {DEEP} and {SHALLOW}; the"
        f" pipeline is simulated from these times, {_not_timed(layout)} stay the cost model's"
    )


def _not_timed(layout: Layout) -> str:
    words = (
        ("transfers between stages", layout.pp > 1),
        ("data-parallel communication", layout.dp * layout.cp > 1),
        ("the exchange of tokens between experts", layout.ep > 1),
        ("the context-parallel exchange", layout.cp > 1),
        ("the optimizer step", True),
    )
    return ", ".join(part for part, needed in words if needed)


def kind(model: ModelSpec) -> str:
    """What is measured for a layer, of a model whose layers are alike (Recipe.kinds)."""
    return "experts" if model.moe else "dense"


def kinds(recipe: Recipe) -> tuple[str, ...]:
    """Which of them a model has: dense, experts, or both."""
    return tuple(sorted({kind(each.model) for each in recipe.kinds}))


def pieces(recipe: Recipe) -> list[dict[str, Any]]:
    """The stacks to time: two depths of each kind of layer, then the ends on the first kind's
    shallow one.
    """
    out: list[dict[str, Any]] = []
    for kind in kinds(recipe):
        for depth in (SHALLOW, DEEP):
            out.append({"name": f"{kind}-{depth}", "kind": kind, "layers": depth})
    for end in ("embedding", "head"):
        out.append({"name": end, "kind": kinds(recipe)[0], "layers": SHALLOW, end: True})
    return out


def recomputed(layout: Layout) -> bool:
    """Whether every layer is recomputed; where only some are, layers are timed without and the cost
    model's share is added.
    """
    return layout.recompute != RECOMPUTE_CODE["full"] or not layout.recompute_layers
