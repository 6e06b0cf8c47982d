"""What switches need, as rules: each from the switch's own entry."""

from __future__ import annotations

import numpy as np

from planner.layout import Layouts, Mask
from planner.rules.rule import Rule
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Need, Switch, setting
from planner.specs.switches.table import BY_FRAMEWORK


def of(framework: str) -> tuple[Rule, ...]:
    """The rules of every switch of a framework."""
    return tuple(
        _rule(switch, need) for switch in BY_FRAMEWORK[framework].values() for need in switch.needs
    )


def _rule(switch: Switch, need: Need) -> Rule:
    def holds(recipe: Recipe, layout: Layouts) -> Mask:
        value = setting(recipe, switch.name, switch.default)
        binds = value in need.values if need.values else value != switch.first
        if not binds:
            return np.True_
        idle = ~np.asarray(switch.exists(recipe, layout) & switch.acts(recipe, layout))
        return idle | need.holds(recipe, layout)

    return Rule(
        need.name,
        holds,
        need.says,
        lambda recipe, layout: need.way_out,
        need.since,
        need.before,
    )
