"""Ten trials with the prior against a hundred of Optuna's TPE and of random search: python -m
tests.bench.tune [SEEDS]

Recorded: published runs of one question, where a trial costs nothing but a look-up. Simulated:
every legal layout of a question that fits, on a machine that is not the one the cost model believes
in: kernels, links and latencies of its profile changed at random, every layout with an error of its
own and every run with noise. All three samplers work through Optuna's own loop. TPE and random
choose among the values of each parameter; a combination that is no layout of the question, or was
measured before, is taken for the nearest layout that is new, so that they waste no trial.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution

from planner import api
from planner.estimate import closed_form
from planner.specs import resolve
from planner.tune.answer.overlay import FIGURES, scaled
from planner.tune.study.sampler import PriorSampler
from planner.tune.study.space import Space, parameters, space, varied
from tests.tune.recorded import Question, questions

FEW, MANY = 10, 100
LEAST = 60
"""Layouts of a recorded question: of fewer, a hundred trials are all there are."""
OWN, NOISE = (0.01, 0.03), 0.01
"""Standard deviations of a simulated layout's own error, which nothing predicts, and of a run, as
shares.
"""
WITHIN = 0.02
SIMULATED = (
    ("llama3-8b", 32, "a100-80g-sxm"),
    ("llama3-70b", 64, "h100-sxm"),
    ("qwen3-30b-a3b", 64, "h100-sxm"),
    ("gpt3-175b", 128, "a100-80g-sxm"),
    ("llama3-70b", 128, "aws-p4d"),
)


def simulated(seeds: int, own: float) -> Iterator[Question]:
    for model, gpus, cluster in SIMULATED:
        recipe = resolve.recipe(api.question(model=model, gpus=gpus, cluster=cluster))
        plan = (
            api.recommend(api.question(model=model, gpus=gpus, cluster=cluster), top=1)
            .search.plans[0]
            .layout
        )  # type: ignore[union-attr]
        candidates = space(recipe, plan, most=512).candidates
        for seed in range(seeds):
            draw = np.random.default_rng([seed, gpus])
            factors = {name: float(np.exp(draw.normal(0, 0.35))) for name in FIGURES}
            other = recipe.model_copy(update={"hardware": scaled(recipe.hardware, factors)})
            real = [
                float(closed_form(other, one.layout).step_s) * float(np.exp(draw.normal(0, own)))
                for one in candidates
            ]
            yield Question(f"{model} on {gpus} x {cluster}", candidates, tuple(real))


def trials(
    question: Question, sampler: optuna.samplers.BaseSampler, count: int, seed: int, noise: float
) -> list[float]:
    """Regret of the best so far after each trial: its true time over the best there is, less 1."""
    names = varied(question.candidates)
    points = [parameters(one.layout, names) for one in question.candidates]
    space = {
        name: CategoricalDistribution(sorted({point[name] for point in points})) for name in names
    }
    table = np.array(
        [[space[name].to_internal_repr(point[name]) for name in names] for point in points]
    )
    draw, best, real, out, free = (
        np.random.default_rng(seed),
        np.inf,
        np.inf,
        [],
        np.ones(len(points), bool),
    )
    study = optuna.create_study(sampler=sampler)
    own = isinstance(sampler, PriorSampler)
    for _ in range(min(count, len(points))):
        trial = study.ask(sampler.infer_relative_search_space(study, None) if own else space)
        wanted = np.array([space[name].to_internal_repr(trial.params[name]) for name in names])
        index = int(np.argmin((table != wanted).sum(axis=1) + np.where(free, 0, len(names) + 1)))
        free[index] = False
        seen = question.measured_s[index] * float(np.exp(draw.normal(0, noise)))
        study.tell(trial, seen)
        if seen < best:
            best, real = seen, question.measured_s[index]
        out.append(real / min(question.measured_s) - 1)
    return out


def samplers(question: Question) -> dict[str, Callable[[int], optuna.samplers.BaseSampler]]:
    return {
        "prior": lambda seed: PriorSampler(Space(question.candidates, 0, 0, {}), FEW // 2),
        "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
        "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    }


def compared(name: str, each: Sequence[Question], noise: float) -> None:
    regrets: dict[str, list[float]] = {}
    for seed, question in enumerate(each):
        for kind, made in samplers(question).items():
            path = trials(question, made(seed), FEW if kind == "prior" else MANY, seed, noise)
            regrets.setdefault(f"{kind} {FEW}", []).append(path[:FEW][-1])
            if kind != "prior":
                regrets.setdefault(f"{kind} {MANY}", []).append(path[-1])
        regrets.setdefault("first predicted", []).append(
            question.measured_s[0] / min(question.measured_s) - 1
        )
    layouts = sorted(len(one.candidates) for one in each)
    print(f"\n{name}: {len(each)} questions of {layouts[0]} to {layouts[-1]} layouts")
    print(
        f"{'sampler and trials':20} {'mean regret':>12} {'median':>9} {'worst':>9}"
        f" {f'within {WITHIN:.0%}':>11}"
    )
    for kind, values in sorted(regrets.items()):
        some = np.array(values)
        print(
            f"{kind:20} {some.mean():12.2%} {np.median(some):9.2%} {some.max():9.2%}"
            f" {(some <= WITHIN).mean():11.0%}"
        )


def main() -> None:
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    sources = (("ultrascale", LEAST), ("alephalpha_13b", 20), ("vtrain_multi", 20))
    recorded = [one for source, least in sources for one in questions(source, least)]
    compared("recorded", recorded, 0.0)
    for own in OWN:
        compared(f"simulated, {own:.0%} of own error", list(simulated(seeds, own)), NOISE)


if __name__ == "__main__":
    main()
