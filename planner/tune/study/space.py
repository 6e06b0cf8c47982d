"""Layouts that a study may launch: legal, not certain to run out of memory, and predicted to be
worth a trial.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice

import numpy as np

from planner.cost.terms import Estimate, StepTime
from planner.enumerate import layouts
from planner.errors import InputError
from planner.estimate import closed_form, estimate
from planner.layout import OFFLOADS, RECOMPUTE, SCHEDULE_CODE, SCHEDULES, Layout, Layouts
from planner.rules.table import breaches, mask
from planner.schedules.table import schedule
from planner.specs.recipe import Recipe
from planner.specs.switches import Switches

MAX_OOM_PROBABILITY = 0.9
"""Probability of running out of memory above which a layout is never launched."""
MAX_SLOWDOWN = 2.5
"""Layouts predicted to take longer than this many times the fastest are left out: predictions are
seldom off by as much.
"""
MAX_CANDIDATES = 512
"""Layouts of a study."""
MAX_CHECKED = 4 * MAX_CANDIDATES
"""Of the fastest, how many the runner is asked about."""
MAX_SIMULATED = 24
"""Of the fastest by closed form, how many are simulated."""
MAX_ACTIONS = 4096
"""Micro-batches times ranks up to which a layout is simulated; of longer pipelines the closed form
is as close.
"""
MAX_SPLITS = 8
"""Of the fastest splits with a pipeline, how many are tried under the other schedules that the
stack runs.
"""
GROUPS = tuple(StepTime.groups().values())
"""Terms of a step that are wrong together when they are wrong."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout and what the cost model says of it."""

    layout: Layout
    predicted_s: float
    memory_bytes: float
    oom_probability: float
    shares: tuple[float, ...]
    """Of the predicted step, by GROUPS; they add up to 1."""
    repeat: int = 0
    """Above 0 the layout is run once more, to tell it from its rivals."""
    switches: Switches = field(default_factory=dict)
    """Overlap switches and bucket sizes that are not left as they are."""

    @property
    def key(self) -> str:
        """The same text for the same layout under the same switches, in every process."""
        return key(self.layout, self.switches)


@dataclass(frozen=True, slots=True)
class Space:
    """The plan first, then the others, the fastest first."""

    candidates: tuple[Candidate, ...]
    legal: int
    certain_oom: int
    """Legal layouts that were left out since they would run out of memory."""
    removed: dict[str, int]
    """Layouts that each rule removed."""
    switches: Switches = field(default_factory=dict)
    """Of the plan that came in, those that change something."""


def key(layout: Layout, switches: Switches | None = None) -> str:
    return json.dumps(
        layout.named() | ({"switches": dict(switches)} if switches else {}), sort_keys=True
    )


Refused = Callable[[Layout], str]
"""Why a runner does not run a layout; empty when it does."""


def _runs(layout: Layout) -> str:
    return ""


def space(
    recipe: Recipe, plan: Layout, refused: Refused = _runs, most: int = MAX_CANDIDATES
) -> Space:
    """The plan and what may be faster, of what the runner does not refuse.

    Errors: InputError when the plan itself breaks a rule, is refused, or would run out of memory
    for certain.
    """
    first = _plan(recipe, plan, refused)
    every = layouts(recipe)
    ok, removed = mask(recipe, every)
    legal = every[np.flatnonzero(ok)]
    found, certain = _worth(recipe, legal) if ok.any() else ([], 0)
    found = list(islice((candidate for candidate in found if not refused(candidate.layout)), most))
    found = [
        *(foreseen(recipe, candidate.layout) for candidate in found[:MAX_SIMULATED]),
        *found[MAX_SIMULATED:],
    ]
    scheduled = (
        candidate
        for candidate in _scheduled(recipe, [first, *found])
        if not refused(candidate.layout)
    )
    others = {_acts(candidate.layout): candidate for candidate in reversed([*found, *scheduled])}
    others.pop(_acts(first.layout), None)
    ranked = sorted(others.values(), key=lambda candidate: candidate.predicted_s)[: most - 1]
    return Space((first, *ranked), int(ok.sum()), certain, removed)


def _acts(layout: Layout) -> str:
    """The same text for layouts that do the same: a lone data-parallel rank has nothing to
    shard.
    """
    return key(replace(layout, zero=0) if layout.dp * layout.cp == 1 else layout)


def _plan(recipe: Recipe, plan: Layout, refused: Refused) -> Candidate:
    broken = breaches(recipe, plan)
    if broken:
        raise InputError(
            f"the plan must hold a layout that {recipe.framework} can run, but {broken[0].message}"
        )
    if why := refused(plan):
        raise InputError(f"the plan must hold a layout that the runner can run, but {why}")
    first = foreseen(recipe, plan)
    if first.oom_probability > MAX_OOM_PROBABILITY:
        got = f"it would need {first.memory_bytes / 2**30:.1f} GiB"
        raise InputError(
            f"the plan must hold a layout that may fit, but {got}; `ppplan recommend` finds one"
            " that fits"
        )
    return first


def _worth(recipe: Recipe, legal: Layouts) -> tuple[list[Candidate], int]:
    """The fastest by closed form, and how many were left out since they would not fit."""
    estimates = closed_form(recipe, legal)
    count = len(legal)
    step_s, oom = (
        np.broadcast_to(column, (count,))
        for column in (estimates.step_s, estimates.oom_probability)
    )
    may = np.flatnonzero(oom <= MAX_OOM_PROBABILITY)
    order = may[np.argsort(step_s[may], kind="stable")]
    kept = (
        order[step_s[order] <= MAX_SLOWDOWN * step_s[order[0]]][:MAX_CHECKED]
        if len(order)
        else order
    )
    return list(_candidates(legal[kept], _rows(estimates, kept, count))), count - len(may)


def _rows(estimates: Estimate, kept: np.ndarray, count: int) -> dict[str, np.ndarray]:
    columns = {
        name: getattr(estimates, name) for name in ("step_s", "memory_bytes", "oom_probability")
    }
    columns |= {field.name: getattr(estimates.time, field.name) for field in fields(StepTime)}
    return {name: np.broadcast_to(column, (count,))[kept] for name, column in columns.items()}


def _candidates(batch: Layouts, columns: dict[str, np.ndarray]) -> Iterator[Candidate]:
    shares = np.array(
        [sum(columns[term] for term in group) / columns["step_s"] for group in GROUPS]
    )
    for row in range(len(columns["step_s"])):
        step_s, memory, oom = (
            float(columns[name][row]) for name in ("step_s", "memory_bytes", "oom_probability")
        )
        yield Candidate(batch[row], step_s, memory, oom, tuple(shares[:, row].tolist()))


def candidate(layout: Layout, estimate: Estimate) -> Candidate:
    """One layout with its estimate."""
    shares = tuple(
        float(sum(getattr(estimate.time, term) for term in group) / estimate.step_s)
        for group in GROUPS
    )
    return Candidate(
        layout,
        float(estimate.step_s),
        float(estimate.memory_bytes),
        float(estimate.oom_probability),
        shares,
    )


def foreseen(recipe: Recipe, layout: Layout) -> Candidate:
    """One layout, its pipeline simulated where that is quick."""
    return candidate(
        layout, estimate(recipe, layout, exact=layout.pp * layout.m * layout.v <= MAX_ACTIONS)
    )


def _scheduled(recipe: Recipe, candidates: list[Candidate]) -> Iterator[Candidate]:
    """The fastest splits under every other schedule that the stack runs, unless the question fixes
    one.
    """
    if "schedule" in recipe.knobs or "v" in recipe.knobs:
        return
    for layout in _splits(candidates):
        for name in recipe.stack.schedules:
            least, most = schedule(name).chunks
            for v in sorted({least, max(least, 2)} if most is None else {least}):
                other = replace(layout, schedule=SCHEDULE_CODE[name], v=v, group=0)
                if name not in ("1f1b", "interleaved") and not breaches(recipe, other):
                    yield from _may_fit(recipe, other)


def _splits(candidates: list[Candidate]) -> list[Layout]:
    seen: dict[tuple[int, ...], Layout] = {}
    for layout in (
        candidate.layout
        for candidate in candidates
        if candidate.layout.pp > 1 and candidate.layout.pp * candidate.layout.m <= MAX_ACTIONS
    ):
        seen.setdefault((layout.tp, layout.pp, layout.dp, layout.cp, layout.mbs), layout)
    return list(seen.values())[:MAX_SPLITS]


def _may_fit(recipe: Recipe, layout: Layout) -> Iterator[Candidate]:
    try:
        candidate = foreseen(recipe, layout)
    except InputError:  # a schedule that cannot be ordered for these sizes is no candidate
        return
    if candidate.oom_probability <= MAX_OOM_PROBABILITY:
        yield candidate


NUMBERS = ("tp", "pp", "dp", "cp", "ep", "etp", "v", "mbs", "m")
CODES = ("zero", "sp", "schedule", "recompute", "recompute_modules", "recompute_layers", "offload")


def knobs(layout: Layout) -> np.ndarray:
    """A layout as a point: doublings of what is a number, codes of what is a name."""
    return np.array(
        [
            *(np.log2(max(getattr(layout, name), 1)) for name in NUMBERS),
            *(getattr(layout, name) for name in CODES),
        ],
        float,
    )


def varied(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Fields in which candidates differ: the parameters of a study."""
    names = [field.name for field in fields(Layout) if field.name != "stage_layout"]
    return tuple(
        name
        for name in names
        if len({getattr(candidate.layout, name) for candidate in candidates}) > 1
    )


def parameters(layout: Layout, names: Sequence[str]) -> dict[str, int | str]:
    """Those fields of a layout, names in place of codes where there are any."""
    codes = {"schedule": SCHEDULES, "recompute": RECOMPUTE, "offload": OFFLOADS}
    return {
        name: codes[name][getattr(layout, name)] if name in codes else int(getattr(layout, name))
        for name in names
    }
