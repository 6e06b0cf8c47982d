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

from planner.specs.switches.table import names_of
from planner.tune.study import prune
from planner.tune.study.prior import Seen, next_index
from planner.tune.study.space import NAMES, Space, parameters, varied
from planner.tune.study.trials import best, noise, rows


def distributions(knobs: Mapping[str, int | str]) -> dict[str, BaseDistribution]:
    """Of each knob: names among all names there are, so that two versions of a space go together;
    numbers from 0 to the given one. Knobs are fields of a layout, and switches.
    """
    out: dict[str, BaseDistribution] = {}
    for name, value in knobs.items():
        if name in NAMES:
            out[name] = CategoricalDistribution(NAMES[name])
        elif isinstance(value, str):
            out[name] = CategoricalDistribution(names_of(name))
        else:
            out[name] = IntDistribution(0, max(value, 1))
    return out


class PriorSampler(BaseSampler):
    """The first candidates in their order, then what the prior says of those that no trial has."""

    def __init__(self, space: Space, first: int) -> None:
        self.space, self.first = space, first
        names = varied(space.candidates)
        self.points = [parameters(candidate.layout, names) for candidate in space.candidates]

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        largest = dict(self.points[0])
        for point in self.points:
            for name, value in point.items():
                if name not in NAMES:
                    largest[name] = max(int(value), int(largest[name]))
        return distributions(largest)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        at = {frozenset(point.items()): index for index, point in enumerate(self.points)}
        taken: set[int] = set()
        seen: list[Seen] = []
        for other in study.get_trials(deepcopy=False):
            index = at.get(frozenset(other.params.items()))
            if index is None or other.number == trial.number:
                continue
            taken.add(index)
            if other.state == TrialState.COMPLETE:
                seen.append(Seen(index, other.value))
            elif other.state.is_finished():
                seen.append(Seen(index, None))
        following = next_index(self.space.candidates, seen, taken, self.first)
        return dict(self.points[following or 0])

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
        done = rows(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
        fastest = best(done)
        if fastest is None:
            return False
        steps_s = list(trial.intermediate_values.values())
        return prune.behind(steps_s, fastest.measured_s, noise(done))
