"""What each pipeline schedule would give for a layout: seconds of a step beside activations in
flight, and from where on more virtual stages stop paying.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from planner.cost.pipeline import refused
from planner.cost.schedule_terms import in_flight
from planner.cost.terms import Estimate
from planner.enumerate import menus
from planner.estimate import closed_form, estimate
from planner.layout import RECOMPUTE_CODE, SCHEDULE_CODE, SCHEDULES, Layout, columns
from planner.rules.table import breaches
from planner.specs import library
from planner.specs.recipe import Recipe
from planner.units import GIB

PLAIN = ("gpipe", "1f1b")
TWO_BACKWARDS = {"zb-h1": 1, "zbv": 2, "dualpipe": 1, "dualpipev": 2}
"""Schedules that split the backward pass, with their virtual stages: zero bubble, and DualPipe with
micro-batches from both ends. Their closed forms take all ranks as equal, so that each is simulated.
"""
PAYS = 0.005
"""Of a step: a smaller gain is none, as the model does not tell such plans apart."""


@dataclass(frozen=True, slots=True)
class ScheduleOption:
    """A layout under one schedule."""

    schedule: str
    v: int
    own: bool
    """Whether the layout has it."""
    runs: bool
    """Whether the recipe's software runs it."""
    run_by: tuple[str, ...]
    """Software that does."""
    refused: str = ""
    """Why the layout cannot have it; then there are no figures."""
    step_s: float = 0.0
    bubble_share: float = 0.0
    in_flight: float = 0.0
    """Micro-batches whose activations the fullest rank holds, each of 1/p of the layers."""
    activations_bytes: float = 0.0
    """Of those micro-batches, on the fullest rank."""
    memory_bytes: float = 0.0
    fits: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: figures are None where the layout cannot have the schedule."""
        figures = {
            "step_s": self.step_s,
            "bubble_share": self.bubble_share,
            "in_flight": self.in_flight,
            "activations_gib": self.activations_bytes / GIB,
            "memory_gib": self.memory_bytes / GIB,
            "fits": self.fits,
        }
        return {
            "schedule": self.schedule,
            "v": self.v,
            "own": self.own,
            "runs": self.runs,
            "run_by": list(self.run_by),
            "refused": self.refused or None,
            **(dict.fromkeys(figures) if self.refused else figures),
        }


def schedule_options(
    recipe: Recipe, layout: Layout, stated: Estimate
) -> tuple[ScheduleOption, ...]:
    """The layout under GPipe, 1F1B, interleaving by v, zero bubble and DualPipe; nothing without a
    pipeline. stated: its own estimate.

    GPipe, 1F1B and interleaving are by closed form, the others simulated.
    """
    if layout.pp == 1:
        return ()
    own = (SCHEDULES[layout.schedule], layout.v)
    plain = [*((name, 1) for name in PLAIN), *(("interleaved", v) for v in _ladder(recipe, layout))]
    rows = [row for other in plain if other != own for row in _under(recipe, layout, *other)]
    options = [replace(_option(recipe, layout, stated), own=True)]
    if not layout.stage_layout:
        options += _by_closed_form(recipe, rows, (layout, stated))
        rows = []
    for name, v in TWO_BACKWARDS.items():
        if (name, v) != own:
            rows += _under(recipe, layout, name, v)[-1:]
    options += [_simulated(recipe, row) for row in rows]
    return tuple(sorted(options, key=lambda option: (SCHEDULE_CODE[option.schedule], option.v)))


def pays_up_to(options: Iterable[ScheduleOption]) -> ScheduleOption | None:
    """That with the fewest virtual stages which no larger number beats by more than PAYS, of those
    that fit, or of all where none does; None where there is no choice.
    """
    ladder = [each for each in options if each.schedule in ("1f1b", "interleaved")]
    usable = [each for each in ladder if each.fits] or ladder
    if len(usable) < 2:
        return None
    fastest_s = min(each.step_s for each in usable)
    return next(each for each in usable if each.step_s <= fastest_s * (1 + PAYS))


def verdict(options: Iterable[ScheduleOption]) -> str:
    """Where more virtual stages stop paying, as a sentence; empty where there is no choice."""
    known = tuple(options)
    enough = pays_up_to(known)
    if enough is None:
        return ""
    larger = [each for each in known if each.schedule == "interleaved" and each.v > enough.v]
    if not larger:
        return f"More virtual stages pay up to v {enough.v}, the most that the layers divide into."
    following = larger[0]
    change = following.step_s / enough.step_s - 1
    why = f"is {change:.1%} slower" if change > 0 else f"gains {-change:.1%}"
    if enough.fits and not following.fits:
        why = "does not fit"
    pays = f"pay up to v {enough.v}" if enough.v > 1 else "do not pay"
    return f"More virtual stages {pays} on this network: v {following.v} {why}."


def _under(recipe: Recipe, layout: Layout, name: str, v: int) -> list[Layout]:
    """The layout with another schedule, with as many of its layers recomputed: where these do not
    divide over the virtual stages, with fewer, then with more.
    """
    group = recipe.fixed("group") or menus.group(recipe, layout.pp, layout.m)
    other = replace(
        _split(recipe, layout, v) or layout,
        schedule=SCHEDULE_CODE[name],
        v=v,
        group=group if name == "interleaved" else 0,
        stage_layout=layout.stage_layout if v == layout.v == 1 else "",
    )
    layers = layout.recompute_layers * layout.v
    if not layers % v:
        return [replace(other, recompute_layers=layers // v)]
    fewer = replace(other, recompute_layers=layers // v)
    if layers < v:
        fewer = replace(other, recompute=RECOMPUTE_CODE["none"], recompute_layers=0)
    return [fewer, replace(other, recompute_layers=layers // v + 1)]


def _ladder(recipe: Recipe, layout: Layout) -> list[int]:
    """Numbers of virtual stages above 1 into which the layers divide."""
    if layout.stage_layout:
        return []
    most = recipe.model.num_layers // layout.pp + 1
    ladder = [v for v in range(2, most + 1) if _split(recipe, layout, v)]
    judge = breaches if "interleaved" in recipe.software.schedules else refused
    return [v for v in ladder if not judge(recipe, _under(recipe, layout, "interleaved", v)[-1])]


def _split(recipe: Recipe, layout: Layout, v: int) -> Layout | None:
    """The layout with its layers divided over so many virtual stages: with the ends that it has,
    else with even ranks; None where they do not divide.

    Formula: v divides the layers of each rank: first, last, and an even share of what is left
    Source:  [megatron-core] get_num_layers_to_build
    Assumes: embedding and loss each stand for a layer where they are counted.
    """
    counted = [(0, 0), (1, 1), (1, 0), (0, 1)] if recipe.framework == "megatron" else [(0, 0)]
    even = [
        replace(
            layout,
            first_layers=0,
            last_layers=0,
            account_for_embedding=embedding,
            account_for_loss=loss,
        )
        for embedding, loss in counted
    ]
    return next((split for split in (layout, *even) if _divides(recipe, split, v)), None)


def _divides(recipe: Recipe, layout: Layout, v: int) -> bool:
    ends = [own for own in (layout.first_layers, layout.last_layers) if own]
    counted = recipe.model.num_layers + layout.account_for_embedding + layout.account_for_loss
    between, ranks = counted - sum(ends), layout.pp - len(ends)
    return between % (max(ranks, 1) * v) == 0 and not any(own % v for own in ends)


def _by_closed_form(
    recipe: Recipe, rows: list[Layout], stated: tuple[Layout, Estimate]
) -> list[ScheduleOption]:
    """Options of layouts as columns, of each schedule the first layout that fits, else its last.

    The closed form of interleaving counts some transfers that are hidden, as long for every v: the
    stated layout or else one that is simulated says how long.
    """
    batch = closed_form(recipe, columns([*rows, stated[0]]))
    count = len(rows) + 1
    step_s, bubble, memory, activations, fits = (
        np.broadcast_to(column, count)
        for column in (
            batch.step_s,
            batch.bubble_share,
            batch.memory_bytes,
            batch.memory.activations_bytes,
            batch.fits,
        )
    )
    interleaved = [at for at, row in enumerate([*rows, stated[0]]) if _interleaved(row)]
    hidden_s = 0.0
    if interleaved:
        at = interleaved[-1] if _interleaved(stated[0]) else interleaved[0]
        exact = stated[1] if at == len(rows) else estimate(recipe, rows[at], exact=True)
        hidden_s = float(step_s[at] - exact.step_s)
    found: dict[tuple[str, int], ScheduleOption] = {}
    for at, row in enumerate(rows):
        option = replace(
            _named(recipe, row),
            step_s=float(step_s[at]) - hidden_s * _interleaved(row),
            bubble_share=float(bubble[at]),
            in_flight=_in_flight(row),
            activations_bytes=float(activations[at]),
            memory_bytes=float(memory[at]),
            fits=bool(fits[at]),
        )
        earlier = found.get((option.schedule, option.v))
        if earlier is None or not earlier.fits:
            found[option.schedule, option.v] = option
    return list(found.values())


def _interleaved(layout: Layout) -> bool:
    return SCHEDULES[layout.schedule] == "interleaved"


def _simulated(recipe: Recipe, layout: Layout) -> ScheduleOption:
    why = refused(recipe, layout).removeprefix("pipeline by closed form: ")
    if why:
        return replace(_named(recipe, layout), refused=why)
    return _option(recipe, layout, estimate(recipe, layout, exact=True))


def _option(recipe: Recipe, layout: Layout, its: Estimate) -> ScheduleOption:
    return replace(
        _named(recipe, layout),
        step_s=float(its.step_s),
        bubble_share=float(its.bubble_share),
        in_flight=_in_flight(layout),
        activations_bytes=float(its.memory.activations_bytes),
        memory_bytes=float(its.memory_bytes),
        fits=bool(its.fits),
    )


def _named(recipe: Recipe, layout: Layout) -> ScheduleOption:
    """Without figures."""
    name = SCHEDULES[layout.schedule]
    runs = name in recipe.software.schedules
    return ScheduleOption(name, layout.v, False, runs, _software()[name])


def _in_flight(layout: Layout) -> float:
    """The most that a rank holds, by the schedule's own formula."""
    ranks = np.arange(layout.pp)
    return float(np.max(in_flight(layout, ranks)))


@cache
def _software() -> dict[str, tuple[str, ...]]:
    """By schedule the software that runs it."""
    stacks = [library.stack(name) for name in library.offered_stacks()]
    return {
        name: tuple(stack.name for stack in stacks if name in stack.schedules) for name in SCHEDULES
    }
