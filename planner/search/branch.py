"""Branch and bound over the menus of planner.enumerate: splits in the order of their lower bounds,
each with its shardings, stages and recomputations, until no split that is left can be faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.unique_rows import unique_rows
from planner.enumerate import menus
from planner.enumerate.menus import crossed
from planner.estimate import (
    closed_memory,
    closed_time,
    fullest_ranks,
    layer_knobs,
    micro_batch,
    parts,
)
from planner.layout import RECOMPUTE_CODE, Layout, Layouts
from planner.numeric import distinct
from planner.rules.table import SCHEDULE_RULES, by_level, decided_mask, reads
from planner.search import floors
from planner.specs.recipe import Recipe

CHUNK = 16_384
"""Layouts estimated at once: their columns stay in the processor's cache."""
FIRST_BLOCK = 64
"""Splits looked at first; each further block has twice as many."""
SAMPLE = 16_384
"""Layouts, at most, of the sample that says which splits are looked at first."""
FULL = RECOMPUTE_CODE["full"]
SHOWN = ("tp", "pp", "dp", "cp", "mbs")
"""Of layouts that agree in these only the best is shown."""
KNOBS = tuple(f.name for f in fields(Layout) if f.name != "stage_layout")

LEVELS = (
    menus.SPLIT,
    menus.SHARDING,
    tuple(name for name in KNOBS if name not in menus.RECOMPUTATION),
    menus.RECOMPUTATION,
)
"""Knobs that the search decides one group after another; rules are asked as soon as they can be."""

Rows = NDArray[np.int64]


@dataclass(slots=True)
class Counts:
    """Combinations of the menus by what became of them: together all of them."""

    removed: Counter[str] = field(default_factory=Counter)
    """By the rule that removes them."""
    too_large: int = 0
    """Cannot fit, by the lower bound of their memory."""
    slower: int = 0
    """Cannot be among the fastest, by the lower bound of their time, or since they recompute more
    than one that fits.
    """
    computed: int = 0

    @property
    def covered(self) -> int:
        return sum(self.removed.values()) + self.too_large + self.slower + self.computed


@dataclass(frozen=True, slots=True)
class Computed:
    """Layouts as columns with their closed form."""

    layout: Layouts
    step_s: np.ndarray
    floor_s: np.ndarray
    """What the simulated pipeline cannot beat."""
    memory_bytes: np.ndarray
    fits: np.ndarray


@dataclass(frozen=True, slots=True)
class Explored:
    """What was looked at, and up to how many seconds nothing is missing."""

    computed: Computed
    counts: Counts
    complete_s: float
    """No combination that was not computed takes less."""


def fits_somehow(recipe: Recipe) -> bool:
    """Whether any layout fits, by closed form."""
    exploration = _Exploration(recipe, 1, 0.0)
    exploration.run(lambda: bool(exploration.best))
    return bool(exploration.best)


def glance(recipe: Recipe) -> Computed:
    """The layouts of the splits that are most promising, by a sample and by their lower bounds."""
    return _Exploration(recipe, FIRST_BLOCK, 0.0).run(lambda: True).computed


def explore(
    recipe: Recipe,
    wanted: int,
    beyond_s: float = 0.0,
    slack_share: float = 0.0,
    waived: tuple[str, ...] = (),
) -> Explored:
    """The fastest layouts of so many different splits (SHOWN) by closed form, and every other that
    could be as fast as the last of them but for a share of its time, or as beyond_s. waived: rules
    that need not hold.
    """
    return _Exploration(recipe, wanted, beyond_s, slack_share, waived).run()


class _Exploration:
    """One search: what it has found so far."""

    def __init__(
        self,
        recipe: Recipe,
        wanted: int,
        beyond_s: float,
        slack_share: float = 0.0,
        waived: tuple[str, ...] = (),
    ) -> None:
        self.recipe, self.wanted, self.beyond_s = recipe, wanted, beyond_s
        self.slack_share = slack_share
        waived = (*waived, *(SCHEDULE_RULES if menus.requested(recipe) else ()))
        self.counts = Counts()
        self.rules = by_level(reads(recipe, waived), LEVELS)
        self.found: list[Computed] = []
        self.best: dict[tuple[int, ...], float] = {}
        self.shardings = menus.shardings(recipe)
        self.recomputations = menus.recomputations(recipe)
        self.stagings: dict[int, dict[str, menus.Column]] = {}
        self.each: dict[int, np.ndarray] = {}
        """Combinations of a split, a sharding and each staging of so many ranks."""

    @property
    def limit_s(self) -> float:
        """What is slower need not be known."""
        if len(self.best) < self.wanted:
            return float("inf")
        last_s = sorted(self.best.values())[self.wanted - 1]
        return max(last_s * (1 + self.slack_share), self.beyond_s)

    def run(self, enough: Callable[[], bool] = lambda: False) -> Explored:
        """Blocks of splits one after another. enough: asked after each."""
        splits = menus.splits(self.recipe)
        for pp in distinct(splits.pp):
            self.stagings[pp] = menus.stagings(self.recipe, pp)
            self.each[pp] = self._recomputations_of(pp)
        splits, _ = self._legal(0, splits, self._of_splits(splits))
        if not len(splits):
            return Explored(together([]), self.counts, float("inf"))
        bound = np.broadcast_to(floors.split_s(self.recipe, splits), len(splits))
        order = np.argsort(bound, kind="stable")
        order = np.concatenate((self._promising(splits, order), order))
        order = order[np.sort(np.unique(order, return_index=True)[1])]
        done, size = 0, FIRST_BLOCK
        while done < len(order) and not (done and enough()):
            rows = order[done : done + size]
            if bound[rows].min() > self.limit_s:
                break
            near = bound[rows] <= self.limit_s
            self.counts.slower += int(self._of_splits(splits[rows[~near]]).sum())
            self._block(splits[rows[near]])
            done, size = done + len(rows), size * 2
        self.counts.slower += int(self._of_splits(splits[order[done:]]).sum())
        return Explored(together(self.found), self.counts, self.limit_s)

    def _promising(self, splits: Layouts, order: np.ndarray) -> np.ndarray:
        """The splits whose layouts are fastest in a sample with plain stages, FIRST_BLOCK at most:
        looked at first, they give the bound that discards the others.
        """
        plain = np.isin(self.recomputations["recompute"], (RECOMPUTE_CODE["none"], FULL))
        table = {name: column[plain] for name, column in self.recomputations.items()}
        each = 2 * int(plain.sum()) * len(self.shardings["zero"])
        if not each:
            return order[:0]
        rows = order[:: max(len(order) * each // SAMPLE, 1)]
        row_of = np.repeat(rows, len(self.shardings["zero"]))
        sharded = crossed(splits[rows], self.shardings)
        may = np.broadcast_to(floors.split_may_fit(self.recipe, sharded), len(row_of))
        sharded, row_of = sharded[np.flatnonzero(may)], row_of[may]
        sample, row = [], []
        for pp in distinct(sharded.pp):
            same, count = np.flatnonzero(sharded.pp == pp), len(self.stagings[pp]["v"])
            if not count:
                continue
            first_and_last = sorted({0, count - 1})
            layouts = self._staged(sharded[same], pp, first_and_last)
            layouts = crossed(layouts, table)
            sample.append(layouts)
            row.append(np.repeat(row_of[same], len(layouts) // len(same)))
        if not sample:
            return order[:0]
        layouts, row_of = joined(sample), np.concatenate(row)
        rules = tuple(rule for level in self.rules[1:] for rule in level)
        ok, _ = decided_mask(rules, self.recipe, layouts, np.ones(len(row_of), int))
        layouts, row_of = layouts[np.flatnonzero(ok)], row_of[ok]
        if not len(row_of):
            return order[:0]
        known = parts(self.recipe, layouts)
        step_s = closed_time(self.recipe, layouts, known).step_s
        _, fits = closed_memory(self.recipe, layouts, known)
        step_s, fits = (np.broadcast_to(x, len(row_of)) for x in (step_s, fits))
        self._better(layouts, step_s, fits)
        fastest = np.argsort(np.where(fits, step_s, np.inf), kind="stable")
        fitting: Rows = row_of[fastest[: int(np.count_nonzero(fits))]]
        return fitting[:FIRST_BLOCK]

    def _recomputations_of(self, pp: int) -> np.ndarray:
        """Of each staging, how many ways to recompute it has."""
        chunk = -(-self.recipe.model.num_layers // (pp * self.stagings[pp]["v"]))
        codes = self.recomputations["recompute"]
        some = np.any(codes == FULL) and not self._fixed_layers
        return np.asarray(len(codes) + some * (chunk - 1))

    @property
    def _fixed_layers(self) -> bool:
        return "recompute_layers" in self.recipe.knobs

    def _of_splits(self, splits: Layouts) -> np.ndarray:
        """Combinations of each split."""
        shardings = len(self.shardings["zero"])
        known = {pp: shardings * int(each.sum()) for pp, each in self.each.items()}
        return np.array([known[pp] for pp in np.broadcast_to(splits.pp, len(splits)).tolist()], int)

    def _legal(self, level: int, rows: Layouts, each: np.ndarray) -> tuple[Layouts, np.ndarray]:
        """Those that no rule removes which can be asked since LEVELS[level]; each: combinations of
        every row.
        """
        ok, removed = decided_mask(self.rules[level], self.recipe, rows, each)
        self.counts.removed.update(removed)
        return (rows, each) if ok.all() else (rows[np.flatnonzero(ok)], each[ok])

    def _block(self, splits: Layouts) -> None:
        shardings = len(self.shardings["zero"])
        rows = crossed(splits, self.shardings)
        rows, each = self._legal(1, rows, self._of_splits(rows) // max(shardings, 1))
        if not len(each):
            return
        may = np.broadcast_to(floors.split_may_fit(self.recipe, rows), len(each))
        self.counts.too_large += int(each[~may].sum())
        rows = rows[np.flatnonzero(may)]
        if not len(rows):
            return
        staged, combinations = [], []
        for pp in distinct(rows.pp):
            same = rows[np.flatnonzero(rows.pp == pp)]
            staged.append(self._staged(same, pp))
            combinations.append(np.tile(self.each[pp], len(same)))
        if staged:
            self._stages(joined(staged), np.concatenate(combinations))

    def _staged(self, rows: Layouts, pp: int, which: list[int] | None = None) -> Layouts:
        """Every row with the stagings of so many ranks, or with some of them."""
        stagings = self.stagings[pp]
        if which is not None:
            stagings = {name: column[which] for name, column in stagings.items()}
        staged = crossed(rows, stagings)
        fixed = self.recipe.fixed("group")
        if fixed is not None:
            return replace(staged, group=np.where(staged.v > 1, fixed, 0))
        if self.recipe.framework != "megatron" or pp == 1:
            return staged
        of_m = {m: menus.group(self.recipe, pp, m) for m in distinct(staged.m)}
        if any(of_m.values()):
            sizes = np.array([of_m[m] for m in np.asarray(staged.m).tolist()])
            staged = replace(staged, group=np.where(staged.v > 1, sizes, 0))
        return staged

    def _stages(self, rows: Layouts, each: np.ndarray) -> None:
        """Every recomputation of layouts that are decided but for that. each: how many, of each."""
        rows, each = self._legal(2, rows, each)
        if not len(each):
            return
        bound = np.broadcast_to(
            floors.step_s(self.recipe, rows, parts(self.recipe, rows)), len(each)
        )
        order, done = np.argsort(bound, kind="stable"), 0
        while done < len(order) and bound[order[done]] <= self.limit_s:
            part = order[done : done + CHUNK]
            near = part[bound[part] <= self.limit_s]
            self.counts.slower += int(each[part].sum() - each[near].sum())
            self._part(rows[near], each[near])
            done += len(part)
        self.counts.slower += int(each[order[done:]].sum())

    def _part(self, rows: Layouts, each: np.ndarray) -> None:
        recipe = self.recipe
        known = parts(recipe, rows)
        may = np.broadcast_to(floors.may_fit(recipe, rows, known), len(each))
        self.counts.too_large += int(each[~may].sum())
        rows, each = rows[np.flatnonzero(may)], each[may]
        if not len(each):
            return
        none = bool(np.any(self.recomputations["recompute"] == RECOMPUTE_CODE["none"]))
        fits, bound = self._computed(rows, none)
        self.counts.slower += int((each - none).sum())
        recomputed = np.flatnonzero((bound <= self.limit_s) & ~(fits & none))
        if len(recomputed):
            self._recomputed(rows[recomputed])

    def _recomputed(self, rows: Layouts) -> None:
        choices = self.recomputations["recompute"] != RECOMPUTE_CODE["none"]
        table = {name: column[choices] for name, column in self.recomputations.items()}
        if not choices.any():
            return
        before = self.counts.computed
        every = crossed(rows, table)
        every = every[np.flatnonzero(undominated(self.recipe, rows, table).ravel())]
        asked = len(every)
        every, each = self._legal(3, every, np.ones(asked, int))
        for at in range(0, len(each), CHUNK):
            part = every[at : at + CHUNK]
            fits, _ = self._computed(part)
            full = np.flatnonzero((part.recompute == FULL) & fits)
            if len(full) and not self._fixed_layers:
                self._fewest_layers(part[full])
        self.counts.slower -= self.counts.computed - before + asked - len(each)

    def _fewest_layers(self, rows: Layouts) -> None:
        """Layouts that fit with all layers recomputed, with the fewest layers that do: by halving,
        since each layer more costs time and frees memory.
        """
        known = parts(self.recipe, rows)
        held = fullest_ranks(self.recipe, rows, known)
        chunk = known[0].middle.total / rows.v
        low, high = np.zeros(len(rows), int), np.broadcast_to(chunk, len(rows)).astype(int)
        all_ = high.copy()
        while np.any(high - low > 1):
            middle = (low + high) // 2
            part = replace(rows, recompute_layers=np.maximum(middle, 1))
            fits = np.broadcast_to(closed_memory(self.recipe, part, known, held)[1], len(rows))
            high, low = np.where(fits, np.maximum(middle, 1), high), np.where(fits, low, middle)
        ones = np.ones(len(rows), int)
        while True:  # the next number that the rules allow
            fewer = replace(rows, recompute_layers=high)
            ok = decided_mask(self.rules[3], self.recipe, fewer, ones)[0] | (high >= all_)
            if ok.all():
                break
            high = np.where(ok, high, high + 1)
        some = np.flatnonzero(high < all_)
        if len(some):
            self._computed(fewer[some])

    def _computed(self, rows: Layouts, add: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Whether layouts fit, and what their simulated pipeline cannot beat; add: to what was
        found.
        """
        found = computed(self.recipe, rows)
        if add:
            self.found.append(found)
            self.counts.computed += len(rows)
            self._better(rows, found.step_s, found.fits)
        return found.fits, found.floor_s

    def _better(self, rows: Layouts, step: np.ndarray, fits: np.ndarray) -> None:
        """Notes the fastest of every split."""
        good = np.flatnonzero(fits & (step <= self.limit_s))
        good = good[np.argsort(step[good], kind="stable")]
        split = np.stack(
            [np.broadcast_to(getattr(rows, name), len(rows))[good] for name in SHOWN], axis=1
        )
        for key, seconds in zip(map(tuple, split.tolist()), step[good].tolist(), strict=True):
            if seconds > self.limit_s:
                break
            if seconds < self.best.get(key, np.inf):
                self.best[key] = seconds


def computed(recipe: Recipe, layouts: Layouts) -> Computed:
    """Closed forms of a batch."""
    if not len(layouts):
        return NOTHING
    known = parts(recipe, layouts)
    time = closed_time(recipe, layouts, known)
    columns = (
        time.step_s,
        floors.simulated_s(recipe, layouts, known, time),
        *closed_memory(recipe, layouts, known),
    )
    return Computed(layouts, *(np.broadcast_to(x, len(layouts)) for x in columns))


def undominated(
    recipe: Recipe, rows: Layouts, recomputations: dict[str, menus.Column]
) -> np.ndarray:
    """(rows, choices) whether no other choice takes no more time and keeps no more of any kind of
    layer; of choices that are alike the first stays.
    """
    knobs = tuple(name for name in layer_knobs(recipe) if name not in menus.RECOMPUTATION)
    known = unique_rows(rows, knobs)
    first, inverse = known if known else (np.zeros(1, int), np.zeros(len(rows), int))
    count, choices = len(first), len(recomputations["recompute"])
    each = micro_batch(recipe, crossed(rows[first], recomputations))
    costs: list[Any] = []
    for kind, kept in zip(each.layers, each.activations.kinds, strict=True):
        whole = recomputations["recompute"] == FULL
        bytes_ = np.where(np.tile(whole, count), kept.input_bytes, kept.layer_bytes)
        costs += [kind.forward_s + kind.backward_s, bytes_, kept.whole_bytes - bytes_]
    table = np.stack([np.broadcast_to(x, count * choices).reshape(count, choices) for x in costs])
    better = np.all(table[:, :, :, None] <= table[:, :, None, :], axis=0)
    alike = np.all(table[:, :, :, None] == table[:, :, None, :], axis=0)
    earlier = np.tri(choices, k=-1, dtype=bool).T
    beaten = np.any(better & (~alike | earlier), axis=1)
    stays: np.ndarray = ~beaten[inverse]
    return stays


def joined(batches: list[Layouts]) -> Layouts:
    """Batches of columns as one."""
    columns: dict[str, Any] = {
        name: np.concatenate(
            [np.broadcast_to(getattr(batch, name), len(batch)) for batch in batches]
        )
        for name in KNOBS
    }
    return Layout(**columns)


def _none() -> Computed:
    columns: dict[str, Any] = {name: np.zeros(0, int) for name in KNOBS}
    nothing = np.zeros(0)
    return Computed(Layout(**columns), nothing, nothing, nothing, nothing.astype(bool))


NOTHING = _none()


def together(found: list[Computed]) -> Computed:
    """Batches as one."""
    if not found:
        return NOTHING
    figures = (
        np.concatenate([getattr(part, name) for part in found])
        for name in ("step_s", "floor_s", "memory_bytes", "fits")
    )
    return Computed(joined([part.layout for part in found]), *figures)
