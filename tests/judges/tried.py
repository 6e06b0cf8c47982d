"""Values of switches that sweeps put to the frameworks' own parsers: drawn at random, first what
was tried least, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from planner.layout import Layout, Layouts, Mask
from planner.rules.table import mask
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import NO_WORDS, Switch, Value, setting, words_of
from planner.specs.switches.table import BY_FRAMEWORK, shown, with_required
from planner.specs.switches.torch import BENCHMARK
from planner.specs.versions import version_of

Named = tuple[str, str]
"""A switch and one of its values as text; of numbers `less` or `more` than the default."""
LESS, MORE = "less", "more"
Wanted = tuple[Switch, Value]
Written = TypeVar("Written")
ATTEMPTS = 12
"""Questions asked for one value of a switch."""
TURNED = 0.2
"""Share of the switches that a question states beside the one that it is about."""


def values(switch: Switch) -> list[Value]:
    """Those of a switch that are tried: of numbers some, of sets each word alone and all."""
    if switch.values:
        return list(switch.values)
    if switch.words:
        return [NO_WORDS, *switch.words, "+".join(switch.words)]
    if switch.share:
        return [0.25, 0.5, 0.9]
    default = int(switch.default)
    if default > 1000:
        return [default // 4, default * 4]
    return sorted({max(switch.lowest, 2), 4, 1000} - {default})


def names(switch: Switch, value: Value) -> list[Named]:
    """What trying a value counts as."""
    if switch.words:
        return [(switch.name, word) for word in words_of(value) or (NO_WORDS,)]
    if switch.values or switch.share:
        return [(switch.name, shown(value))]
    if value == switch.default:
        return []
    return [(switch.name, LESS if value < switch.default else MORE)]


class Tried:
    """How often each value of a framework's switches was tried."""

    def __init__(self, framework: str, version: str, torchtitan: str | None = None) -> None:
        self.switches = [one for one in BY_FRAMEWORK[framework].values() if one.source != BENCHMARK]
        self.version = version_of(framework, version)
        self.torchtitan = torchtitan
        self.counts: Counter[Named] = Counter()
        self.asked: Counter[Named] = Counter()

    def spelled(self, switch: Switch) -> list[Value]:
        """The values that the version can write."""
        known = [(value, switch.spelled(value, self.version)) for value in values(switch)]
        return [value for value, one in known if one and one.in_torchtitan(self.torchtitan)]

    def rarest(self, rng: np.random.Generator) -> Wanted:
        """The value that was tried least; of those that are alike, one at random."""
        known = [(switch, value) for switch in self.switches for value in self.spelled(switch)]
        ranks = [self._rank(switch, value) for switch, value in known]
        rarest = [one for one, rank in zip(known, ranks, strict=True) if rank == min(ranks)]
        switch, value = rarest[int(rng.integers(len(rarest)))]
        self.asked.update(names(switch, value))
        return switch, value

    def _rank(self, switch: Switch, value: Value) -> int:
        """What is asked for again and again and never comes is asked for less."""
        found = [2 * self.counts[name] + self.asked[name] for name in names(switch, value)]
        return min(found)

    def settings(self, rng: np.random.Generator, share: float) -> dict[str, Value]:
        """A share of the switches at values at random."""
        out: dict[str, Value] = {}
        for switch in self.switches:
            choices = self.spelled(switch)
            if choices and rng.random() < share:
                out[switch.name] = choices[int(rng.integers(len(choices)))]
        return out

    def count(self, recipe: Recipe, layout: Layout) -> None:
        """Counts the values that the plan writes where they act."""
        for switch in self.switches:
            value = setting(recipe, switch.name, switch.default)
            if acting((switch, value), recipe, layout):
                self.counts.update(names(switch, value))

    def never(self) -> list[str]:
        """What no plan had."""
        known: dict[Named, None] = {}
        for switch in self.switches:
            for value in self.spelled(switch):
                known |= dict.fromkeys(names(switch, value))
        return [f"{name}={value}" for name, value in known if not self.counts[name, value]]

    def __str__(self) -> str:
        by_switch: dict[str, list[str]] = {}
        for (name, value), count in sorted(self.counts.items()):
            by_switch.setdefault(name, []).append(f"{value} {count}")
        lines = [f"{name}: {', '.join(found)}" for name, found in by_switch.items()]
        return "\n".join([*lines, f"never tried: {', '.join(self.never()) or 'none'}"])


def acting(wanted: Wanted, recipe: Recipe, layout: Layouts) -> Mask:
    """Where the value of a switch is written and changes something."""
    switch, value = wanted
    written = switch.spelled(value, version_of(recipe.framework, recipe.framework_version))
    acts = switch.exists(recipe, layout) & switch.acts(recipe, layout)
    return np.broadcast_to(acts & (written is not None), (len(layout),))


def legal(
    rng: np.random.Generator,
    recipe: Recipe,
    drawn: Layouts,
    count: int,
    wanted: Wanted | None = None,
) -> Iterator[Layout]:
    """A few of the drawn layouts that hold every rule, preferring none; those alone in which the
    wanted value acts.
    """
    if wanted is not None:
        drawn = drawn[np.flatnonzero(acting(wanted, recipe, drawn))]
    for row in rng.permutation(np.flatnonzero(mask(recipe, drawn)[0]))[:count]:
        yield drawn[int(row)]


def around(
    rng: np.random.Generator,
    tried: Tried,
    each: int,
    question: Callable[[np.random.Generator, dict[str, Value], Wanted], Recipe],
    draw: Callable[[np.random.Generator, Recipe], Layouts],
    written: Callable[[Recipe, Layout], Written | None],
) -> list[tuple[Recipe, Layout, Written]]:
    """A question about the value of a switch that was tried least, with layouts in which it acts
    and what is written of them (None: it has no words for one); fewer other switches are set the
    longer none is found, and in the end there is none.
    """
    wanted = tried.rarest(rng)
    for attempt in range(ATTEMPTS):
        recipe = question(rng, tried.settings(rng, TURNED / (1 + attempt)), wanted)
        plans = []
        for layout in legal(rng, recipe, draw(rng, recipe), each, wanted):
            text = written(recipe, layout)
            if text is not None:
                tried.count(recipe, layout)
                plans.append((recipe, layout, text))
        if plans:
            break
    return plans


def together(framework: str, settings: dict[str, Value], wanted: Wanted | None) -> dict[str, Value]:
    """Settings with the wanted one, if any, and what it needs beside it."""
    if wanted is None:
        return settings
    switch, value = wanted
    return settings | with_required({switch.name: value}, framework)
