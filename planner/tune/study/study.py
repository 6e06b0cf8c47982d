"""The study: who runs which layout, told to a storage that several workers share. optuna is
imported here and in storage.py alone.

A layout is claimed by one atomic act: the creation of a running trial that carries it. Storages
number trials in the order in which they appear, so the claim with the lowest number holds, and
every other claimant, which reads after its own creation, sees it and withdraws.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.launch.outcome import Outcome, Progress
from planner.tune.runners.measurement import Measurement
from planner.tune.study import lease, prior, switches
from planner.tune.study.prune import noise_share, timed
from planner.tune.study.sampler import NoisePruner, PriorSampler, distributions
from planner.tune.study.space import Candidate, Space, key, parameters, varied
from planner.tune.study.storage import retried
from planner.tune.study.switches import Offers
from planner.tune.study.trials import (
    COUNTED,
    FAILED,
    Row,
    lost_keys,
    places,
    result,
    rivals,
    row,
    rows,
    settled,
)

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

Measure = Callable[[Candidate, Progress], tuple[Outcome, Measurement | None]]
"""Runs one layout on devices. Raises Refused when the runner cannot run it, and whatever keeps it
from running any.
"""
Tell = Callable[[Row, tuple[Row, ...]], None]
"""Hears of a trial that starts (state running) and of its end, with all rows so far."""
MOST_REPORTS = 50
"""Steps of a trial that are written to the storage; a tiny model makes a thousand a second."""
RIVALS = 3
"""Layouts that are run again at most: the fastest and those that noise may have put behind it."""
SWITCHED = 2
"""Layouts at most whose switches are tried."""


class Refused(InputError):
    """A runner cannot run this layout, though it may run others."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured in all, by all workers of a study."""

    trials: int
    """Different layouts."""
    first: int
    """Of them, how many are the plan and the fastest by prediction; then the prior chooses."""
    repeats: int = 0
    """Runs once more of each of the rivals in the end."""
    switches: int = 0
    """Before them, runs of the fastest layouts under other switches."""


@dataclass(frozen=True, slots=True)
class Held:
    """A claim that holds: this process runs that layout."""

    trial_id: int
    number: int
    candidate: Candidate


def create(
    storage: BaseStorage,
    name: str,
    question: dict[str, Any],
    resume: bool,
    space: Space,
    size: Size,
) -> Study:
    """The study of that name, made where there is none. InputError when it is of another question,
    or has trials and nobody resumes it.

    question: plain JSON, compared entry by entry.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = retried(
        lambda: optuna.create_study(
            storage=storage,
            study_name=name,
            load_if_exists=True,
            direction="minimize",
            sampler=PriorSampler(space, size.first),
            pruner=NoisePruner(),
        )
    )
    if "question" not in study.user_attrs:
        retried(lambda: study.set_user_attr("question", question))
    _check_same(name, question, study.user_attrs["question"])
    if study.get_trials(deepcopy=False) and not resume:
        got = f"{name!r} has {len(rows(study.get_trials(deepcopy=False)))} trials"
        raise InputError(
            f"study must be a new name, but {got}; --resume goes on with them, --study NAME starts"
            " another"
        )
    return study


def _check_same(name: str, question: dict[str, Any], before: Any) -> None:
    """A study of something else would mix times that cannot be compared."""
    known = before if isinstance(before, dict) else {}
    other = [word for word in {**known, **question} if known.get(word) != question.get(word)]
    if other:
        told = "; ".join(
            f"{word} was {str(known.get(word))[:60]}, now {str(question.get(word))[:60]}"
            for word in other[:3]
        )
        raise InputError(
            f"study must be of this plan, but {name!r} is of another: {told}; --study NAME starts a"
            " new one"
        )


def claim(study: Study, space: Space, size: Size, offers: Offers = switches.none) -> Held | None:
    """The next layout for this process; None when as many trials as asked for are done or held, or
    nothing is left to try.
    """
    names = varied(space.candidates)
    while True:
        reclaim(study)
        every = [row(one) for one in _told(study)]
        candidate = (
            choose(every, space, size)
            or switched(every, space, size, offers)
            or once_more(every, space, size)
        )
        if candidate is None:
            return None
        held = _created(study, candidate, parameters(candidate.layout, names))
        if _holds(study, held, size):
            return held
        _end(study, held.trial_id, "withdrawn")


def choose(every: list[Row], space: Space, size: Size) -> Candidate | None:
    """The candidate to try next: one that was lost, one of the first, or what the prior says."""
    at = places(space)
    if _used(every) >= size.trials:
        return None
    given_up = lost_keys(every)
    known = [one for one in every if one.key in at and not one.repeat]
    taken = {
        at[one.key] for one in known if one.state in (*COUNTED, "illegal") or one.key in given_up
    }
    again = [
        at[one.key] for one in known if one.state == "interrupted" and at[one.key] not in taken
    ]
    if again:
        return space.candidates[again[0]]
    seen = [
        prior.Seen(at[one.key], _time(one), one.state == "oom", one.noise_share)
        for one in known
        if one.state in FAILED or _time(one)
    ]
    index = prior.next_index(space.candidates, seen, taken, size.first)
    return None if index is None else space.candidates[index]


def once_more(every: list[Row], space: Space, size: Size) -> Candidate | None:
    """A rival of the fastest that has not had its repeats: in turns, so that a machine that slows
    down slows all of them.
    """
    at, given_up = places(space), lost_keys(every)
    taken = {one.turn for one in every if one.state in COUNTED or one.key in given_up}
    near = [
        one for one in rivals(every, RIVALS) if key(one.layout) in at and one.key not in given_up
    ]
    turns = ((repeat, one) for repeat in range(1, size.repeats + 1) for one in near)
    free = (
        replace(space.candidates[at[key(one.layout)]], repeat=repeat, switches=one.switches)
        for repeat, one in turns
        if (one.key, repeat) not in taken
    )
    return next(free, None)


def switched(every: list[Row], space: Space, size: Size, offers: Offers) -> Candidate | None:
    """The plan under its own switches, then one of the fastest layouts under its next others; those
    begin where the last were kept.
    """
    if _switched(every) >= size.switches:
        return None
    at, given_up = places(space), lost_keys(every)
    taken = {one.key for one in every if one.state in (*COUNTED, "illegal") or one.key in given_up}
    each = [one for one in settled(every) if key(one.layout) in at and not one.proxy]
    own = [
        (one, space.switches)
        for one in each
        if space.switches and one.layout == space.candidates[0].layout
    ]
    others = (
        (one, told)
        for one in each[:SWITCHED]
        for told in switches.settings(one.layout, one.switches, offers)
    )
    tried = (
        replace(space.candidates[at[key(one.layout)]], switches=told)
        for one, told in chain(own, others)
    )
    return next((one for one in tried if one.key not in taken), None)


def _used(every: list[Row]) -> int:
    return sum(one.state in COUNTED and not one.repeat and not one.switches for one in every)


def _switched(every: list[Row]) -> int:
    return sum(one.state in COUNTED and not one.repeat and bool(one.switches) for one in every)


def _time(one: Row) -> float | None:
    return one.measured_s if one.state in ("done", "pruned") else None


def _told(study: Study) -> list[FrozenTrial]:
    """Trials of the tuner, oldest first; others may have been added by Optuna's own tools."""
    every: list[FrozenTrial] = retried(lambda: study.get_trials(deepcopy=False))
    return sorted((one for one in every if "layout" in one.user_attrs), key=lambda one: one.number)


def _created(study: Study, candidate: Candidate, knobs: dict[str, int | str]) -> Held:
    from optuna.trial import FrozenTrial, TrialState

    said = {
        "layout": candidate.layout.named(),
        "predicted_s": candidate.predicted_s,
        "repeat": candidate.repeat,
        "owner": lease.me(),
    }
    said |= {"switches": dict(candidate.switches)} if candidate.switches else {}
    knobs = knobs | {word: int(value) for word, value in candidate.switches.items()}
    template = FrozenTrial(
        number=-1,
        trial_id=-1,
        state=TrialState.RUNNING,
        value=None,
        datetime_start=datetime.now(),
        datetime_complete=None,
        params=knobs,
        distributions=distributions(knobs),
        user_attrs=said,
        system_attrs={},
        intermediate_values={},
    )
    storage = study._storage
    trial_id = storage.create_new_trial(study._study_id, template_trial=template)
    return Held(trial_id, storage.get_trial_number_from_id(trial_id), candidate)


def _holds(study: Study, held: Held, size: Size) -> bool:
    """Whether no earlier claim is for the same layout, and the trials asked for are not used up by
    earlier ones.
    """
    earlier = [row(one) for one in _told(study) if one.number < held.number]
    turn = (held.candidate.key, held.candidate.repeat)
    same = any(one.turn == turn and one.state in (*COUNTED, "illegal") for one in earlier)
    free = (
        _switched(earlier) < size.switches
        if held.candidate.switches
        else _used(earlier) < size.trials
    )
    return not same and (held.candidate.repeat > 0 or free)


def reclaim(study: Study) -> None:
    """Trials whose process is gone: told when their result was already written, else free to be
    tried again.
    """
    for trial in _told(study):
        if trial.state.is_finished() or lease.alive(trial.user_attrs.get("owner", {})):
            continue
        if "result" in trial.user_attrs:
            _tell(study, trial._trial_id, trial.user_attrs["result"])
        else:
            _end(study, trial._trial_id, "interrupted")


def _end(study: Study, trial_id: int, why: str) -> None:
    """Ends a trial without a result; another process may have ended it a moment ago, which is as
    good.
    """
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    with contextlib.suppress(UpdateFinishedTrialError):
        retried(lambda: study._storage.set_trial_user_attr(trial_id, "ended", why))
        retried(lambda: study._storage.set_trial_state_values(trial_id, TrialState.FAIL))


def _tell(study: Study, trial_id: int, told: dict[str, Any]) -> None:
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    states = {"done": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
    state = states.get(told["state"], TrialState.FAIL)
    values = (
        [told["measured_s"]]
        if told.get("measured_s") is not None and told["state"] in states
        else None
    )
    with contextlib.suppress(UpdateFinishedTrialError):
        retried(lambda: study._storage.set_trial_state_values(trial_id, state, values))


def run(study: Study, held: Held, measure: Measure, tell: Tell) -> Row:
    """Measures what is held and writes the result before the trial's state: a kill between them
    loses nothing.
    """
    steps: list[float] = []
    storage = study._storage
    progress = _progress(study, held, steps, tell)
    try:
        with _signs_of_life(study, held):
            outcome, found = measure(held.candidate, progress)
    except Refused as fault:
        outcome = Outcome("crashed", None, str(fault))
        told = result(outcome, None, 0.0, ()) | {"state": "illegal"}
    except KeyboardInterrupt:
        outcome = Outcome("interrupted", None, "stopped by the user")
        told = result(outcome, None, 0.0, ())
    except BaseException:
        _end(study, held.trial_id, "interrupted")
        raise
    else:
        told = result(outcome, found, noise_share(found.steps_s if found else steps), steps)
    retried(lambda: storage.set_trial_user_attr(held.trial_id, "result", told))
    if outcome.state == "interrupted":
        _end(study, held.trial_id, "interrupted")
    else:
        _tell(study, held.trial_id, told)
    return row(storage.get_trial(held.trial_id))


def _signs_of_life(study: Study, held: Held) -> contextlib.AbstractContextManager[None]:
    return lease.beating(
        lambda: study._storage.set_trial_user_attr(held.trial_id, "owner", lease.me())
    )


def _progress(study: Study, held: Held, steps: list[float], tell: Tell) -> Progress:
    """Reports timed steps to the storage, and asks the study's pruner."""
    from optuna.trial import Trial

    trial = Trial(study, held.trial_id)
    started = row(study._storage.get_trial(held.trial_id))
    every = rows(_told(study))
    tell(started, every)

    def progress(line: dict[str, Any]) -> bool:
        step_s = timed(line)
        if step_s is None:
            return False
        steps.append(step_s)
        if len(steps) > MOST_REPORTS:
            return False
        trial.report(step_s, len(steps))
        return trial.should_prune()

    return progress


def refine(
    study: Study,
    space: Space,
    measure: Measure,
    size: Size,
    tell: Tell,
    offers: Offers = switches.none,
) -> bool:
    """Asks, launches, tells, until the study has its size. True when the user stopped it."""
    try:
        while (held := claim(study, space, size, offers)) is not None:
            ended = run(study, held, measure, tell)
            tell(ended, rows(_told(study)))
            if ended.state == "interrupted":
                return True
    except KeyboardInterrupt:
        return True
    return False


def told(study: Study) -> tuple[Row, ...]:
    """All rows of a study."""
    return rows(_told(study))
