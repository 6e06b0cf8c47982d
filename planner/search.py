"""Enumerate, mask, estimate, rank; the best few again with their pipeline simulated; and what to
say of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner import reasons
from planner.cost.named import named
from planner.cost.pipeline import refused
from planner.cost.terms import Estimate
from planner.enumerate import layouts
from planner.enumerate.balanced import faster, undealt
from planner.estimate import closed_form, estimate
from planner.layout import SCHEDULES, Layout, Layouts
from planner.rules.table import SCHEDULE_RULES, mask, nearest_refusal
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Value
from planner.specs.switches.table import BY_FRAMEWORK, shown, with_switches
from planner.specs.versions import version_of

CHUNK = 16_384
"""Layouts estimated at once: their columns stay in the processor's cache."""
FINALISTS = 2
"""More layouts than asked for that are simulated, since the simulation may reorder them."""
ALIKE = 0.002
"""Layouts this close in time count as equally fast: the simplest is taken."""
REQUESTED = 16
"""The same for a schedule without a closed form of its own, which ranks as 1F1B does until it is
simulated.
"""
SPLIT = ("tp", "pp", "dp", "cp", "mbs")
"""Of layouts that agree in these only the best is shown."""
MAX_GPUS = 131_072


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """A layout with its estimate and rank."""

    rank: int
    layout: Layout
    estimate: Estimate
    why: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: names in place of codes, memory in GiB."""
        return {
            "rank": self.rank,
            "layout": self.layout.named(),
            "estimate": named(self.estimate),
            "why": list(self.why),
        }

    def __str__(self) -> str:
        return f"{self.rank}: {self.layout}: {self.estimate.step_s:.3f} s a step"

    def __repr__(self) -> str:
        return f"<Plan {self}>"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the question that would let a layout fit."""

    change: str
    layout: Layout
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Ranked:
    """Legal layouts as columns and, of each, what ranking needs."""

    enumerated: int
    removed: dict[str, int]
    layout: Layouts
    step_s: np.ndarray
    memory_bytes: np.ndarray
    fits: np.ndarray
    seconds: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer, and what was looked at on the way."""

    enumerated: int
    legal: int
    fit: int
    removed: dict[str, int]
    """Layouts that each rule removed, counted at the first rule that does."""
    estimated: int
    estimate_seconds: float
    seconds: float
    plans: tuple[Plan, ...]
    nearest: tuple[Change, ...] | None = None
    min_gpus: int | None = None
    limits: str = ""
    """Where the best plan's time goes beyond the model's products; where no layout is legal, what
    refuses the one that is nearest to it.
    """
    ranked: Ranked | None = None
    """All legal layouts by closed form: what a picture of the search shows."""


def search(recipe: Recipe, top: int = 5) -> SearchResult:
    """The fastest layouts that fit. An empty answer carries the nearest changes that would let one
    fit, and the fewest GPUs.
    """
    started = time.perf_counter()
    ranked = _rank(recipe)
    plans = _finalists(recipe, ranked, top)
    counts: dict[str, Any] = {
        "enumerated": ranked.enumerated,
        "legal": len(ranked.step_s),
        "fit": int(ranked.fits.sum()),
        "removed": ranked.removed,
        "estimated": len(ranked.step_s),
        "estimate_seconds": ranked.seconds,
    }
    if plans:
        counts["limits"] = reasons.limit(plans[0].estimate)
    else:
        fewest = min_gpus(recipe)
        counts |= {"nearest": _nearest(recipe, fewest), "min_gpus": fewest}
        if not counts["legal"]:
            counts["limits"] = nearest_refusal(recipe, layouts(recipe))
    return SearchResult(**counts, seconds=time.perf_counter() - started, plans=plans, ranked=ranked)


def min_gpus(recipe: Recipe) -> int | None:
    """The smallest number of GPUs on which a layout fits, or None up to 131,072.

    Doubles until one fits, then looks at whole nodes in between (single GPUs below a node); a count
    that no layout can use is passed over.
    """
    counts = _counts(recipe)
    for index, gpus in enumerate(counts):
        if fitting(recipe, gpus) is not None:
            return _fewest(recipe, counts[index - 1] if index else 0, gpus)
    return None


def fitting(recipe: Recipe, gpus: int) -> tuple[Layout, Estimate] | None:
    """The fastest layout that fits on so many GPUs, closed form."""
    resized = recipe.model_copy(update={"gpus": gpus})
    ranked = _rank(resized)
    if not ranked.fits.any():
        return None
    best = int(np.argmin(np.where(ranked.fits, ranked.step_s, np.inf)))
    layout = ranked.layout[best]
    return layout, closed_form(resized, layout)


def requested(recipe: Recipe) -> str:
    """The schedule that the question fixes although the stack does not run it; empty when there is
    none.
    """
    fixed = recipe.fixed("schedule")
    if fixed is None or SCHEDULES[fixed] in recipe.software.schedules:
        return ""
    return SCHEDULES[fixed]


def _rank(recipe: Recipe) -> Ranked:
    every = layouts(recipe)
    ok, removed = mask(recipe, every, SCHEDULE_RULES if requested(recipe) else ())
    legal = every[np.flatnonzero(ok)]
    started = time.perf_counter()
    step_s, memory_bytes, fits = _estimated(recipe, legal, int(ok.sum()))
    return Ranked(
        len(ok), removed, legal, step_s, memory_bytes, fits, time.perf_counter() - started
    )


def _estimated(
    recipe: Recipe, legal: Layouts, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    step_s, memory_bytes, fits = np.empty(count), np.empty(count), np.empty(count, bool)
    for at in range(0, count, CHUNK):
        rows = slice(at, at + CHUNK)
        part = closed_form(recipe, legal[rows])
        step_s[rows], memory_bytes[rows], fits[rows] = part.step_s, part.memory_bytes, part.fits
    return step_s, memory_bytes, fits


def _finalists(recipe: Recipe, ranked: Ranked, top: int) -> tuple[Plan, ...]:
    """The best of each split of the GPUs and batch by closed form, simulated, ranked again."""
    other = requested(recipe)
    chosen = _best_splits(ranked, top + (REQUESTED if other else FINALISTS))
    if other:
        chosen = [layout for layout in chosen if not refused(recipe, layout)]
    exact = [(layout, estimate(recipe, layout, exact=True)) for layout in chosen]
    if not other:
        exact += _dealt(recipe, ranked, exact, top)
    fits = [pair for pair in exact if pair[1].fits]
    splits: dict[tuple[int, ...], tuple[Layout, Estimate]] = {}
    for pair in sorted(fits, key=lambda pair: (_ranked_s(*pair), pair[1].memory_bytes)):
        splits.setdefault(_split(pair[0]), pair)
    best = list(splits.values())[:top]
    ladder = interleaving(recipe, ranked, best[0][0]) if best else ()
    return tuple(
        Plan(rank + 1, layout, estimate, reasons.why(recipe, best, rank, ladder))
        for rank, (layout, estimate) in enumerate(best)
    )


def _ranked_s(layout: Layout, estimate: Estimate) -> float:
    """Step time for ranking: a layout that is harder to write has to pay."""
    return float(estimate.step_s) * (1 + ALIKE * bool(layout.stage_layout))


def _dealt(
    recipe: Recipe, ranked: Ranked, known: list[tuple[Layout, Estimate]], top: int
) -> list[tuple[Layout, Estimate]]:
    """Layouts with their layers dealt to the stages that are faster than the known ones of their
    split of the GPUs, and than the slowest of the best.
    """
    fastest = {_split(layout): float(each.step_s) for layout, each in known if each.fits}
    found = []
    for candidate in undealt(recipe, ranked.layout, ranked.step_s, ranked.fits):
        slowest_s = sorted(fastest.values())[top - 1] if len(fastest) >= top else np.inf
        split = _split(candidate.layout)
        limit_s = min(fastest.get(split, np.inf), slowest_s) / (1 + ALIKE)
        for layout in faster(recipe, candidate, limit_s):
            exact = estimate(recipe, layout, exact=True)
            found.append((layout, exact))
            if exact.fits:
                fastest[split] = min(fastest.get(split, np.inf), float(exact.step_s))
    return found


def _split(layout: Layout) -> tuple[int, ...]:
    """What a layout is told apart by."""
    return tuple(getattr(layout, name) for name in SPLIT)


def _best_splits(ranked: Ranked, count: int) -> list[Layout]:
    """One layout for each (tp, pp, dp, cp, mbs), fastest first: of those as fast as its fastest the
    one with fewest virtual stages.
    """
    fits = np.flatnonzero(ranked.fits)
    order = fits[np.lexsort((ranked.memory_bytes[fits], ranked.step_s[fits]))]
    splits: dict[tuple[int, ...], list[int]] = {}
    columns = [getattr(ranked.layout, name) for name in SPLIT]
    for row in order.tolist():
        key = tuple(int(column[row]) for column in columns)
        if key not in splits and len(splits) == count:
            continue
        splits.setdefault(key, []).append(row)
    return [ranked.layout[_simplest(ranked, rows)] for rows in splits.values()]


def _simplest(ranked: Ranked, rows: list[int]) -> int:
    fastest = ranked.step_s[rows[0]]
    alike = [row for row in rows if ranked.step_s[row] <= fastest * (1 + ALIKE)]
    return min(alike, key=lambda row: (ranked.layout[row].v, ranked.memory_bytes[row]))


def interleaving(recipe: Recipe, ranked: Ranked, best: Layout) -> reasons.Ladder:
    """The best plan over legal numbers of virtual stages, the pipeline simulated: where raising v
    stops paying.

    The fewest, the most, the plan's own and its neighbours.
    """
    same = np.ones(len(ranked.step_s), dtype=bool)
    for name in (
        "tp",
        "pp",
        "dp",
        "cp",
        "mbs",
        "zero",
        "recompute",
        "recompute_modules",
        "account_for_embedding",
        "account_for_loss",
        "ep",
        "etp",
        "first_layers",
        "last_layers",
    ):
        same &= getattr(ranked.layout, name) == getattr(best, name)
    if best.pp == 1 or best.recompute_layers or best.stage_layout:
        return ()
    rows = {
        ranked.layout[int(row)].v: int(row)
        for row in np.flatnonzero(same & (ranked.layout.recompute_layers == 0))
    }
    legal = sorted(rows)
    own = legal.index(int(best.v))
    shown = sorted({legal[0], *legal[max(own - 1, 0) : own + 2], legal[-1]})
    estimates = [(v, estimate(recipe, ranked.layout[rows[v]], exact=True)) for v in shown]
    return tuple((v, float(estimate.step_s), bool(estimate.fits)) for v, estimate in estimates)


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
    first = next(
        (n for n in range(failed + step, fits, step) if fitting(recipe, n) is not None), fits
    )
    return first if step == unit else _fewest(recipe, max(first - step, failed), first)


def _nearest(recipe: Recipe, fewest: int | None) -> tuple[Change, ...]:
    """Changes that let a layout fit, cheapest first: a limit of the question lifted, another number
    of GPUs.
    """
    changes = []
    for name, value, without in _without_switches(recipe):
        says = f"leave out switch {name}={shown(value)}"
        changes += _change(says, without, recipe.gpus)
    for name in recipe.knobs:
        others = dict(recipe.knobs)
        del others[name]
        freed = recipe.model_copy(update={"knobs": others})
        changes += _change(f"leave {name} to the search", freed, recipe.gpus)
    if recipe.max_memory_gib:
        freed = recipe.model_copy(update={"max_memory_gib": None})
        changes += _change("lift the memory limit", freed, recipe.gpus)
    for gpus in sorted({*_usable(recipe), fewest or recipe.gpus} - {recipe.gpus}):
        changes += _change(f"use {gpus:,} GPUs", recipe, gpus)
    return tuple(sorted(changes, key=lambda change: abs(change.layout.gpus - recipe.gpus))[:5])


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


def _change(says: str, recipe: Recipe, gpus: int) -> list[Change]:
    best = fitting(recipe, gpus)
    return [Change(says, *best)] if best else []
