"""Optuna's two interfaces, thin: a sampler that asks the prior, a pruner that asks the noise. Its
storages and plots then hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from planner.layout import OFFLOADS, RECOMPUTE, SCHEDULES
from planner.tune.study import prune
from planner.tune.study.prior import Seen, next_index
from planner.tune.study.space import Space, parameters, varied
from planner.tune.study.trials import best, noise, rows

NAMES: dict[str, tuple[str, ...]] = {
    "schedule": SCHEDULES,
    "recompute": RECOMPUTE,
    "offload": OFFLOADS,
}


def distributions(knobs: Mapping[str, int | str]) -> dict[str, BaseDistribution]:
    """Of each knob: names among all names there are, so that two versions of a space go together;
    numbers from 0 or 1 up.
    """
    return {
        name: (
            CategoricalDistribution(NAMES[name])
            if name in NAMES
            else IntDistribution(0, max(int(value), 1))
        )
        for name, value in knobs.items()
    }


class PriorSampler(BaseSampler):
    """The first candidates in their order, then what the prior says of those that no trial has."""

    def __init__(self, space: Space, first: int) -> None:
        self.space, self.first = space, first
        self.points = [parameters(one.layout, varied(space.candidates)) for one in space.candidates]

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        most: dict[str, int | str] = {}
        for point in self.points:
            most |= {
                name: value if name in NAMES else max(int(value), int(most.get(name, 0)))
                for name, value in point.items()
            }
        return distributions(most)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        at = {frozenset(point.items()): index for index, point in enumerate(self.points)}
        others = [
            (frozenset(one.params.items()), one)
            for one in study.get_trials(deepcopy=False)
            if one.number != trial.number
        ]
        known = [(at[point], one) for point, one in others if point in at]
        seen = [
            Seen(index, one.value if one.state == TrialState.COMPLETE else None)
            for index, one in known
            if one.state.is_finished()
        ]
        index = next_index(self.space.candidates, seen, {index for index, _ in known}, self.first)
        return dict(self.points[0 if index is None else index])

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self.points[0][param_name]


class NoisePruner(BasePruner):
    """Stops a trial whose fastest step is behind the best trial by more than the noise. A repeat is
    never stopped.
    """

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        if trial.user_attrs.get("repeat"):
            return False
        done = rows(
            one for one in study.get_trials(deepcopy=False) if one.state == TrialState.COMPLETE
        )
        fastest = best(done)
        return prune.behind(
            list(trial.intermediate_values.values()),
            fastest.measured_s if fastest else None,
            noise(done),
        )
