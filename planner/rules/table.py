"""Which rules bind a recipe, and their two readings: a mask over many layouts, sentences about
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from planner.layout import Layout, Layouts, Numeric
from planner.rules import deepspeed, launch, megatron, sizes, switches, together, torch, training
from planner.rules.rule import Breach, Rule, breach
from planner.specs.recipe import Recipe
from planner.specs.versions import version_of

BY_FRAMEWORK: dict[str, tuple[Rule, ...]] = {
    "megatron": (*megatron.RULES, *together.RULES, *switches.of("megatron")),
    "deepspeed": (*deepspeed.RULES, *together.RULES, *switches.of("deepspeed")),
    "torch": (
        *sizes.RULES,
        *torch.RULES,
        *training.PACKED,
        *together.RULES,
        *switches.of("torch"),
    ),
}
NARROW = 2**15
"""Below this a product of two columns fits 32 bits, whose remainder is eight times faster than that
of 64.
"""


def rules_for(recipe: Recipe) -> tuple[Rule, ...]:
    """The rules of the recipe's framework that its version has. Raises InputError for an unknown
    version.
    """
    version = version_of(recipe.framework, recipe.framework_version)
    rules = BY_FRAMEWORK[recipe.framework] + (launch.RULES if recipe.launched_by else ())
    return tuple(rule for rule in rules if rule.since <= version < rule.before)


def _narrow(value: Any) -> Any:
    small = (
        isinstance(value, np.ndarray)
        and value.dtype.kind == "i"
        and len(value)
        and abs(value).max() < NARROW
    )
    return value.astype(np.int32, copy=False) if small else value


SCHEDULE_RULES = (
    "stack runs the schedule",
    "Megatron runs the schedule",
    "DeepSpeed runs the schedule",
)
"""Rules that a question waives which fixes a schedule that its framework cannot run: planned on
request, and marked.
"""


def mask(
    recipe: Recipe, layout: Layouts, waived: tuple[str, ...] = ()
) -> tuple[np.ndarray, dict[str, int]]:
    """Which layouts hold every rule but the waived ones, and how many each rule removed.

    A layout is counted at the first rule, in the order of rules_for, that removes it: the counts
    add up to what is gone. Rules that removed nothing are left out.
    """
    rules = (rule for rule in rules_for(recipe) if rule.name not in waived)
    names = (f.name for f in fields(layout))
    return _held(rules, recipe, layout, np.ones(len(layout), int), names)


Reads = tuple[tuple[Rule, frozenset[str]], ...]
"""Rules with the knobs that each reads."""


def reads(recipe: Recipe, waived: tuple[str, ...] = ()) -> Reads:
    """The rules of a recipe but the waived ones, each with the knobs of columns that it reads: with
    these decided it can be asked.
    """
    seen: set[str] = set()

    class Watched(Layout[Numeric]):
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            seen.add(name)
            return super().__getattribute__(name)

    names = [f.name for f in fields(Layout) if f.name != "stage_layout"]
    columns: dict[str, Any] = {name: np.array([1, 2]) for name in names}
    watched = Watched(**columns)
    found = []
    for rule in rules_for(recipe):
        if rule.name not in waived:
            seen.clear()
            rule.holds(recipe, watched)
            found.append((rule, frozenset(seen.intersection(names))))
    return tuple(found)


def by_level(rules: Reads, levels: Sequence[Sequence[str]]) -> tuple[Reads, ...]:
    """The rules of each level of a search that decides more knobs at each: a rule stands at the
    first level that decides all it reads, and there alone.
    """
    reached: list[set[str]] = []
    for knobs in levels:
        reached.append(set(knobs).union(*reached[-1:]))
    out = []
    for level, decided in enumerate(reached):
        before = reached[:level]
        out.append(
            tuple(
                (rule, knobs)
                for rule, knobs in rules
                if knobs <= decided and not any(knobs <= earlier for earlier in before)
            )
        )
    return tuple(out)


def decided_mask(
    rules: Reads, recipe: Recipe, layout: Layouts, each: np.ndarray
) -> tuple[np.ndarray, dict[str, int]]:
    """As mask(), of these rules. each: how many layouts a row stands for, which are counted at the
    rule that removes it.
    """
    read = frozenset().union(*(knobs for _, knobs in rules))
    return _held((rule for rule, _ in rules), recipe, layout, each, read)


def _held(
    rules: Iterable[Rule], recipe: Recipe, layout: Layouts, each: np.ndarray, read: Iterable[str]
) -> tuple[np.ndarray, dict[str, int]]:
    """Which layouts hold the rules, and how many each rule removed, of those that a row stands for.
    read: the knobs that the rules read.
    """
    narrow = replace(layout, **{name: _narrow(getattr(layout, name)) for name in read})
    ok = np.ones(len(each), dtype=bool)
    removed: dict[str, int] = {}
    for rule in rules:
        before = ok
        ok = ok & rule.holds(recipe, narrow)
        gone = int(np.count_nonzero(before)) - int(np.count_nonzero(ok))
        if gone:
            gone = int(each[before & ~ok].sum())
            removed[rule.name] = removed.get(rule.name, 0) + gone
    return ok, removed


def breaches(recipe: Recipe, layout: Layout) -> tuple[Breach, ...]:
    """The rules that one layout breaks, each with the values and the way out.

    Where a count is not positive that is the only breach: the other sentences would divide by it.
    """
    broken = [rule for rule in rules_for(recipe) if not np.all(rule.holds(recipe, layout))]
    if sizes.POSITIVE in broken:
        broken = [sizes.POSITIVE]
    return tuple(breach(rule, recipe, layout) for rule in broken)


def nearest_refusal(recipe: Recipe, layout: Layouts) -> str:
    """Of many layouts, none legal: what refuses the first of those that break the fewest rules,
    with the way out; empty without any.
    """
    if not len(layout):
        return ""
    broken = sum(
        ~np.broadcast_to(rule.holds(recipe, layout), len(layout)) for rule in rules_for(recipe)
    )
    return "; ".join(breach.message for breach in breaches(recipe, layout[int(np.argmin(broken))]))
