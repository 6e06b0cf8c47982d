"""The search: what is explored by closed form is simulated until nothing that is left can be
faster, and the best is what is simple among the fastest.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

from planner import reasons
from planner.cost.pipeline import refused
from planner.cost.terms import Estimate
from planner.enumerate.balanced import faster, may_deal, undealt
from planner.enumerate.menus import requested
from planner.estimate import estimate
from planner.layout import Layout
from planner.rules.table import breaches
from planner.rules.together import RULES as TOGETHER
from planner.rules.together import taking
from planner.search import roles, switches
from planner.search.answer import Plan, SearchResult
from planner.search.branch import NOTHING, SHOWN, Computed, Explored, explore, glance, joined
from planner.search.nearest import legal_sample, min_gpus, nearest, nearest_refusal
from planner.search.roles import Role
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Switches

LISTED = 5
"""Up to so many plans the first SURE splits are known to be the fastest; of more plans all are."""
SURE = 2
FINALISTS = 2
"""More splits than asked for that are simulated, since the simulation may reorder them."""
REQUESTED = 16
"""Splits that are simulated under a schedule without a closed form of its own, which ranks as 1F1B
does until it is simulated.
"""
ALIKE = 0.005
"""Plans that the model does not tell apart: of those so little behind the fastest the simplest is
the best.
"""
OFFLOAD_UNSURE = 0.38
"""Of the time that offload takes, what the model may be off by: the most that it is on published
runs with the optimizer in host memory (README, mlengineering_h200_b200). No plan is the best for
less.
"""
BEST = Role("best", f"the simplest of those within {ALIKE:.1%} of the fastest")
FASTEST = Role("fastest", "the shortest step")
MAX_SIMULATED = 64
"""Pipelines simulated at most to prove which is the fastest."""


def search(
    recipe: Recipe, top: int | None = None, fixed: Collection[str] | None = None
) -> SearchResult:
    """The best layout and those that differ from it, each for a reason (planner.search.roles); with
    top so many of the fastest. An empty answer carries the nearest changes that would let one fit,
    and the fewest GPUs.

    fixed: switches that the question sets; the others are searched where they keep the arithmetic.
    None: all switches stay as they are.
    """
    started = time.perf_counter()
    sure = REQUESTED if requested(recipe) else top if top and top > LISTED else SURE
    slower = roles.ROOMIEST if top is None else 0.0
    turning = None if fixed is None else switches.Turning(fixed)
    searched, explored = _explored(recipe, sure, turning, slower)
    finalists = _Finalists(searched, explored, recipe, slower)
    finalists.settle(top)
    while turning is not None:
        better = finalists.faster_switches(turning)
        if better is None:
            break
        searched, explored = better, explore(better, sure, slack_share=slower)
        finalists = _Finalists(searched, explored, recipe, slower)
        finalists.settle(top)
    plans = finalists.plans(top)
    turned = switches.differing(searched, recipe)
    recipe = finalists.plain
    known: dict[str, Any] = {
        "recipe": recipe,
        "turned": None if fixed is None else turned,
        "counts": finalists.explored.counts,
        "computed": finalists.explored.computed,
        "simulated": len(finalists.known),
        "proved": finalists.proved,
    }
    if plans:
        known["limits"] = reasons.limit(plans[0].estimate)
    else:
        fewest = min_gpus(recipe)
        refusal = nearest_refusal(recipe)
        known |= {
            "nearest": nearest(recipe, fewest),
            "min_gpus": fewest,
            "legal": not refusal,
            "limits": refusal,
        }
    return SearchResult(**known, seconds=time.perf_counter() - started, plans=plans)


def _explored(
    recipe: Recipe, sure: int, turning: switches.Turning | None, slower: float
) -> tuple[Recipe, Explored]:
    """What is explored under the switches that make the fastest layouts fastest: those of a first
    glance, with those that need least memory; then until no switch at another value makes a layout
    that is near faster.
    """
    if turning is None:
        return recipe, explore(recipe, sure, slack_share=slower)
    sample = legal_sample(recipe, switches.FEW).layout
    roomy = turning.roomier(recipe, sample) if len(sample) else recipe
    first = switches.near(glance(roomy))

    def better(found: Computed) -> Recipe:
        rows = [rows for rows in (first, switches.near(found)) if len(rows)]
        return turning.faster(recipe, joined(rows)) if rows else recipe

    recipe = better(NOTHING)
    while True:
        explored = explore(recipe, sure, slack_share=max(switches.SLACK, slower))
        changed = better(explored.computed)
        if not switches.differing(changed, recipe):
            return recipe, explored
        recipe = changed


def best_plan(recipe: Recipe) -> Plan | None:
    """The best plan alone, the switches as they are; None where nothing fits."""
    finalists = _Finalists(recipe, explore(recipe, 1), recipe)
    finalists.settle(1)
    return next(iter(finalists.plans(1)), None)


def simplicity(layout: Layout) -> tuple[int, ...]:
    """How far a layout is from a plain one: offload, shards of weights or gradients, uneven stages,
    virtual stages.
    """
    uneven = layout.first_layers + layout.last_layers > 0
    counted = layout.account_for_embedding + layout.account_for_loss
    return (
        int(layout.offload > 0),
        int(layout.zero > 1),
        int(bool(layout.stage_layout)) + int(uneven) + counted,
        int(layout.group > 0),
        layout.v,
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A plan before it has its rank."""

    layout: Layout
    estimate: Estimate
    switches: Switches
    """At other values than the best plan's."""
    roles: list[Role]


class _Finalists:
    """Layouts whose pipeline was simulated, of what was explored."""

    def __init__(
        self, recipe: Recipe, explored: Explored, own: Recipe, slower: float = 0.0
    ) -> None:
        self.recipe, self.explored, self.own, self.slower = recipe, explored, own, slower
        self.plain = recipe
        """With as few of its switches changed from the software's own as the best plan needs."""
        self.known: dict[Layout, Estimate] = {}
        self.other, self.proved = requested(recipe), False

    def simulated(self, layout: Layout) -> Estimate | None:
        """A layout's estimate; None where it does not fit, or its order cannot be made."""
        if layout not in self.known:
            if self.other and refused(self.recipe, layout):
                return None
            self.known[layout] = estimate(self.recipe, layout, exact=True)
        simulated = self.known[layout]
        return simulated if simulated.fits else None

    def settle(self, top: int | None) -> None:
        """Simulates until the fastest is known."""
        for layout in self._best_splits(REQUESTED if self.other else (top or LISTED) + FINALISTS):
            self.simulated(layout)
        fastest = self._prove(self._fastest())
        if not self.other:
            self._dealt(fastest)

    def plans(self, top: int | None) -> tuple[Plan, ...]:
        """The best first, then so many of the fastest, one of each split of the GPUs and batch; or
        those of a role each. settle() was called.
        """
        fastest = self._fastest()
        if fastest is None:
            return ()
        best = self._simplest(self._without_offload(fastest))
        split = attrgetter(*SHOWN)
        chosen, seen = [best], {split(best)}
        for layout in [fastest, *self._in_order()]:
            if layout not in chosen and (layout == fastest or split(layout) not in seen):
                chosen.append(layout)
                seen.add(split(layout))
        rows = self._plainer(chosen[: top or 2], fastest)
        following = rows[:2]
        if top is None:
            rows = self._by_role(best, fastest)
        return self._ranked(rows, following)

    def faster_switches(self, turning: switches.Turning) -> Recipe | None:
        """The recipe with one switch at another value that makes a near layout faster than the
        fastest once it is simulated; None where none does.
        """
        fastest = self._fastest()
        if fastest is None or self.other:
            return None
        best_s, best = float(self.known[fastest].step_s), None
        near = switches.near(self.explored.computed)
        for recipe, layout in turning.candidates(self.recipe, near, best_s):
            simulated = estimate(recipe, layout, exact=True)
            if simulated.fits and simulated.step_s < best_s * (1 - switches.GAIN):
                best_s, best = float(simulated.step_s), recipe
        return best

    def _dealt(self, fastest: Layout | None) -> None:
        """Simulates layouts with their layers dealt to the stages one by one, where they are faster
        by more than ALIKE.
        """
        if not may_deal(self.recipe):
            return
        bases = self._bases()
        for candidate in undealt(
            self.recipe, bases.layout, bases.step_s, bases.memory_bytes, bases.fits
        ):
            limit = np.inf if fastest is None else float(self.known[fastest].step_s) / (1 + ALIKE)
            for layout in faster(self.recipe, candidate, limit):
                self.simulated(layout)
            fastest = self._fastest()

    def _bases(self) -> Computed:
        """What is dealt: what was explored; where layers must lie together, as if they need not, so
        that a deal is there for pipelines that no even split is legal for.
        """
        if not taking(self.recipe).any():
            return self.explored.computed
        return explore(self.recipe, 1, waived=tuple(rule.name for rule in TOGETHER)).computed

    def _by_role(self, best: Layout, fastest: Layout) -> list[Row]:
        """The best and the fastest, then the others with the switches of the best; the conservative
        with those or the software's own, whichever is faster.
        """
        computed, fastest_s = self.explored.computed, float(self.known[fastest].step_s)
        chosen = [(BEST, best, self.plain), (FASTEST, fastest, self.recipe)]
        simulated = self._under(self.plain)
        others = roles.alternatives(self.plain, computed, simulated, fastest, fastest_s)
        chosen += [(role, layout, self.plain) for role, layout in others]
        old = []
        switched = switches.differing(self.own, self.plain)
        for recipe in (self.plain, self.own) if switched else (self.plain,):
            under = self._under(recipe)
            known = computed if recipe is self.plain else roles.priced_again(recipe, computed)
            first = (best, fastest) if recipe is self.plain else ()
            role, layout = roles.conservative(recipe, known, under, first)
            its = None if layout is None else under(layout)
            if layout is not None and its is not None:
                old.append((float(its.step_s), (role, layout, recipe)))
        chosen += [min(old, key=lambda pair: pair[0])[1]] if old else []
        rows: list[Row] = []
        for role, layout, recipe in chosen:
            settings = switches.differing(recipe, self.plain)
            same = [row for row in rows if (row.layout, row.switches) == (layout, settings)]
            its = self._under(recipe)(layout)
            if same:
                same[0].roles.append(role)
            elif its is not None:
                rows.append(Row(layout, its, settings, [role]))
        return rows

    def _under(self, recipe: Recipe) -> roles.Simulated:
        """Estimates of legal layouts under a recipe; None where one does not fit."""
        if not switches.differing(recipe, self.recipe):
            return self.simulated

        def simulated(layout: Layout) -> Estimate | None:
            if breaches(recipe, layout):
                return None
            its = estimate(recipe, layout, exact=True)
            return its if its.fits else None

        return cache(simulated)

    def _ranked(self, rows: list[Row], following: list[Row]) -> tuple[Plan, ...]:
        """Rows as plans. following: the best, and the next that is fastest."""
        best = rows[0].estimate
        why = reasons.why(self.plain, [(row.layout, row.estimate) for row in following])
        plans = []
        for rank, row in enumerate(rows, 1):
            if rank > 1:
                why = (reasons.behind(best, row.estimate),)
            says, names = (tuple(map(text, row.roles)) for text in (str, attrgetter("name")))
            plans.append(Plan(rank, row.layout, row.estimate, says + why, names, row.switches))
        return tuple(plans)

    def _plainer(self, chosen: list[Layout], fastest: Layout) -> list[Row]:
        """Every layout with the switches of the best, which has as few as it needs; the fastest,
        and what does not fit so, with all that was found, which stand beside it.
        """
        best, count = chosen[0], len(chosen)
        limit = max(self.known[fastest].step_s * (1 + ALIKE), self.known[best].step_s)
        self.plain, its = switches.plainer(self.recipe, self.own, best, float(limit))
        more = switches.differing(self.recipe, self.plain)
        rows = [Row(best, its if more else self.known[best], {}, [BEST])]
        for layout in chosen[1:] if fastest != best or not more else [best, *chosen[1:]]:
            own = layout != fastest and more
            plain = self._under(self.plain)(layout) if own else None
            settings = {} if plain else more
            rows.append(Row(layout, plain or self.known[layout], settings, []))
        for row in rows:
            if row.layout == fastest and row.switches == more:
                row.roles.append(FASTEST)
        return rows[:count]

    def _in_order(self) -> list[Layout]:
        fit = [layout for layout, estimate in self.known.items() if estimate.fits]
        return sorted(fit, key=lambda one: (self.known[one].step_s, self.known[one].memory_bytes))

    def _fastest(self) -> Layout | None:
        return next(iter(self._in_order()), None)

    def _best_splits(self, count: int) -> list[Layout]:
        """The fastest layout of each of so many splits by closed form."""
        found = self.explored.computed
        fits = np.flatnonzero(found.fits)
        order = fits[np.lexsort((found.memory_bytes[fits], found.step_s[fits]))]
        columns = np.stack([getattr(found.layout, name)[order] for name in SHOWN], axis=1)
        _, first = np.unique(columns, axis=0, return_index=True)
        return [found.layout[int(order[at])] for at in sorted(first.tolist())[:count]]

    def _prove(self, fastest: Layout | None) -> Layout | None:
        """Simulates what could be faster than the fastest, by the lower bounds, until nothing is
        left.
        """
        if fastest is None or self.other:
            return fastest
        found = self.explored.computed
        limit = float(self.known[fastest].step_s)
        if limit > self.explored.complete_s:
            self.explored = explore(self.recipe, 1, limit, self.slower)
            found = self.explored.computed
        could = np.flatnonzero(found.fits & (found.floor_s < limit))
        could = could[np.argsort(found.floor_s[could], kind="stable")]
        for row in could[:MAX_SIMULATED].tolist():
            if found.floor_s[row] >= limit:
                break
            simulated = self.simulated(found.layout[row])
            if simulated is not None:
                limit = min(limit, float(simulated.step_s))
        self.proved = int(np.count_nonzero(found.floor_s[could] < limit)) <= MAX_SIMULATED
        return self._fastest()

    def _without_offload(self, fastest: Layout) -> Layout:
        """The fastest layout without offload, where that of the fastest gains less than it may be
        off.
        """
        found, its = self.explored.computed, self.known[fastest]
        limit = its.step_s * (1 + ALIKE) + OFFLOAD_UNSURE * its.time.offload_s
        plain = np.flatnonzero(
            found.fits & (found.step_s <= limit) & (np.asarray(found.layout.offload) == 0)
        )
        if not fastest.offload or not len(plain):
            return fastest
        layout = found.layout[int(plain[np.argmin(found.step_s[plain])])]
        other = self.simulated(layout)
        return layout if other is not None and other.step_s <= limit else fastest

    def _simplest(self, fastest: Layout) -> Layout:
        """The simplest of the layouts that are as fast but for ALIKE, of those the roomiest."""
        found, limit = self.explored.computed, self.known[fastest].step_s * (1 + ALIKE)
        near = np.flatnonzero(found.fits & (found.step_s <= limit))
        near = near[np.argsort(found.memory_bytes[near], kind="stable")]
        layouts = [found.layout[int(row)] for row in near]
        own = simplicity(fastest)
        tried: set[tuple[int, ...]] = set()
        for layout in sorted(layouts, key=simplicity):
            key = simplicity(layout)
            if key >= own:
                break
            if key in tried:
                continue
            tried.add(key)
            simulated = self.simulated(layout)
            if simulated is not None and simulated.step_s <= limit:
                return layout
        return fastest
