"""What is measured of a plan on the devices that are here: the plan itself, or full-size layers of
it in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.cost.params.experts import moe_layers_below
from planner.layout import RECOMPUTE_CODE, Layout
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
    whole: bool
    """The plan itself runs."""
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
        return Proxy(ranks=layout.gpus, whole=True)
    ranks = layout.tp if layout.tp <= devices else 1
    share = layout.tp // ranks
    return Proxy(ranks, False, share, _words(recipe, layout, devices, ranks, share))


def describe(recipe: Recipe, layout: Layout, devices: int) -> str:
    """One sentence on what is measured in place of the plan; empty when the plan itself runs."""
    return decide(recipe, layout, devices).words


def _words(recipe: Recipe, layout: Layout, devices: int, ranks: int, share: int) -> str:
    here = f"{devices} device{'s' * (devices > 1)} for a plan of {layout.gpus:,}"
    on = f"on {ranks} of them at tp={layout.tp}" if ranks > 1 else "on one of them"
    part = (
        f" as the share of one of {share} tensor-parallel ranks, whose communication stays the cost"
        " model's"
        if share > 1
        else ""
    )
    parts = (
        "embedding, head and layers (dense and with experts apart)"
        if len(kinds(recipe)) > 1
        else "embedding, head and layers"
    )
    return (
        f"{here}: full-size {parts} of mbs={layout.mbs}, seq_length={recipe.seq_length:,} were"
        f" timed {on}{part}, a layer as the difference of stacks of {DEEP} and {SHALLOW}; the"
        f" pipeline is simulated from these times, {_left(layout)} stay the cost model's"
    )


def _left(layout: Layout) -> str:
    left = ["transfers between stages"] * (layout.pp > 1) + ["data-parallel communication"] * (
        layout.dp * layout.cp > 1
    )
    left += ["the exchange of tokens between experts"] * (layout.ep > 1) + [
        "the context-parallel exchange"
    ] * (layout.cp > 1)
    return ", ".join([*left, "the optimizer step"])


def kinds(recipe: Recipe) -> tuple[str, ...]:
    """Which kinds of layers a model has: dense, experts, or both."""
    expert_layers = int(moe_layers_below(recipe.model, recipe.model.num_layers))
    return ("dense",) * (expert_layers < recipe.model.num_layers) + ("experts",) * (
        expert_layers > 0
    )


def pieces(recipe: Recipe) -> list[dict[str, Any]]:
    """The stacks to time: two depths of each kind of layer, then the ends on the first kind's
    shallow one.
    """
    depths = [
        {"name": f"{kind}-{depth}", "kind": kind, "layers": depth}
        for kind in kinds(recipe)
        for depth in (SHALLOW, DEEP)
    ]
    first = kinds(recipe)[0]
    ends = [
        {"name": end, "kind": first, "layers": SHALLOW, end: True} for end in ("embedding", "head")
    ]
    return depths + ends


def recomputed(layout: Layout) -> bool:
    """Whether every layer is recomputed; where only some are, layers are timed without and the cost
    model's share is added.
    """
    return layout.recompute != RECOMPUTE_CODE["full"] or not layout.recompute_layers
