"""What the other values of a recipe's switches would give to a layout, and what those that are on
are worth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.cost.terms import ACCEPTED_OOM_PROBABILITY, Estimate
from planner.estimate import closed_form
from planner.layout import Layout
from planner.rules.table import breaches
from planner.specs import guesses
from planner.specs.recipe import Recipe
from planner.specs.switches.alternatives import KEEPS_ARITHMETIC, Alternative, alternatives
from planner.specs.switches.switch import Switches, Value, setting
from planner.specs.switches.table import BY_FRAMEWORK, is_guess, settings_of, shown

PAYS = 0.001
"""Of a step: less is not worth a word."""
PAYS_GIB = 0.5
"""Less memory is not worth one."""


@dataclass(frozen=True, slots=True)
class SwitchGain:
    """One switch at another value than the recipe's."""

    name: str
    now: Value
    value: Value
    settings: Switches
    """The value, and what it is set together with."""
    step_s: float
    """Of the layout with it: its closed form in proportion to the step that is stated."""
    saved_s: float
    """Less than now; negative where the recipe's value is the faster one."""
    saved_gib: float
    """Memory of the worst rank less than now; negative where the recipe's value needs less."""
    arithmetic: str
    """What the value does to the numbers; Switch.arithmetic."""

    off: bool
    """Whether the value is the switch's first."""
    by_default: bool
    """Whether the recipe's value is what the framework does unless told otherwise."""
    guessed: bool
    """Whether the effect is a guess, by its source."""

    @property
    def keeps_arithmetic(self) -> bool:
        return self.arithmetic in KEEPS_ARITHMETIC

    @property
    def doubt(self) -> str:
        """`, a guess` where no measurement stands behind the effect."""
        return ", a guess" * self.guessed

    def to_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "now": self.now,
            "value": self.value,
            "step_s": self.step_s,
            "saved_s": self.saved_s,
            "saved_gib": self.saved_gib,
            "arithmetic": self.arithmetic,
            "guessed": self.guessed,
        }


def other_values(
    recipe: Recipe,
    layout: Layout,
    accepted: float = ACCEPTED_OOM_PROBABILITY,
    step_s: float | None = None,
) -> list[SwitchGain]:
    """Every named value that a switch does not have now, where the version has it, it acts, it
    breaks no rule and the layout still fits.

    accepted: probability of running out of memory up to which it fits.
    step_s: of the layout as it is stated, simulated; gains are in proportion to it.
    """
    base = closed_form(recipe, layout)
    scale = 1.0 if step_s is None else step_s / float(base.step_s)
    gains = []
    for other in alternatives(recipe):
        if not other.switch.values:
            continue
        gain = _gain(recipe, layout, other, base, accepted)
        if gain is not None:
            gains.append(replace(gain, step_s=gain.step_s * scale, saved_s=gain.saved_s * scale))
    return gains


def _gain(
    recipe: Recipe, layout: Layout, other: Alternative, base: Estimate, accepted: float
) -> SwitchGain | None:
    switch, now = other.switch, settings_of(recipe.software)[other.switch.name]
    changed = other.taken(recipe)
    acts = switch.exists(changed, layout) & switch.acts(changed, layout)
    if not acts or breaches(changed, layout):
        return None
    estimate = closed_form(changed, layout)
    if float(estimate.oom_probability) >= accepted:
        return None
    step_s = float(estimate.step_s)
    return SwitchGain(
        switch.name,
        now,
        other.value,
        other.settings,
        step_s,
        float(base.step_s) - step_s,
        float(base.memory_gib) - float(estimate.memory_gib),
        other.arithmetic,
        other.value == switch.first,
        now == switch.default,
        is_guess(recipe.framework, switch.name),
    )


def stated(settings: Switches, recipe: Recipe, layout: Layout) -> tuple[list[str], list[str]]:
    """Of settings that a question fixes the names of those that act in a layout, and of those that
    change nothing there; values that the framework has anyway are neither.
    """
    acting: list[str] = []
    idle: list[str] = []
    for name, value in settings.items():
        switch = BY_FRAMEWORK[recipe.framework][name]
        if value == switch.default:
            continue
        acts = switch.exists(recipe, layout) & switch.acts(recipe, layout)
        (acting if acts else idle).append(name)
    return acting, idle


def acting(recipe: Recipe, layout: Layout, on: str = "") -> str:
    """Switches that act in a layout at another value than the framework's own and that a sentence
    does not name yet.
    """
    listed = []
    for name, switch in BY_FRAMEWORK[recipe.framework].items():
        value = setting(recipe, name, switch.default)
        if value == switch.default or f"{name} " in on:
            continue
        if switch.exists(recipe, layout) & switch.acts(recipe, layout):
            doubt = " (a guess)" * is_guess(recipe.framework, name)
            listed.append(f"{name} {shown(value)}{doubt}")
    return ", ".join(listed)


def guesses_on(recipe: Recipe, layout: Layout) -> list[str]:
    """The switches that act and whose effect is a guess, each with what of it the range holds."""
    widening = guesses.guessed(recipe)
    listed = []
    for name, switch in BY_FRAMEWORK[recipe.framework].items():
        value = setting(recipe, name, switch.default)
        if value == switch.first or not is_guess(recipe.framework, name):
            continue
        if switch.exists(recipe, layout) & switch.acts(recipe, layout):
            held = "widens the range" if name in widening else "its published runs had it"
            listed.append(f"{name} {shown(value)} ({held})")
    return listed


def turned_on(recipe: Recipe, layout: Layout, step_s: float) -> str:
    """Every switch that acts at another value than the framework's own, with what it saves where
    that is worth a word.
    """
    gains = other_values(recipe, layout, step_s=step_s)
    on, _ = worth(gains, step_s)
    return ", ".join(filter(None, [on, acting(recipe, layout, on)]))


def worth(gains: list[SwitchGain], step_s: float) -> tuple[str, str]:
    """Two sentences, each empty where there is nothing to say: what was turned on and what it
    saves, what is left off and would save. What changes the numbers is said apart
    (planner/numerics.py).
    """
    least = PAYS * step_s
    on = [
        f"{gain.name} {shown(gain.now)} ({saving(-gain.saved_s, -gain.saved_gib)}{gain.doubt})"
        for gain in gains
        if gain.off and not gain.by_default and gain.saved_s < -least
    ]
    return ", ".join(on), ", ".join(_best(gains, least))


def saving(seconds: float, gib: float) -> str:
    """What is saved of a step, and of memory where it is worth a word: `0.24 s, 3.1 GiB`."""
    return f"{seconds:.2g} s" + f", {gib:.1f} GiB" * (gib >= PAYS_GIB)


def _best(gains: list[SwitchGain], least: float) -> list[str]:
    """Of each switch the value that keeps the numbers and saves most."""
    best: dict[str, SwitchGain] = {}
    for gain in sorted(gains, key=lambda gain: -gain.saved_s):
        if gain.saved_s > least and gain.keeps_arithmetic:
            best.setdefault(gain.name, gain)
    return [
        f"{gain.name} {shown(gain.value)} ({saving(gain.saved_s, gain.saved_gib)}{gain.doubt})"
        for gain in best.values()
    ]
