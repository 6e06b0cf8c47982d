"""What a study leaves behind: the refined plan, its trials as a table, the data of Optuna's
plots.
"""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from planner.estimate import estimate
from planner.layout import Layout
from planner.plan_files import plan_text
from planner.specs.recipe import Recipe
from planner.specs.words import Question
from planner.tune.study import switches
from planner.tune.study.trials import Row, combined
from planner.units import GIB

if TYPE_CHECKING:
    from optuna import Study

COLUMNS = (
    "state",
    "repeat",
    "switches",
    "predicted_s",
    "measured_s",
    "error",
    "noise_share",
    "memory_gib",
    "seconds",
    "device",
    "host",
    "proxy",
    "reason",
    "stderr_tail",
)
LEAST_FOR_IMPORTANCE = 4


def plan(
    asked: Question, recipe: Recipe, best: Row, first: Row | None, found: Sequence[Row], date: str
) -> str:
    """plan.yaml of the best layout: predicted as before, measured beside it."""
    tried = {
        state: sum(one.state == state for one in found)
        for state in sorted({one.state for one in found})
    }
    told: dict[str, Any] = {
        "step_s": best.measured_s,
        "step_s_noise": (best.measured_s or 0.0) * best.noise_share,
        "memory_gib": None if best.memory_bytes is None else best.memory_bytes / GIB,
        "over_predicted": (best.measured_s or 0.0) / best.predicted_s,
        "speedup_over_first": speedup(best, first),
        "trials": tried,
        "trial": best.number,
        "device": best.device,
        "host": best.host,
        "date": date,
        "versions": dict(best.versions),
        "proxy": best.proxy or None,
        "layers": list(best.layers) or None,
    }
    recipe = recipe.model_copy(update={"switches": dict(best.switches)})
    return plan_text(asked, recipe, best.layout, estimate(recipe, best.layout, exact=True), told)


def speedup(best: Row | None, first: Row | None) -> float | None:
    """Step of the plan that came in over that of the best; None unless both were measured to their
    end.
    """
    if best is None or first is None or first.state != "done":
        return None
    if not best.measured_s or not first.measured_s:
        return None
    return first.measured_s / best.measured_s


def named(one: Row) -> dict[str, Any]:
    """A trial as JSON holds it."""
    error = one.predicted_s / one.measured_s - 1 if one.measured_s else None
    return {
        "number": one.number,
        "layout": one.layout.named(),
        "state": one.state,
        "predicted_s": one.predicted_s,
        "measured_s": one.measured_s,
        "memory_gib": None if one.memory_bytes is None else one.memory_bytes / GIB,
        "reason": one.reason or None,
        "error": error,
        "noise_share": one.noise_share,
        "seconds": one.seconds,
        "device": one.device,
        "host": one.host,
        "proxy": one.proxy or None,
        "stderr_tail": one.stderr_tail or None,
        "steps_s": list(one.steps_s),
        "repeat": one.repeat,
        "switches": dict(one.switches),
        "layers": list(one.layers),
    }


def table(found: Sequence[Row]) -> str:
    """CSV: the layout's knobs that differ first, then what became of each trial."""
    told = [named(one) for one in found]
    knobs = list(Layout().named())
    out = io.StringIO()
    writer = csv.DictWriter(
        out, ["number", *knobs, *COLUMNS], extrasaction="ignore", lineterminator="\n"
    )
    writer.writeheader()
    for one in told:
        layout = {
            name: "+".join(value) if isinstance(value, list) else value
            for name, value in one["layout"].items()
        }
        writer.writerow(one | layout | {"switches": switches.text(one["switches"])})
    return out.getvalue()


def error(found: Sequence[Row]) -> float | None:
    """Median of |predicted / measured - 1| over layouts that ran to their end, as they are."""
    each = [
        abs(one.predicted_s / one.measured_s - 1)
        for one in combined(found)
        if one.measured_s and not one.switches
    ]
    return statistics.median(each) if each else None


def plots(study: Study) -> str:
    """JSON of what Optuna's plots draw: history, slices over each parameter, intermediate values,
    importances.
    """
    trials = sorted(study.get_trials(deepcopy=False), key=lambda one: one.number)
    valued = [one for one in trials if one.state.name == "COMPLETE" and one.value is not None]
    best, history = float("inf"), []
    for one in valued:
        best = min(best, one.value or best)
        history.append({"number": one.number, "step_s": one.value, "best_s": best})
    names = sorted({name for one in valued for name in one.params})
    slices = {
        name: [[one.params[name], one.value] for one in valued if name in one.params]
        for name in names
    }
    steps = [
        {
            "number": one.number,
            "state": one.state.name.lower(),
            "steps_s": [one.intermediate_values[at] for at in sorted(one.intermediate_values)],
        }
        for one in trials
        if one.intermediate_values
    ]
    return json.dumps(
        {
            "study": study.study_name,
            "history": history,
            "slice": slices,
            "intermediate": steps,
            "importance": _importance(study, len(valued)),
        }
    )


def _importance(study: Study, valued: int) -> dict[str, float]:
    """Optuna's PED-ANOVA over the parameters that differ among the trials; nothing from too few
    trials.
    """
    if valued < LEAST_FOR_IMPORTANCE:
        return {}
    import warnings

    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
        except (ValueError, RuntimeError):  # trials that share no parameter
            return {}
    return {name: float(value) for name, value in found.items() if value == value}
