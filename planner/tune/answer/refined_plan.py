"""What a study leaves behind: the refined plan, its trials as a table, the data of Optuna's
plots.
"""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from planner.estimate import estimate
from planner.layout import Layout
from planner.plan_files import plan_text
from planner.specs.recipe import Recipe
from planner.specs.switches.table import under
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
MIN_FOR_IMPORTANCE = 4


def plan(
    question: Question,
    recipe: Recipe,
    best: Row,
    first: Row | None,
    trials: Sequence[Row],
    date: str,
) -> str:
    """plan.yaml of the best layout: predicted as before, measured beside it."""
    states = Counter(row.state for row in trials)
    measured_s = best.measured_s or 0.0
    measured: dict[str, Any] = {
        "step_s": best.measured_s,
        "step_s_noise": measured_s * best.noise_share,
        "memory_gib": _memory_gib(best),
        "over_predicted": measured_s / best.predicted_s,
        "speedup_over_first": speedup(best, first),
        "trials": dict(sorted(states.items())),
        "trial": best.number,
        "device": best.device,
        "host": best.host,
        "date": date,
        "versions": dict(best.versions),
        "proxy": best.proxy or None,
        "layers": list(best.layers) or None,
    }
    recipe = under(recipe, best.switches)
    return plan_text(
        question, recipe, best.layout, estimate(recipe, best.layout, exact=True), measured
    )


def speedup(best: Row | None, first: Row | None) -> float | None:
    """Step of the plan that came in over that of the best; None unless both were measured to their
    end.
    """
    if best is None or first is None or first.state != "done":
        return None
    if not best.measured_s or not first.measured_s:
        return None
    return first.measured_s / best.measured_s


def _memory_gib(row: Row) -> float | None:
    return None if row.memory_bytes is None else row.memory_bytes / GIB


def _error(row: Row) -> float | None:
    return row.predicted_s / row.measured_s - 1 if row.measured_s else None


def named(row: Row) -> dict[str, Any]:
    """A trial as JSON holds it."""
    return {
        "number": row.number,
        "layout": row.layout.named(),
        "state": row.state,
        "predicted_s": row.predicted_s,
        "measured_s": row.measured_s,
        "memory_gib": _memory_gib(row),
        "reason": row.reason or None,
        "error": _error(row),
        "noise_share": row.noise_share,
        "seconds": row.seconds,
        "device": row.device,
        "host": row.host,
        "proxy": row.proxy or None,
        "stderr_tail": row.stderr_tail or None,
        "steps_s": list(row.steps_s),
        "repeat": row.repeat,
        "switches": dict(row.switches),
        "layers": list(row.layers),
    }


def table(trials: Sequence[Row]) -> str:
    """CSV: the layout's knobs that differ first, then what became of each trial."""
    knobs = list(Layout().named())
    out = io.StringIO()
    writer = csv.DictWriter(
        out, ["number", *knobs, *COLUMNS], extrasaction="ignore", lineterminator="\n"
    )
    writer.writeheader()
    for trial in trials:
        cells = named(trial) | trial.layout.named() | {"switches": switches.text(trial.switches)}
        for name in knobs:
            if isinstance(cells[name], list):
                cells[name] = "+".join(cells[name])
        writer.writerow(cells)
    return out.getvalue()


def error(trials: Sequence[Row]) -> float | None:
    """Median of |predicted / measured - 1| over layouts that ran to their end, as they are."""
    errors = [_error(row) for row in combined(trials) if not row.switches]
    sizes = [abs(error) for error in errors if error is not None]
    return statistics.median(sizes) if sizes else None


def plots(study: Study) -> str:
    """JSON of what Optuna's plots draw: history, slices over each parameter, intermediate values,
    importances.
    """
    best = float("inf")
    history: list[dict[str, Any]] = []
    slices: dict[str, list[list[Any]]] = {}
    steps: list[dict[str, Any]] = []
    for trial in sorted(study.get_trials(deepcopy=False), key=lambda trial: trial.number):
        state = trial.state.name
        if trial.intermediate_values:
            steps_s = [step_s for _, step_s in sorted(trial.intermediate_values.items())]
            steps.append({"number": trial.number, "state": state.lower(), "steps_s": steps_s})
        if state == "COMPLETE" and trial.value is not None:
            best = min(best, trial.value or best)
            history.append({"number": trial.number, "step_s": trial.value, "best_s": best})
            for name, value in trial.params.items():
                slices.setdefault(name, []).append([value, trial.value])
    return json.dumps(
        {
            "study": study.study_name,
            "history": history,
            "slice": dict(sorted(slices.items())),
            "intermediate": steps,
            "importance": _importance(study, len(history)),
        }
    )


def _importance(study: Study, valued: int) -> dict[str, float]:
    """Optuna's PED-ANOVA over the parameters that differ among the trials; nothing from too few
    trials.
    """
    if valued < MIN_FOR_IMPORTANCE:
        return {}
    import warnings

    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            importances = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
        except (ValueError, RuntimeError):  # trials that share no parameter
            return {}
    return {name: float(value) for name, value in importances.items() if value == value}
