"""What `simulate` was asked, from the words of the command line to one answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.errors import InputError, unknown
from planner.pipeline.fewest_microbatches import FewestMicrobatches, smallest_m
from planner.pipeline.serving.scenario import ServingScenario, StageCost, read_scenario, scenario
from planner.pipeline.serving.serve import Served, alternatives, simulate_forward_only
from planner.pipeline.timelines import (
    ScheduleComparison,
    SimulatedSchedule,
    StageWork,
    check_sizes,
    compare_schedules,
    simulate_schedule,
)
from planner.schedules.table import SCHEDULES
from planner.specs.words import (
    LAYOUT,
    SIMULATE_DEFAULTS,
    THE_QUESTION,
    SimulateWords,
    declared,
)
from planner.views import Views

_PANELS = {name: word.panel for name, (_, word) in declared(SimulateWords).items()}
QUESTION = tuple(name for name, panel in _PANELS.items() if panel in (THE_QUESTION, LAYOUT))
"""Words of a model on a cluster."""
TIMES = ("forward", "backward", "input_grad", "weight_grad", "pair", "transfer")
ORDERS = tuple(
    name for name in _PANELS if name not in (*QUESTION, *SIMULATE_DEFAULTS, "forward_only")
)
"""Words of a training schedule, none of which a scenario takes."""


@dataclass(frozen=True, slots=True, repr=False)
class ServedAnswer(Views):
    """A scenario's answer, and the other ways to serve the same."""

    served: Served
    others: tuple[tuple[str, Served], ...]
    assumed: tuple[str, ...] = ()

    @property
    def pool(self) -> Served:
        """The one pipeline. Raises InputError where prefill and decode have a pool each."""
        if self.served.passed is None:
            raise InputError(
                "a picture, trace or CSV is of one pipeline, but the scenario has two pools; use"
                " mode: prefill or mode: decode"
            )
        return self.served


Answer = SimulatedSchedule | ScheduleComparison | FewestMicrobatches | ServedAnswer


def answers_no(answer: Answer) -> bool:
    """Whether no schedule is legal, or no number of micro-batches is enough."""
    if isinstance(answer, ScheduleComparison):
        return not answer.schedules
    return isinstance(answer, FewestMicrobatches) and answer.m is None


def all_words(words: Mapping[str, Any]) -> dict[str, Any]:
    """Every word of a question that states some: `m` for short, factors as text or numbers.
    InputError for a word that there is not.
    """
    if words.get("m") is not None and words.get("microbatches") is not None:
        raise InputError(
            "micro-batches must be stated once, but got m and microbatches; leave one out"
        )
    renamed = {("microbatches" if word == "m" else word): value for word, value in words.items()}
    for word in renamed:
        if word not in _PANELS:
            raise unknown("a word of simulate", word, (*_PANELS, "m"))
    scale = renamed.get("stage_scale")
    if scale is not None and not isinstance(scale, str):
        renamed["stage_scale"] = ",".join(map(str, scale))
    return {**dict.fromkeys(_PANELS), **SIMULATE_DEFAULTS, **renamed}


def answer(words: Mapping[str, Any]) -> Answer:
    """One schedule, all of them, the fewest micro-batches, or a forward-only pipeline. Raises
    InputError.
    """
    if words["forward_only"] is not None:
        return _served(words)
    name, pp, v, group = _name(words), words["pp"], words["v"], words["group"]
    _stated(words)
    if words["bubble"] is not None:
        return smallest_m(name, pp, words["bubble"], v, group, work(words, name))
    if name == "all":
        return compare_schedules(pp, words["microbatches"], v, group, work(words, name))
    return simulate_schedule(name, pp, words["microbatches"], v, group, work(words, name))


def work(words: Mapping[str, Any], name: str) -> StageWork:
    """Times of the words, or of a model on a cluster."""
    stages = StageWork(
        stage_scale=_factors(words["stage_scale"]),
        head_extra=words["head_extra"],
        weight_retained=words["weight_retained"],
        memory_limit=words["memory_limit"],
        pair=words["pair"],
        transfer=words["transfer"] or 0.0,
        blocking=bool(words["blocking"]),
    )
    if words["model"] is None:
        stray = [word for word in QUESTION if words[word] not in (None, [])]
        if stray:
            raise InputError(
                f"--{stray[0].replace('_', '-')} speaks of a model, but none is stated; add --model"
                " NAME"
            )
        forward, input_grad, weight_grad = _times(words)
        return replace(stages, forward=forward, input_grad=input_grad, weight_grad=weight_grad)
    stray = [word for word in (*TIMES, "stage_scale") if words[word] is not None]
    if stray or words["head_extra"]:
        first = (stray or ["head_extra"])[0].replace("_", "-")
        raise InputError(
            f"times come from the model or from words, not both, but got --model and --{first};"
            " leave one out"
        )
    from planner.pipeline.model_times import model_work

    return model_work(
        stages,
        {word: words[word] for word in QUESTION if words[word] not in (None, [])},
        words,
        name,
    )


def _times(words: Mapping[str, Any]) -> tuple[float, float, float]:
    """forward, input_grad, weight_grad of the words: a fused backward is split in half."""
    forward = 1.0 if words["forward"] is None else words["forward"]
    inputs, weights, backward = words["input_grad"], words["weight_grad"], words["backward"]
    if inputs is None and weights is None:
        half = (2.0 if backward is None else backward) / 2
        return forward, half, half
    if backward is not None:
        raise InputError(
            "the backward must be stated once: give --backward, or --input-grad and --weight-grad,"
            " not both"
        )
    if inputs is None or weights is None:
        raise InputError(
            "--input-grad and --weight-grad go together, but"
            f" --{'input' if inputs is None else 'weight'}-grad is missing"
        )
    return forward, inputs, weights


def _name(words: Mapping[str, Any]) -> str:
    name = words["schedule"]
    if name is None:
        raise InputError(
            "a schedule must be stated, but got none; add --schedule NAME (see `ppplan schedules`),"
            " or --forward-only FILE"
        )
    name = str(name).strip().lower()
    if name != "all" and name not in SCHEDULES:
        raise unknown("schedule", words["schedule"], (*SCHEDULES, "all"))
    return name


def _stated(words: Mapping[str, Any]) -> None:
    if words["pp"] is None:
        raise InputError("the pipeline ranks must be stated, but got none; add --pp P")
    if words["bubble"] is None and words["microbatches"] is None:
        raise InputError(
            "micro-batches must be stated, but got none; add --microbatches M, or --bubble 0.1 for"
            " the fewest under 10%"
        )
    if words["bubble"] is not None and words["microbatches"] is not None:
        raise InputError(
            "--bubble looks for the micro-batches, but --microbatches states them; leave one out"
        )
    if words["bubble"] is not None and words["schedule"] == "all":
        raise InputError("--bubble needs one schedule, but got all; name one")
    check_sizes(words["pp"], words["microbatches"] or 1, words["v"], words["group"])


def _factors(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            "stage-scale must be numbers with commas between, such as 1,1,1,1.2, but got"
            f" {text[:60]!r}"
        ) from None


def _served(words: Mapping[str, Any]) -> ServedAnswer:
    own = ("model", "cluster", "tp")
    stray = [
        word for word in (*ORDERS, *QUESTION) if word not in own and words[word] not in (None, [])
    ]
    stray += [
        word
        for word, default in (("head_extra", 0.0), ("weight_retained", 1.0))
        if words[word] != default
    ]
    if stray:
        raise InputError(
            f"--forward-only takes a scenario alone, but got --{stray[0].replace('_', '-')} too;"
            " leave one out"
        )
    path = words["forward_only"]
    document = read_scenario(path)
    document |= {
        word: words[word] for word in ("model", "cluster", "tp") if words[word] is not None
    }
    scenario_read = scenario(document, str(path))
    if not isinstance(scenario_read, ServingScenario):
        return ServedAnswer(simulate_forward_only(scenario_read), ())
    cost: StageCost | None = None
    assumed: tuple[str, ...] = ()
    if scenario_read.cost is None and scenario_read.model is not None:
        from planner.pipeline.serving.times import stage_cost

        cost, assumed = stage_cost(scenario_read)
    return ServedAnswer(
        simulate_forward_only(scenario_read, cost), alternatives(scenario_read, cost), assumed
    )
