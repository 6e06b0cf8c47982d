"""Plans that differ from the best, each for a reason: up to one of each role, and one plan may hold
several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.cost.terms import Estimate
from planner.enumerate import menus
from planner.enumerate.menus import crossed
from planner.layout import RECOMPUTE_CODE, SCHEDULE_CODE, Layout, Layouts, Numeric
from planner.rules.table import mask
from planner.search.branch import KNOBS, NOTHING, Computed, computed, explore, joined, together
from planner.specs.guesses import guessed
from planner.specs.recipe import Bounds, Recipe
from planner.specs.switches.table import BY_FRAMEWORK, settings_of
from planner.specs.versions import KNOWN, version_of

ROOMIEST = 0.03
"""How much slower than the fastest the roomiest may be."""
SIMPLEST = 0.10
"""The same of the simplest."""
PRICED_AGAIN = 4096
"""Layouts that are looked at under other switches than those that they were computed with."""
TRIED = 8
"""Layouts simulated for a role at most: the closed form that ranks them is near."""
FOLLOW = ("dp", "m", "group", "recompute_modules")
"""Knobs that follow from others."""


@dataclass(frozen=True, slots=True)
class Role:
    """Why a layout is among the plans."""

    name: str
    says: str
    """In a few words."""

    def __str__(self) -> str:
        return f"{self.name}: {self.says}"


Simulated = Callable[[Layout], Estimate | None]
"""Of a layout its estimate; None where it does not fit."""


def alternatives(
    recipe: Recipe, found: Computed, simulated: Simulated, fastest: Layout, fastest_s: float
) -> list[tuple[Role, Layout]]:
    """The roomiest, the simplest and the fastest of another family. found: what was computed,
    complete up to ROOMIEST above the fastest.
    """
    limit_s = fastest_s * (1 + ROOMIEST)
    every = with_more_recomputed(recipe, found, limit_s)
    near = _near(every, limit_s)
    order = near[np.lexsort((every.step_s[near], every.memory_bytes[near]))]
    says = f"the most free memory, {ROOMIEST:.0%} slower at most"
    chosen = [(Role("roomiest", says), _first(every, order, simulated, limit_s))]

    limit_s = fastest_s * (1 + SIMPLEST)
    near = _near(found, limit_s)
    away = np.broadcast_to(knobs_away(found.layout), len(found.step_s))[near]
    order = near[np.lexsort((found.step_s[near], away))]
    says = f"the fewest knobs away from the defaults, {SIMPLEST:.0%} slower at most"
    chosen.append((Role("simplest", says), _first(found, order, simulated, limit_s)))

    own = family(fastest)
    other = _of_another_family(found, simulated, own)
    other = other or _of_another_family(_elsewhere(recipe, own), simulated, own)
    if other is not None:
        says = f"the fastest by {family(other)}, not {own}"
        chosen.append((Role("other family", says), other))
    return [(role, layout) for role, layout in chosen if layout is not None]


def conservative(
    recipe: Recipe, found: Computed, simulated: Simulated, preferred: tuple[Layout, ...]
) -> tuple[Role, Layout | None]:
    """The first of the preferred that the release before can run, else the fastest; None where none
    of what was computed is, or no release before is known.
    """
    before = earlier(recipe)
    release = before.framework_version if before else "unknown"
    role = Role("conservative", f"nothing that {recipe.framework} {release} lacks, no guess")
    for layout in preferred:
        if is_old(recipe, layout)[0] and simulated(layout) is not None:
            return role, layout
    order = _fastest_first(found)
    order = order[is_old(recipe, found.layout[order])] if len(order) else order
    return role, _first(found, order, simulated)


def priced_again(recipe: Recipe, found: Computed) -> Computed:
    """The fastest of what was computed, under other switches."""
    layouts = found.layout[_fastest_first(found)[:PRICED_AGAIN]]
    legal, _ = mask(recipe, layouts)
    return computed(recipe, layouts[np.flatnonzero(legal)]) if legal.any() else NOTHING


def _first(
    found: Computed, order: np.ndarray, simulated: Simulated, limit_s: float = np.inf
) -> Layout | None:
    """The first that fits in so many seconds when it is simulated."""
    for row in order[:TRIED].tolist():
        layout = found.layout[row]
        its = simulated(layout)
        if its is not None and its.step_s <= limit_s:
            return layout
    return None


def _of_another_family(found: Computed, simulated: Simulated, own: str) -> Layout | None:
    order = _fastest_first(found)
    order = order[_families(found.layout[order]) != own] if len(order) else order
    return _first(found, order, simulated)


def knobs_away(layout: Layouts) -> Numeric:
    """How many knobs are not at their defaults, of those that do not follow from others: sequence
    parallelism goes with tp, interleaving with v.
    """
    default = Layout()
    away: Numeric = 0
    for name in KNOBS:
        if name not in (*FOLLOW, "sp", "schedule"):
            away = away + np.not_equal(getattr(layout, name), getattr(default, name))
    usual = np.where(layout.interleaved, SCHEDULE_CODE["interleaved"], SCHEDULE_CODE["1f1b"])
    with_tp = layout.sequence_split == layout.tensor_split
    return away + np.where(with_tp, 0, 1) + np.not_equal(layout.schedule, usual)


FAMILIES = (
    "sharded weights",
    "a pipeline",
    "context parallelism",
    "tensor parallelism",
    "replicas",
)


def _families(layout: Layouts) -> np.ndarray:
    """By what a layout is made to fit: the first of FAMILIES that it has."""
    cases = [
        layout.sharded(2),
        layout.pipelined,
        np.asarray(layout.cp) > 1,
        layout.tensor_split,
    ]
    codes = np.select([np.broadcast_to(case, len(layout)) for case in cases], range(4), 4)
    names: np.ndarray = np.array(FAMILIES)[codes]
    return names


def family(layout: Layout) -> str:
    """Of one layout."""
    return str(_families(layout)[0])


def _elsewhere(recipe: Recipe, own: str) -> Computed:
    """The fastest layouts outside a family, as a search of its own finds them."""
    most = recipe.gpus
    ways = {
        "sharded weights": [{"zero": (0, 1)}],
        "a pipeline": [{"pp": (1, 1)}],
    }.get(own, [{"pp": (2, most)}, {"zero": (2, 3)}])
    found = []
    for way in ways:
        knobs = dict(recipe.knobs)
        for name, (low, high) in way.items():
            asked = knobs.get(name, Bounds(low=low, high=high))
            knobs[name] = Bounds(low=max(low, asked.low), high=min(high, asked.high))
        if all(bounds.low <= bounds.high for bounds in knobs.values()):
            found.append(explore(recipe.model_copy(update={"knobs": knobs}), 1).computed)
    return together(found)


def earlier(recipe: Recipe) -> Recipe | None:
    """The question under the framework's release before; None where none is known."""
    now = version_of(recipe.framework, recipe.framework_version)
    known = [text for text in KNOWN[recipe.framework] if text != "main"]
    before = [text for text in known if version_of(recipe.framework, text) < now]
    return recipe.model_copy(update={"framework_version": before[-1]}) if before else None


def is_old(recipe: Recipe, layouts: Layouts) -> np.ndarray:
    """Which layouts break no rule of the release before, and have no switch on that it cannot
    write or whose effect is a guess.
    """
    before = earlier(recipe)
    if before is None:
        return np.full(len(layouts), False)
    holds, _ = mask(before, layouts)
    version = version_of(recipe.framework, before.framework_version)
    unsure = guessed(recipe)
    for name, value in settings_of(recipe.software).items():
        switch = BY_FRAMEWORK[recipe.framework][name]
        if value != switch.first and (name in unsure or switch.spelled(value, version) is None):
            holds = holds & ~np.asarray(
                switch.exists(recipe, layouts) & switch.acts(recipe, layouts)
            )
    return np.broadcast_to(holds, len(layouts))


def with_more_recomputed(recipe: Recipe, found: Computed, limit_s: float) -> Computed:
    """What was computed, and of what is as fast as a limit every other recomputation: the search
    leaves those out where none is needed.
    """
    near = _near(found, limit_s)
    if not len(near):
        return found
    plain = found.layout[near]
    columns = np.stack([np.broadcast_to(getattr(plain, name), len(near)) for name in KNOBS])
    fixed = [KNOBS.index(name) for name in menus.RECOMPUTATION]
    columns[fixed] = 0
    _, rows = np.unique(columns, axis=1, return_index=True)
    choices = menus.recomputations(recipe)
    every = [crossed(plain[rows], choices)]
    if "recompute_layers" not in recipe.knobs:
        full = every[0][np.flatnonzero(every[0].recompute == RECOMPUTE_CODE["full"])]
        most = -(-recipe.model.num_layers // (np.asarray(full.pp) * full.v))
        layers = {"recompute_layers": np.arange(1, int(np.max(most, initial=1)))}
        if len(full) and len(layers["recompute_layers"]):
            some = crossed(full, layers)
            whole = np.repeat(most, len(layers["recompute_layers"]))
            every.append(some[np.flatnonzero(some.recompute_layers < whole)])
    layouts = joined(every)
    legal, _ = mask(recipe, layouts)
    return together([found, computed(recipe, layouts[np.flatnonzero(legal)])])


def _near(found: Computed, limit_s: float) -> np.ndarray:
    return np.flatnonzero(found.fits & (found.step_s <= limit_s))


def _fastest_first(found: Computed) -> np.ndarray:
    fits = np.flatnonzero(found.fits)
    return fits[np.argsort(found.step_s[fits], kind="stable")]
