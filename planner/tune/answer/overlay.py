"""What was measured, written as a profile: a base profile and the few of its figures that trials
correct.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import yaml

from planner.estimate import closed_form
from planner.layout import SCHEDULE_CODE, Layout, Layouts, columns
from planner.specs.documents import parse_yaml
from planner.specs.hardware import HardwareProfile, Link
from planner.specs.recipe import Recipe
from planner.tune.answer import refined_plan
from planner.tune.study.space import foreseen
from planner.tune.study.trials import Row, combined

CLOSED = tuple(SCHEDULE_CODE[name] for name in ("naive", "gpipe", "1f1b", "interleaved"))
"""Schedules with a closed form, which the fit computes in columns."""
MIN_LAYOUTS = 2
SPREAD_WEIGHT = 0.002
"""Weight of how far the factors are apart (variance of their logarithms) against the mean squared
error of the times: what no trial tells apart moves together, as on a machine that is slower in
all."""
MAX_EVALUATIONS = 30
"""Of the errors at one choice of factors, slopes not counted; ten are usual."""
SLOPE_STEP = 0.02
"""Of a logarithm, for difference quotients: large against the five digits that a profile keeps."""
MAX_LOG_FACTOR = 8.0
"""Largest logarithm of a factor: a profile of a GPU may stand for a CPU."""
MAX_SHARE = 2.0
"""Of a share in a profile."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """A fitted profile."""

    text: str
    """YAML that extends the plan's profile."""
    name: str
    factors: dict[str, float]
    """Of each figure: fitted over base."""
    error_before: float
    """Of refined.error(), with the base."""
    error_after: float
    trials: int


def corrected(
    recipe: Recipe, base: str, changed: Sequence[str], trials: Sequence[Row], source: str
) -> tuple[Overlay | None, str]:
    """overlay() where its profile predicts the layouts that ran to their end better than the base
    does; else None, and why.
    """
    fitted = overlay(recipe, base, changed, trials, source)
    if fitted is None:
        reason = f"fewer than {MIN_LAYOUTS} layouts were timed"
    elif fitted.error_after < fitted.error_before:
        return fitted, ""
    else:
        reason = (
            f"fitted to {fitted.trials} layouts it would predict them no better (median error"
            f" {fitted.error_before:.1%} before and {fitted.error_after:.1%} after)"
        )
    return None, f"{recipe.hardware.name} stays as it is: {reason}"


def overlay(
    recipe: Recipe, base: str, changed: Sequence[str], trials: Sequence[Row], source: str
) -> Overlay | None:
    """Fits the profile's efficiencies to the layouts that were timed; None when there are fewer
    than two.

    base: what `extends` names; changed: the question's FIELD=VALUE, which are stated anew; source:
    host, date and versions.
    Assumes: the plan was measured on what its profile describes; errors of a step are errors of
             these efficiencies.
    """
    rows = _comparable(trials)
    if len(rows) < MIN_LAYOUTS:
        return None
    layouts, times = zip(*rows, strict=True)
    factors = fitted(recipe, columns(layouts), np.log(times))
    before = refined_plan.error(trials)
    after = refined_plan.error(_predicted_anew(recipe, factors, trials))
    if before is None or after is None:
        return None
    name = f"{recipe.hardware.name.removesuffix('-tuned')[:90]}-tuned"
    described = (
        f"{source}: fitted to {len(rows)} layouts that ppplan tune timed, median error {before:.1%}"
        f" before and {after:.1%} after"
    )
    return Overlay(
        _text(recipe, base, name, changed, factors, described),
        name,
        factors,
        before,
        after,
        len(rows),
    )


def _comparable(trials: Sequence[Row]) -> list[tuple[Layout, float]]:
    """Layouts as the plan states them, with their measured seconds; of schedules with a closed form
    where there are any.
    """
    pruned = [row for row in trials if row.state == "pruned"]
    timed: list[tuple[Layout, float]] = []
    for row in [*combined(trials), *pruned]:
        if row.measured_s and not row.layout.stage_layout and not row.switches:
            timed.append((row.layout, row.measured_s))
    return [pair for pair in timed if pair[0].schedule in CLOSED] or timed


def _predicted_anew(recipe: Recipe, factors: dict[str, float], trials: Sequence[Row]) -> list[Row]:
    """The rows as the scaled profile predicts them: what was predicted, times what the factors
    change of it.
    """
    tried = recipe.model_copy(update={"hardware": scaled(recipe.hardware, factors)})
    change = cache(
        lambda layout: foreseen(tried, layout).predicted_s / foreseen(recipe, layout).predicted_s
    )
    out = []
    for row in trials:
        if row.state == "done" and not row.switches:
            out.append(replace(row, predicted_s=row.predicted_s * change(row.layout)))
    return out


def fitted(recipe: Recipe, batch: Layouts, real: np.ndarray) -> dict[str, float]:
    """Factor of each figure of FIGURES, by nonlinear least squares over their logarithms.

    batch: columns of the layouts; real: (layouts,) logarithms of their measured seconds.

    Formula: minimum over x of mean((predicted(x) - real)^2) + SPREAD_WEIGHT *
             variance(x), |x| <= MAX_LOG_FACTOR
    Source:  trust region reflective of scipy.optimize.least_squares; Branch, Coleman and Li, SIAM
             J. Sci. Comput. 21(1), 1999
    Assumes: the start, the median error given to the kernels alone, lies near enough.
    """
    from scipy.optimize import least_squares  # heavy, and only here

    def residual(x: np.ndarray) -> np.ndarray:
        return _residual(recipe, batch, real, x)

    def slopes(x: np.ndarray) -> np.ndarray:
        moved = np.column_stack([residual(x + SLOPE_STEP * axis) for axis in np.eye(len(x))])
        return np.asarray((moved - residual(x)[:, None]) / SLOPE_STEP)

    start = np.zeros(len(FIGURES))
    start[0] = np.clip(
        np.median(_predicted(recipe, batch, {}) - real), -MAX_LOG_FACTOR, MAX_LOG_FACTOR
    )
    solution = least_squares(
        residual,
        start,
        jac=slopes,
        bounds=(-MAX_LOG_FACTOR, MAX_LOG_FACTOR),
        ftol=1e-4,
        max_nfev=MAX_EVALUATIONS,
    )
    applied = scaled(recipe.hardware, _factors(solution.x))
    return {name: FIGURES[name](applied) / FIGURES[name](recipe.hardware) for name in FIGURES}


def _residual(recipe: Recipe, batch: Layouts, real: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Errors of the times, and below them how far the factors are apart; the sum of squares is what
    fitted() lowers.
    """
    error = _predicted(recipe, batch, _factors(x)) - real
    return np.concatenate(
        [error / math.sqrt(len(error)), (x - x.mean()) * math.sqrt(SPREAD_WEIGHT / len(x))]
    )


def _factors(x: np.ndarray) -> dict[str, float]:
    return dict(zip(FIGURES, np.exp(x).tolist(), strict=True))


def _predicted(recipe: Recipe, batch: Layouts, factors: dict[str, float]) -> np.ndarray:
    """Logarithms of the predicted steps with a scaled profile."""
    tried = recipe.model_copy(update={"hardware": scaled(recipe.hardware, factors)})
    return np.asarray(np.log(np.broadcast_to(closed_form(tried, batch).step_s, (len(batch),))))


FIGURES: dict[str, Callable[[HardwareProfile], float]] = {
    "kernels": lambda hardware: hardware.kernels.sustained_share,
    "memory": lambda hardware: hardware.kernels.memory_efficiency_share,
    "node": lambda hardware: next(iter(hardware.node.domain.efficiency.values())),
    "fabric": lambda hardware: hardware.fabric.efficiency_share,
}
"""What is fitted: rates of matrix products and attention, of memory, of links inside a node, of the
network.
"""


def scaled(hardware: HardwareProfile, factors: dict[str, float]) -> HardwareProfile:
    """The profile with its efficiencies times the factors, each within what a profile may say."""
    factors = dict.fromkeys(FIGURES, 1.0) | factors
    kernels, node, fabric = hardware.kernels, hardware.node, hardware.fabric
    rates = {
        "sustained_share": _share(kernels.sustained_share * factors["kernels"]),
        "memory_efficiency_share": _share(kernels.memory_efficiency_share * factors["memory"]),
    }
    attention = kernels.attention_sustained_share
    if attention is not None:
        rates["attention_sustained_share"] = _share(attention * factors["kernels"])
    links = {
        "domain": _link(node.domain, factors["node"]),
        "host": _link(node.host, factors["node"]),
    }
    across = {"efficiency_share": _share(fabric.efficiency_share * factors["fabric"])}
    return hardware.model_copy(
        update={
            "kernels": kernels.model_copy(update=rates),
            "node": node.model_copy(update=links),
            "fabric": fabric.model_copy(update=across),
        }
    )


def _link(link: Link, factor: float) -> Link:
    shares = {members: _share(share * factor) for members, share in link.efficiency.items()}
    return link.model_copy(update={"efficiency": shares})


def _share(value: float) -> float:
    return float(f"{min(max(value, 1e-9), MAX_SHARE):.5g}")


def _text(
    recipe: Recipe,
    base: str,
    name: str,
    changed: Sequence[str],
    factors: dict[str, float],
    source: str,
) -> str:
    """YAML of the figures that differ, each group with its source; what a base does not hand down
    is stated again.
    """
    new = scaled(recipe.hardware, factors)
    kept = new.model_dump(
        exclude_none=True, include={"price_usd_per_gpu_hour", "price_source", "max_gpus", "note"}
    )
    document: dict[str, Any] = {"extends": base, "name": name}
    for key, value in kept.items():
        if value != "":
            document[key] = value
    for override in changed:
        _put(document, *override.split("=", 1))
    shares = new.kernels.model_dump(
        exclude_none=True,
        include={"sustained_share", "attention_sustained_share", "memory_efficiency_share"},
    )
    measured = {
        "kernels": shares | {"source": source},
        "node": {
            "domain": {"efficiency": dict(new.node.domain.efficiency), "source": source},
            "host": {"efficiency": dict(new.node.host.efficiency), "source": source},
        },
        "fabric": {"efficiency_share": new.fabric.efficiency_share, "source": source},
    }
    document = _over(document, measured)
    head = (
        f"# {recipe.hardware.name} as trials found it: `ppplan recommend --cluster THIS` plans with"
        " it.\n"
    )
    return head + yaml.safe_dump(document, sort_keys=False, width=140)


def _over(base: dict[Any, Any], figures: dict[Any, Any]) -> dict[Any, Any]:
    """A document with the figures in place of its own, group by group."""
    out = dict(base)
    for key, value in figures.items():
        if isinstance(value, dict):
            value = _over(out.get(key, {}), value)
        out[key] = value
    return out


def _put(document: dict[Any, Any], dotted: str, text: str) -> None:
    """Sets the figure that a dotted path names; digits are keys of groups by size."""
    at: dict[Any, Any] = document
    *outer, last = dotted.strip().split(".")
    for part in outer:
        at = at.setdefault(_key(part), {})
    at[_key(last)] = parse_yaml(text)


def _key(word: str) -> int | str:
    return int(word) if word.isdigit() else word
