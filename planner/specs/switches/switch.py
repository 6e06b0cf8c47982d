"""A switch: what a run turns on or off without another layout, stated once for rules, cost,
emitters, readers and documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from planner.layout import Layouts, Mask
from planner.specs.recipe import Recipe
from planner.specs.software_versions import TORCHTITANS
from planner.specs.versions import Version

Value = bool | int | float | str
Switches = Mapping[str, Value]
"""Values of switches by name; of those that are missing the framework's defaults hold."""
Plain = Mapping[str, Any]
"""Values read from a file, by the framework's own words (Reading.plain)."""
NO_WORDS = "none"
Keys = tuple[tuple[str, Any], ...]
"""Keys of a configuration with what is written; {value} stands for the value."""
FIRST: Version = (0, 0)
NEVER: Version = (999, 0)
VALUE = "{value}"
"""Stands in a spelling for a number."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a value is written, in versions from `since` up to, not including, `before`."""

    value: Value
    flags: tuple[tuple[str, ...], ...] = ()
    """Flags of the command line, each with its arguments, {value} in place of a number and {words}
    of a set; none where the value is the default.
    """
    since: Version = FIRST
    before: Version = NEVER
    environment: tuple[tuple[str, str], ...] = ()
    experts: bool | None = None
    """Written for models with experts alone, or without; None: for both."""
    bridge: Keys = ()
    """Keys of Megatron-Bridge's configuration, by part: `ddp.overlap_grad_reduce`."""
    where: Callable[[Recipe, Layouts], Mask] | None = None
    """Recipes and layouts alone that write it so; None: all."""
    keys: Keys = ()
    """Keys of DeepSpeed's configuration, by path: `zero_optimization.overlap_comm`."""
    titan: Keys | None = ()
    """Keys of torchtitan 0.3's Python configuration, by section: `compile.enable`; None: it has no
    words for the value.
    """
    toml: Keys | None = ()
    """The same of torchtitan 0.2's TOML."""
    accelerate: Keys | None = ()
    """The same of Accelerate's YAML."""

    def in_torchtitan(self, version: str | None) -> bool:
        """Whether the file of a torchtitan (None: the newest) says the value; of what is no switch
        of torch nothing is in the way.
        """
        return (self.toml if version == TORCHTITANS[0] else self.titan) is not None

    def in_file_of(self, launched_by: str) -> bool:
        """Whether the file of other software that starts the framework says the value."""
        if launched_by == "bridge":
            return bool(self.bridge) or not self.flags
        return not launched_by or self.accelerate is not None


@dataclass(frozen=True, slots=True)
class Need:
    """What must hold where the switch is on (not at its first value)."""

    name: str
    holds: Callable[[Recipe, Layouts], Mask]
    says: str
    """As of planner.rules.rule.Rule."""
    way_out: str
    since: Version = FIRST
    before: Version = NEVER
    values: tuple[Value, ...] = ()
    """The values that it binds; none: every value but the first."""


def setting(recipe: Recipe, name: str, default: Value) -> Value:
    """A switch as the recipe has it: measured with it, else as its stack has it."""
    return recipe.switches.get(name, recipe.software.switches.get(name, default))


def words_of(value: Value) -> tuple[str, ...]:
    """The words of a set."""
    return () if value == NO_WORDS else tuple(str(value).split("+"))


def always(recipe: Recipe, layout: Layouts) -> Mask:
    return np.True_


def sees_no_images(recipe: Recipe, layout: Layouts) -> Mask:
    """Whether no vision tower works in front. Source: [megatron-bridge] model card of
    Qwen3.6-35B-A3B: graphs of the text, none of the tower.
    """
    return np.asarray(not recipe.images_per_sample)


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch of one framework."""

    name: str
    help: str
    values: tuple[Value, ...]
    """Off, or what costs nothing and gains nothing, first; none: a whole number, a share, or a set
    of words.
    """
    default: Value
    """The framework's own; Megatron-LM's of its command line. Of numbers and sets what costs
    nothing and gains nothing.
    """
    arithmetic: Literal["same", "reassociated", "lossy", "benchmark-only"]
    """same: bit for bit the same sums; reassociated: other orders of the same sums; lossy: fewer
    bits or dropped tokens; benchmark-only: trains nothing.
    """
    spellings: tuple[Spelling, ...]
    """Of one value the first that the version has is written."""
    says: str
    """What it does to time and memory, in a sentence."""
    source: str
    lossy: tuple[Value, ...] = ()
    """Of a switch that is not lossy as a whole the values that are."""
    exists: Callable[[Recipe, Layouts], Mask] = always
    """Where it is written: a model without experts has no dispatcher."""
    acts: Callable[[Recipe, Layouts], Mask] = always
    """Where it changes anything; elsewhere it is written at its first value."""
    needs: tuple[Need, ...] = ()
    requires: tuple[tuple[str, Value], ...] = ()
    """Other switches, and the value without which this one stays at its first."""
    read: Callable[[Plain], Value | None] | None = None
    """The value that a file states, where it is not simply the flags of a spelling."""
    lowest: int = 1
    """Of a whole number the least."""
    unset: bool = False
    """Of a whole number: its default is that nothing is stated, and a file cannot state it."""
    share: bool = False
    """Of a switch without values: a number above 0, up to 1."""
    words: tuple[str, ...] = ()
    """Of a switch without values: the words of which any may stand in it, joined by +; NO_WORDS
    where none does.
    """
    searched: Callable[[Recipe], tuple[Value, ...]] = lambda recipe: ()
    """Of a switch without values those that a search tries."""
    frees: bool = False
    """Frees memory alone, at a cost that no run is known to have measured: searched where nothing
    fits without it.
    """

    @property
    def first(self) -> Value:
        """Off, or what costs nothing and gains nothing."""
        return self.values[0] if self.values else self.default

    def spelled(
        self,
        value: Value,
        version: Version,
        experts: bool | None = None,
        plan: tuple[Recipe, Layouts] | None = None,
    ) -> Spelling | None:
        """How a version writes a value, for a model with experts or without (None: for either), in
        a plan (None: in any); None where it cannot.
        """
        for spelling in self.spellings:
            fits = not self.values or spelling.value == value
            model = experts is None or spelling.experts in (None, experts)
            planned = plan is None or spelling.where is None or bool(spelling.where(*plan))
            if fits and model and planned and spelling.since <= version < spelling.before:
                return spelling
        return None

    def arithmetic_of(self, value: Value) -> str:
        """What a value does to the numbers; the first of a switch that is lossy, nothing."""
        if value in self.lossy:
            return "lossy"
        harmless = value == self.first and self.arithmetic in ("lossy", "benchmark-only")
        return "same" if harmless else self.arithmetic


def copies(recipe: Recipe) -> tuple[Value, ...]:
    """Copies of what is sharded that a search tries: 2, 4, and one a node, where they divide the
    nodes.
    """
    nodes = recipe.gpus // recipe.hardware.node.gpus
    return tuple(n for n in sorted({2, 4, nodes}) if n > 1 and nodes % n == 0)
