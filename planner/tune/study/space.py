"""Layouts that a study may launch: legal, not certain to run out of memory, and predicted to be
worth a trial.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter

import numpy as np

from planner.cost.terms import Estimate, StepTime
from planner.errors import InputError
from planner.estimate import closed_form, estimate
from planner.layout import OFFLOADS, RECOMPUTE, SCHEDULE_CODE, SCHEDULES, Layout
from planner.rules.table import breaches
from planner.schedules.table import schedule
from planner.search.branch import Computed, explore
from planner.specs.recipe import Recipe
from planner.specs.switches.switch import Switches

MAX_OOM_PROBABILITY = 0.9
"""Probability of running out of memory above which a layout is never launched."""
MAX_SLOWDOWN = 2.5
"""Layouts predicted to take longer than this many times the fastest are left out: predictions are
seldom off by as much.
"""
MAX_CANDIDATES = 512
"""Layouts of a study."""
MAX_EXPLORED = 64
"""Splits of GPUs and batch whose fastest layout is known for certain."""
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
    """Switches of the software that are not left as they are."""

    @property
    def key(self) -> str:
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
    """The same text for the same layout under the same switches, in every process."""
    named = layout.named()
    if switches:
        named["switches"] = dict(switches)
    return json.dumps(named, sort_keys=True)


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
    explored = explore(recipe, MAX_EXPLORED)
    fastest, certain_oom = _fastest(recipe, explored.computed)
    runnable: list[Candidate] = []
    for candidate in fastest:
        if len(runnable) < most and not refused(candidate.layout):
            simulated = len(runnable) < MAX_SIMULATED
            runnable.append(foreseen(recipe, candidate.layout) if simulated else candidate)
    for candidate in _scheduled(recipe, [first, *runnable]):
        if not refused(candidate.layout):
            runnable.append(candidate)
    others = {_acts(candidate.layout): candidate for candidate in reversed(runnable)}
    others.pop(_acts(first.layout), None)
    ranked = sorted(others.values(), key=lambda candidate: candidate.predicted_s)[: most - 1]
    counts = explored.counts
    return Space(
        (first, *ranked), counts.computed, counts.too_large + certain_oom, dict(counts.removed)
    )


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
    reason = refused(plan)
    if reason:
        raise InputError(f"the plan must hold a layout that the runner can run, but {reason}")
    first = foreseen(recipe, plan)
    if first.oom_probability > MAX_OOM_PROBABILITY:
        got = f"it would need {first.memory_bytes / 2**30:.1f} GiB"
        raise InputError(
            f"the plan must hold a layout that may fit, but {got}; `ppplan recommend` finds one"
            " that fits"
        )
    return first


def _fastest(recipe: Recipe, computed: Computed) -> tuple[list[Candidate], int]:
    """The fastest by closed form, and how many were left out since they would not fit."""
    if not computed.fits.any():
        return [], 0
    fastest_s = float(computed.step_s[computed.fits].min())
    near = computed.layout[np.flatnonzero(computed.step_s <= MAX_SLOWDOWN * fastest_s)]
    estimates = _columns(closed_form(recipe, near), len(near))
    step_s, _, oom, *_ = estimates
    fitting = np.flatnonzero(oom <= MAX_OOM_PROBABILITY)
    order = fitting[np.argsort(step_s[fitting], kind="stable")][:MAX_CHECKED]
    layouts = near[order]
    candidates = [_candidate(layouts[row], estimates[:, at]) for row, at in enumerate(order)]
    return candidates, len(near) - len(fitting)


def _columns(estimate: Estimate, count: int) -> np.ndarray:
    """(3 + groups, count) figures of the layouts: seconds, bytes, the probability to run out of
    memory, then the shares of GROUPS.
    """
    figures = [estimate.step_s, estimate.memory_bytes, estimate.oom_probability]
    for group in GROUPS:
        figures.append(sum(getattr(estimate.time, term) for term in group) / estimate.step_s)
    return np.array([np.broadcast_to(figure, (count,)) for figure in figures], float)


def _candidate(layout: Layout, figures: np.ndarray) -> Candidate:
    step_s, memory_bytes, oom_probability, *shares = figures.tolist()
    return Candidate(layout, step_s, memory_bytes, oom_probability, tuple(shares))


def candidate(layout: Layout, estimate: Estimate) -> Candidate:
    """One layout with its estimate."""
    return _candidate(layout, _columns(estimate, 1)[:, 0])


def foreseen(recipe: Recipe, layout: Layout) -> Candidate:
    """One layout, its pipeline simulated where that is quick."""
    exact = layout.pp * layout.m * layout.v <= MAX_ACTIONS
    return candidate(layout, estimate(recipe, layout, exact=exact))


def _scheduled(recipe: Recipe, candidates: list[Candidate]) -> Iterator[Candidate]:
    """The fastest splits under every other schedule that the stack runs, unless the question fixes
    one.
    """
    if "schedule" in recipe.knobs or "v" in recipe.knobs:
        return
    for layout in _splits(candidates):
        for name in recipe.software.schedules:
            least, most = schedule(name).chunks
            for v in (least, 2) if most is None and least < 2 else (least,):
                other = replace(layout, schedule=SCHEDULE_CODE[name], v=v, group=0)
                if name not in ("1f1b", "interleaved") and not breaches(recipe, other):
                    yield from _may_fit(recipe, other)


def _splits(candidates: list[Candidate]) -> list[Layout]:
    """The first layout of each way to split the GPUs over a pipeline."""
    splits: dict[tuple[int, ...], Layout] = {}
    for candidate in candidates:
        layout = candidate.layout
        if layout.pp > 1 and layout.pp * layout.m <= MAX_ACTIONS:
            splits.setdefault((layout.tp, layout.pp, layout.dp, layout.cp, layout.mbs), layout)
    return list(splits.values())[:MAX_SPLITS]


def _may_fit(recipe: Recipe, layout: Layout) -> Iterator[Candidate]:
    try:
        candidate = foreseen(recipe, layout)
    except InputError:  # a schedule that cannot be ordered for these sizes is no candidate
        return
    if candidate.oom_probability <= MAX_OOM_PROBABILITY:
        yield candidate


NUMBERS = ("tp", "pp", "dp", "cp", "ep", "etp", "v", "mbs", "m")
CODES = ("zero", "sp", "schedule", "recompute", "recompute_modules", "recompute_layers", "offload")
NAMES = {"schedule": SCHEDULES, "recompute": RECOMPUTE, "offload": OFFLOADS}
"""What the codes of these fields stand for."""


def knobs(layout: Layout) -> np.ndarray:
    """A layout as a point: doublings of what is a number, codes of what is a name."""
    doublings = [np.log2(max(getattr(layout, name), 1)) for name in NUMBERS]
    return np.array([*doublings, *attrgetter(*CODES)(layout)], float)


def varied(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Fields in which candidates differ: the parameters of a study."""
    out = []
    for knob in fields(Layout):
        values = {getattr(candidate.layout, knob.name) for candidate in candidates}
        if len(values) > 1 and knob.name != "stage_layout":
            out.append(knob.name)
    return tuple(out)


def parameters(layout: Layout, names: Sequence[str]) -> dict[str, int | str]:
    """Those fields of a layout, names in place of codes where there are any."""
    out: dict[str, int | str] = {}
    for name in names:
        value = int(getattr(layout, name))
        out[name] = NAMES[name][value] if name in NAMES else value
    return out
