"""Other settings of a recipe's switches: one switch at another value, with what that needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from planner.specs.recipe import Recipe
from planner.specs.switches.lossy import BENCHMARK
from planner.specs.switches.switch import Switch, Switches, Value
from planner.specs.switches.table import BY_FRAMEWORK, settings_of, with_switches
from planner.specs.versions import version_of

KEEPS_ARITHMETIC = ("same", "reassociated")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One switch at a value that it does not have."""

    switch: Switch
    value: Value
    settings: Switches
    """The value, and others that it requires where they are not so yet."""

    @property
    def arithmetic(self) -> str:
        """What it does to the numbers; Switch.arithmetic."""
        return self.switch.arithmetic_of(self.value)

    def taken(self, recipe: Recipe) -> Recipe:
        software = with_switches(recipe.software, self.settings)
        return recipe.model_copy(update={"software": software})


def alternatives(recipe: Recipe, fixed: Collection[str] = ()) -> Iterator[Alternative]:
    """Every other value of every switch that the version has and in which something is trained;
    fixed: switches that stay as they are.
    """
    now = settings_of(recipe.software)
    version = version_of(recipe.framework, recipe.framework_version)
    for switch in BY_FRAMEWORK[recipe.framework].values():
        for value in switch.values or switch.searched(recipe):
            spelling = switch.spelled(value, version)
            if value == now[switch.name] or spelling is None:
                continue
            if not spelling.in_torchtitan(recipe.versions.torchtitan):
                continue
            if not spelling.in_file_of(recipe.launched_by):
                continue
            required = switch.requires if value != switch.first else ()
            settings = {n: needed for n, needed in required if now[n] != needed}
            settings[switch.name] = value
            if switch.arithmetic_of(value) != BENCHMARK and not settings.keys() & set(fixed):
                yield Alternative(switch, value, settings)


def keeping_arithmetic(recipe: Recipe, fixed: Collection[str] = ()) -> Iterator[Alternative]:
    """Those that leave the numbers of a run as they are, but for the order of sums."""
    switches = BY_FRAMEWORK[recipe.framework]
    for other in alternatives(recipe, fixed):
        kinds = {switches[name].arithmetic_of(value) for name, value in other.settings.items()}
        if kinds <= {*KEEPS_ARITHMETIC}:
            yield other
