"""The switches of the software that keep the arithmetic, searched with the layouts: what makes the
fastest of them faster is turned, and turned back where a plan hardly needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from planner.cost.terms import Estimate
from planner.estimate import closed_memory, closed_time, estimate, parts
from planner.layout import Layout, Layouts
from planner.rules.table import breaches, mask
from planner.search.branch import SHOWN, Computed, computed
from planner.specs.recipe import Recipe
from planner.specs.switches.alternatives import Alternative, keeping_arithmetic
from planner.specs.switches.switch import FIRST, Switches, Value
from planner.specs.switches.table import BY_FRAMEWORK, is_guess, settings_of, with_switches
from planner.specs.versions import Version, version_of

NEAR = 128
"""Ways to split GPUs, batch and layers of which a layout that fits, and one that does not, are
timed with each setting.
"""
FEW = 16
"""Layouts whose memory is looked at with each setting."""
SLACK = 0.05
"""Of a step: layouts so much slower are looked at too, which a switch may make the fastest."""
GAIN = 1e-9
"""Of a step: less is rounding."""

SIMULATED = 2
"""Layouts that are simulated with a switch at another value, of each."""

Score = tuple[int, float]
"""0 with what is to be small; 1 with bytes where nothing fits."""
NOTHING: Score = (2, 0.0)
"""Of layouts none of which is legal."""


def near(found: Computed) -> Layouts:
    """Of what was computed the layouts that a switch may make the fastest: of each split of GPUs,
    batch and layers the fastest that fits, and of those that are faster than all that fit the one
    that lacks least.
    """
    names, count = (*SHOWN, "v"), len(found.fits)
    split = np.stack([np.broadcast_to(getattr(found.layout, name), count) for name in names])
    _, split = np.unique(split, axis=1, return_inverse=True)
    best_s = np.min(found.step_s, where=found.fits, initial=np.inf)
    rows = []
    for some, figure in (
        (found.fits, found.step_s),
        (~found.fits & (found.step_s < best_s), found.memory_bytes),
    ):
        order = np.flatnonzero(some)
        order = order[np.argsort(figure[order], kind="stable")]
        _, first = np.unique(split.ravel()[order], return_index=True)
        rows.append(order[np.sort(first)[:NEAR]])
    return found.layout[np.concatenate(rows)]


class Turning:
    """The switches that may be turned, without those that were seen to help no layout."""

    def __init__(self, fixed: Collection[str]) -> None:
        self.fixed = fixed
        """Those that the question sets."""
        self.idle: set[tuple[str, Value]] = set()

    def faster(self, recipe: Recipe, rows: Layouts) -> Recipe:
        """The recipe with the switches under which the fastest of the layouts is fastest, or where
        none fits the one that lacks least lacks less: one after another is set where it gains, the
        one that gains most first. What makes no layout faster, smaller or legal is idle from then.
        """
        now = _Timed(recipe, rows)
        best, gaining = now.score, []
        for other, changed in self._others(recipe, rows):
            if other.switch.frees and best[0] == 0:
                continue  # what waits in host memory costs more than the model knows
            timed = _Timed(changed, rows)
            if not timed.helps(now):
                self.idle.add((other.switch.name, other.value))
            elif _better(timed.score, best):
                gaining.append((timed.score, other))
        for at, (score, other) in enumerate(sorted(gaining, key=lambda pair: pair[0])):
            changed = other.taken(recipe)
            score = _Timed(changed, rows).score if at else score
            if _better(score, best):
                recipe, best = changed, score
        return recipe

    def roomier(self, recipe: Recipe, rows: Layouts) -> Recipe:
        """The recipe with every switch under which the smallest of the layouts is smaller, but for
        what frees memory alone.
        """
        least = _least_bytes(recipe, rows)
        for other, changed in self._others(recipe, rows):
            memory_bytes = np.inf if other.switch.frees else _least_bytes(changed, rows)
            if memory_bytes < least * (1 - GAIN):
                recipe = other.taken(recipe)
        return recipe

    def candidates(
        self, recipe: Recipe, rows: Layouts, step_s: float
    ) -> Iterator[tuple[Recipe, Layout]]:
        """Layouts that may be faster than so many seconds once simulated, with one switch at
        another value that makes them faster or lets them fit: of each value the SIMULATED that are
        fastest by closed form. rows: legal as they are.
        """
        if not len(rows):
            return
        now = computed(recipe, rows)
        for other, changed in self._others(recipe, rows):
            some = np.flatnonzero(mask(changed, rows)[0])
            if not len(some) or other.switch.frees:
                continue
            found = computed(changed, rows[some])
            gains = (found.step_s < now.step_s[some] * (1 - GAIN)) | ~now.fits[some]
            may = np.flatnonzero(gains & found.fits & (found.floor_s < step_s * (1 - GAIN)))
            for row in may[np.argsort(found.step_s[may], kind="stable")][:SIMULATED].tolist():
                yield changed, rows[int(some[row])]

    def _others(self, recipe: Recipe, rows: Layouts) -> Iterator[tuple[Alternative, Recipe]]:
        """Other values that act in some of the layouts, and the recipe with each."""
        for other in keeping_arithmetic(recipe, self.fixed):
            if (other.switch.name, other.value) in self.idle:
                continue
            changed = other.taken(recipe)
            if np.any(other.switch.exists(changed, rows) & other.switch.acts(changed, rows)):
                yield other, changed


class _Timed:
    """Layouts under a recipe: columns, seconds and bytes without end where one is not legal."""

    def __init__(self, recipe: Recipe, rows: Layouts) -> None:
        self.step_s, self.memory_bytes = np.full(len(rows), np.inf), np.full(len(rows), np.inf)
        self.fits = np.zeros(len(rows), bool)
        legal = np.flatnonzero(mask(recipe, rows)[0])
        if len(legal):
            known = parts(recipe, rows[legal])
            self.step_s[legal] = closed_time(recipe, rows[legal], known).step_s
            self.memory_bytes[legal], self.fits[legal] = closed_memory(recipe, rows[legal], known)

    @property
    def score(self) -> Score:
        if self.fits.any():
            return 0, float(self.step_s[self.fits].min())
        least = float(self.memory_bytes.min(initial=np.inf))
        return (1, least) if np.isfinite(least) else NOTHING

    def helps(self, other: _Timed) -> bool:
        """Whether any layout is faster or smaller than it is in another recipe, or legal here
        alone.
        """
        faster = self.step_s < other.step_s * (1 - GAIN)
        return bool(np.any(faster | (self.memory_bytes < other.memory_bytes * (1 - GAIN))))


def _least_bytes(recipe: Recipe, rows: Layouts) -> float:
    legal = rows[np.flatnonzero(mask(recipe, rows)[0])]
    if not len(legal):
        return float("inf")
    return float(np.min(closed_memory(recipe, legal, parts(recipe, legal))[0]))


def _better(score: Score, best: Score) -> bool:
    return score[0] < best[0] or (score[0] == best[0] and score[1] < best[1] * (1 - GAIN))


def plainer(recipe: Recipe, own: Recipe, layout: Layout, limit_s: float) -> tuple[Recipe, Estimate]:
    """The recipe with as many switches as its software has them as the layout needs to fit and to
    take no longer than limit_s; and the layout's estimate then. Guesses go first, then what is
    youngest.

    own: the recipe with the software's switches as the question has them.
    """
    simulated = estimate(recipe, layout, exact=True)
    for name in _by_youth(recipe, settings_of(own.software)):
        settings = _back(recipe, settings_of(own.software), name)
        software = with_switches(recipe.software, settings)
        changed = recipe.model_copy(update={"software": software})
        if not settings or breaches(changed, layout):
            continue
        other = estimate(changed, layout, exact=True)
        if other.fits and other.step_s <= limit_s:
            recipe, simulated = changed, other
    return recipe, simulated


def _by_youth(recipe: Recipe, own: Switches) -> list[str]:
    """The switches that are not as the software has them, guesses first, then the youngest."""
    version = version_of(recipe.framework, recipe.framework_version)

    def since(name: str) -> Version:
        spelling = BY_FRAMEWORK[recipe.framework][name].spelled(now[name], version)
        return spelling.since if spelling else FIRST

    now = settings_of(recipe.software)
    differing = [name for name in now if now[name] != own[name]]
    by_youth = sorted(differing, key=since, reverse=True)
    return sorted(by_youth, key=lambda name: not is_guess(recipe.framework, name))


def _back(recipe: Recipe, own: Switches, name: str) -> Switches:
    """A switch as the software has it, with those that require its value now; none where it is so
    already.
    """
    now = settings_of(recipe.software)
    if now[name] == own[name]:
        return {}
    table = BY_FRAMEWORK[recipe.framework]
    requiring = [other for other in now if (name, now[name]) in table[other].requires]
    return {other: own[other] for other in (name, *requiring)}


def differing(recipe: Recipe, own: Recipe) -> Switches:
    """The switches of a recipe that another has at other values."""
    others = settings_of(own.software)
    return {n: value for n, value in settings_of(recipe.software).items() if value != others[n]}
