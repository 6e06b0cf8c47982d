"""Where nothing fits: the fewest GPUs, and the changes of the question that would let a layout
fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, starmap

import numpy as np

from planner.cost.terms import Estimate
from planner.enumerate import menus
from planner.enumerate.menus import crossed
from planner.estimate import closed_form
from planner.layout import Layout, Layouts
from planner.numeric import distinct
from planner.rules import table
from planner.search.answer import Change
from planner.search.branch import (
    NOTHING,
    Computed,
    computed,
    explore,
    fits_somehow,
    joined,
)
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Value
from planner.specs.switches.table import BY_FRAMEWORK, shown, with_switches
from planner.specs.versions import version_of

MAX_GPUS = 131_072
JUDGED = 24
"""Splits, and stages of each, among which the nearest legal one is looked for."""
SAMPLED = 12
"""The same, among which what fits with less is looked for."""
ENDLESS_GIB = 1e12
CHANGES = 5
"""Of what would let a layout fit, as many as an answer names."""


def min_gpus(recipe: Recipe) -> int | None:
    """The smallest number of GPUs on which a layout fits, or None up to 131,072.

    Doubles until one fits, then looks at whole nodes in between (single GPUs below a node); a count
    that no layout can use is passed over.
    """
    counts = _counts(recipe)
    for index, gpus in enumerate(counts):
        if fits_somehow(_resized(recipe, gpus)):
            return _fewest(recipe, counts[index - 1] if index else 0, gpus)
    return None


def fitting(recipe: Recipe, gpus: int) -> tuple[Layout, Estimate] | None:
    """The fastest layout that fits on so many GPUs, closed form."""
    resized = _resized(recipe, gpus)
    found = explore(resized, 1).computed
    if not found.fits.any():
        return None
    layout = found.layout[int(np.argmin(np.where(found.fits, found.step_s, np.inf)))]
    return layout, closed_form(resized, layout)


def nearest_refusal(recipe: Recipe) -> str:
    """Where no layout is legal, what refuses one that breaks the fewest rules; else empty."""
    if fits_somehow(_roomy(recipe)):
        return ""
    every = sampled(recipe, JUDGED)
    return table.nearest_refusal(recipe, every) if every is not None else ""


def sampled(recipe: Recipe, count: int) -> Layouts | None:
    """Layouts of so many splits, evenly taken, with so many stages of each, every sharding and
    recomputation, legal or not; None where the question leaves none.
    """
    splits = menus.splits(recipe)
    splits = splits if len(splits) else menus.splits(recipe, whole=False)
    shardings, recomputations = menus.shardings(recipe), menus.recomputations(recipe)
    if not (len(splits) and len(shardings["zero"]) and len(recomputations["recompute"])):
        return None
    few = splits[np.unique(np.linspace(0, len(splits) - 1, count).astype(int))]
    rows, staged = crossed(few, shardings), []
    for pp in distinct(rows.pp):
        stages = {name: column[:count] for name, column in menus.stagings(recipe, pp).items()}
        same = rows[np.flatnonzero(rows.pp == pp)]
        staged.append(crossed(same, stages) if len(stages["v"]) else same)
    return crossed(joined(staged), recomputations)


def legal_sample(recipe: Recipe, most: int | None = None) -> Computed:
    """Legal layouts all over the space, with few stages of each split, so many at most: of what
    does not fit, what may with less.
    """
    every = sampled(recipe, SAMPLED)
    if every is None:
        return NOTHING
    ok, _ = table.mask(recipe, every)
    legal = np.flatnonzero(ok)
    if most is not None and len(legal) > most:
        legal = legal[np.linspace(0, len(legal) - 1, most).astype(int)]
    return computed(recipe, every[legal])


def _roomy(recipe: Recipe) -> Recipe:
    """The recipe with memory without end: what does not fit then is not legal."""
    gpu = recipe.hardware.gpu.model_copy(update={"usable_gib": ENDLESS_GIB})
    node = recipe.hardware.node.model_copy(update={"host_memory_gib": ENDLESS_GIB})
    hardware = recipe.hardware.model_copy(update={"gpu": gpu, "node": node})
    return recipe.model_copy(update={"hardware": hardware, "max_memory_gib": None})


def _resized(recipe: Recipe, gpus: int) -> Recipe:
    return recipe.model_copy(update={"gpus": gpus})


def _counts(recipe: Recipe) -> list[int]:
    """GPU counts to try: powers of two up to a node, then doubling nodes."""
    node = recipe.hardware.node.gpus
    most = min(recipe.hardware.max_gpus or MAX_GPUS, MAX_GPUS)
    doubled = [2**i for i in range(most.bit_length())]
    counts = [gpus for gpus in doubled if gpus < node] + [node * times for times in doubled]
    return [gpus for gpus in counts if gpus <= most]


def _fewest(recipe: Recipe, failed: int, fits: int) -> int:
    """The smallest fitting count above the largest that failed: in 16 steps, then inside the step
    that fits, down to whole nodes.
    """
    unit = recipe.hardware.node.gpus if fits > recipe.hardware.node.gpus else 1
    step = unit * max(-(-(fits - failed) // (16 * unit)), 1)
    between = range(failed + step, fits, step)
    first = next((n for n in between if fits_somehow(_resized(recipe, n))), fits)
    return first if step == unit else _fewest(recipe, max(first - step, failed), first)


def nearest(recipe: Recipe, fewest: int | None, count: int = CHANGES) -> tuple[Change, ...]:
    """Changes that let a layout fit, cheapest first, so many at most: a limit of the question
    lifted, then fewer GPUs, then more.
    """
    lifted = [
        (f"leave out switch {name}={shown(value)}", without, recipe.gpus)
        for name, value, without in _without_switches(recipe)
    ]
    for name in recipe.knobs:
        others = dict(recipe.knobs)
        del others[name]
        freed = recipe.model_copy(update={"knobs": others})
        lifted.append((f"leave {name} to the search", freed, recipe.gpus))
    if recipe.max_memory_gib:
        freed = recipe.model_copy(update={"max_memory_gib": None})
        lifted.append(("lift the memory limit", freed, recipe.gpus))
    counts = sorted({*_usable(recipe), fewest or recipe.gpus} - {recipe.gpus})
    counts.sort(key=lambda gpus: (gpus > recipe.gpus, abs(gpus - recipe.gpus)))
    tried = [*lifted, *((f"use {gpus:,} GPUs", recipe, gpus) for gpus in counts)]
    fits = filter(None, starmap(_change, tried))
    return tuple(islice(fits, count))


def _without_switches(recipe: Recipe) -> Iterator[tuple[str, Value, Recipe]]:
    """The recipe without each of the switches that are not as its stack has them, with the value
    that it has now.
    """
    own = library.stack(recipe.software.name).switches
    version = version_of(recipe.framework, recipe.framework_version)
    for name, value in recipe.software.switches.items():
        switch = BY_FRAMEWORK[recipe.framework][name]
        before = own.get(name, switch.default)
        if before == value or switch.spelled(before, version) is None:
            continue
        software = with_switches(recipe.software, {name: before})
        yield name, value, recipe.model_copy(update={"software": software})


def _usable(recipe: Recipe) -> list[int]:
    """Whole-node counts around the asked one, which layouts may divide better."""
    node = recipe.hardware.node.gpus
    below = recipe.gpus // node * node
    near = {below, below + node, 1 << (recipe.gpus.bit_length() - 1), 1 << recipe.gpus.bit_length()}
    return sorted(n for n in near if 0 < n <= MAX_GPUS and n != recipe.gpus)


def _change(says: str, recipe: Recipe, gpus: int) -> Change | None:
    best = fitting(recipe, gpus)
    if best is None:
        return None
    costs = "nothing"
    if gpus != recipe.gpus:
        costs = "more GPUs" if gpus > recipe.gpus else "fewer GPUs"
    return Change(says, *best, costs)
