"""The study: who runs which layout, kept in a storage that several workers share.

A layout is claimed by one atomic act: the creation of a running trial that carries it. Storages
number trials in the order in which they appear, so the claim with the lowest number holds, and
every other claimant, which reads after its own creation, sees it and withdraws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from planner.errors import InputError
from planner.launch.outcome import Outcome, Progress
from planner.layout import Layout
from planner.specs.switches.switch import Switches
from planner.tune.measurement import Measurement
from planner.tune.study import lease, prior, storage, switches
from planner.tune.study.prune import noise_share, timed
from planner.tune.study.sampler import NoisePruner, PriorSampler, distributions
from planner.tune.study.space import Candidate, Space, key, parameters, varied
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
MAX_REPORTS = 50
"""Steps of a trial that are written to the storage; a tiny model makes a thousand a second."""
MAX_RIVALS = 3
"""Layouts that are run again at most: the fastest and those that noise may have put behind it."""
MAX_SWITCHED = 2
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

    trial: FrozenTrial
    """As it was created."""
    candidate: Candidate


def create(
    opened: BaseStorage,
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
    study = storage.retried(
        lambda: optuna.create_study(
            storage=opened,
            study_name=name,
            load_if_exists=True,
            direction="minimize",
            sampler=PriorSampler(space, size.first),
            pruner=NoisePruner(),
        )
    )
    if "question" not in study.user_attrs:
        storage.retried(lambda: study.set_user_attr("question", question))
    _check_same(name, question, study.user_attrs["question"])
    trials = study.get_trials(deepcopy=False)
    if trials and not resume:
        raise InputError(
            f"study must be a new name, but {name!r} has {len(rows(trials))} trials; --resume goes"
            " on with them, --study NAME starts another"
        )
    return study


def _check_same(name: str, question: dict[str, Any], before: Any) -> None:
    """A study of something else would mix times that cannot be compared."""
    known = before if isinstance(before, dict) else {}
    differences = []
    for word in {**known, **question}:
        was, now = known.get(word), question.get(word)
        if was != now:
            differences.append(f"{word} was {str(was)[:60]}, now {str(now)[:60]}")
    if differences:
        raise InputError(
            f"study must be of this plan, but {name!r} is of another: {'; '.join(differences[:3])};"
            " --study NAME starts a new one"
        )


def claim(study: Study, space: Space, size: Size, offers: Offers = switches.none) -> Held | None:
    """The next layout for this process; None when as many trials as asked for are done or held, or
    nothing is left to try.
    """
    names = varied(space.candidates)
    while True:
        reclaim(study)
        trials = [row(trial) for trial in _trials(study)]
        candidate = (
            next_layout(trials, space, size)
            or next_setting(trials, space, size, offers)
            or next_repeat(trials, space, size)
        )
        if candidate is None:
            return None
        held = _created(study, candidate, names)
        if _holds(study, held, size):
            return held
        _abandon(study, held.trial, "withdrawn")


def next_layout(trials: list[Row], space: Space, size: Size) -> Candidate | None:
    """The candidate to try next: one that was lost, one of the first, or what the prior says."""
    if _used(trials) >= size.trials:
        return None
    at, given_up = places(space), lost_keys(trials)
    taken: set[int] = set()
    lost: list[int] = []
    seen: list[prior.Seen] = []
    for trial in trials:
        index = at.get(trial.key)
        if index is None or trial.repeat:
            continue
        time = _time(trial)
        if trial.state in (*COUNTED, "illegal") or trial.key in given_up:
            taken.add(index)
        if trial.state == "interrupted":
            lost.append(index)
        if trial.state in FAILED or time:
            seen.append(prior.Seen(index, time, trial.state == "oom", trial.noise_share))
    for index in lost:
        if index not in taken:
            return space.candidates[index]
    index = prior.next_index(space.candidates, seen, taken, size.first)
    return None if index is None else space.candidates[index]


def next_repeat(trials: list[Row], space: Space, size: Size) -> Candidate | None:
    """A rival of the fastest that has not had its repeats: in turns, so that a machine that slows
    down slows all of them.
    """
    at, given_up = places(space), lost_keys(trials)
    taken = {trial.turn for trial in trials if trial.state in COUNTED}
    near = rivals(trials, MAX_RIVALS)
    for repeat in range(1, size.repeats + 1):
        for rival in near:
            place = at.get(key(rival.layout))
            if place is None or rival.key in given_up or (rival.key, repeat) in taken:
                continue
            return replace(space.candidates[place], repeat=repeat, switches=rival.switches)
    return None


def next_setting(trials: list[Row], space: Space, size: Size, offers: Offers) -> Candidate | None:
    """The plan under its own switches, then one of the fastest layouts under its next others; those
    begin where the last were kept.
    """
    if _used(trials, switched=True) >= size.switches:
        return None
    at, taken = places(space), lost_keys(trials)
    for trial in trials:
        if trial.state in (*COUNTED, "illegal"):
            taken.add(trial.key)
    fastest = [best for best in settled(trials) if key(best.layout) in at and not best.proxy]
    tries: list[tuple[Layout, Switches]] = []
    for best in fastest:
        if space.switches and best.layout == space.candidates[0].layout:
            tries.append((best.layout, space.switches))
    for best in fastest[:MAX_SWITCHED]:
        for setting in switches.settings(best.layout, best.switches, offers):
            tries.append((best.layout, setting))
    for layout, chosen in tries:
        candidate = replace(space.candidates[at[key(layout)]], switches=chosen)
        if candidate.key not in taken:
            return candidate
    return None


def _used(trials: list[Row], switched: bool = False) -> int:
    """Of the trials asked for, how many are done or held: of layouts as they are, or under other
    switches.
    """
    first_runs = [trial for trial in trials if trial.state in COUNTED and not trial.repeat]
    return sum(bool(trial.switches) == switched for trial in first_runs)


def _time(trial: Row) -> float | None:
    return trial.measured_s if trial.state in ("done", "pruned") else None


def _trials(study: Study) -> list[FrozenTrial]:
    """Trials of the tuner, oldest first; others may have been added by Optuna's own tools."""
    every: list[FrozenTrial] = storage.retried(lambda: study.get_trials(deepcopy=False))
    own = [trial for trial in every if "layout" in trial.user_attrs]
    return sorted(own, key=lambda trial: trial.number)


def _created(study: Study, candidate: Candidate, names: Sequence[str]) -> Held:
    attributes = {
        "layout": candidate.layout.named(),
        "predicted_s": candidate.predicted_s,
        "repeat": candidate.repeat,
        "owner": lease.this_process(),
    }
    knobs = parameters(candidate.layout, names)
    if candidate.switches:
        attributes["switches"] = dict(candidate.switches)
        for name, value in candidate.switches.items():
            knobs[name] = value if isinstance(value, str) else int(value)
    return Held(storage.add_running(study, knobs, distributions(knobs), attributes), candidate)


def _holds(study: Study, held: Held, size: Size) -> bool:
    """Whether no earlier claim is for the same layout, and the trials asked for are not used up by
    earlier ones.
    """
    earlier = [row(trial) for trial in _trials(study) if trial.number < held.trial.number]
    for trial in earlier:
        same = trial.turn == (held.candidate.key, held.candidate.repeat)
        if same and trial.state in (*COUNTED, "illegal"):
            return False
    if held.candidate.repeat:
        return True
    if held.candidate.switches:
        return _used(earlier, switched=True) < size.switches
    return _used(earlier) < size.trials


def reclaim(study: Study) -> None:
    """Trials whose process is gone: finished when their result was already written, else free to be
    tried again.
    """
    for trial in _trials(study):
        if trial.state.is_finished() or lease.is_alive(trial.user_attrs.get("owner", {})):
            continue
        last = storage.current(study, trial)  # it may have written its result since the list above
        if last.state.is_finished():
            continue
        if "result" in last.user_attrs:
            _finish(study, last, last.user_attrs["result"])
        else:
            _abandon(study, last, "interrupted")


def _abandon(study: Study, trial: FrozenTrial, why: Literal["interrupted", "withdrawn"]) -> None:
    """Ends a trial without a result."""
    from optuna.trial import TrialState

    storage.finish(study, trial, TrialState.FAIL, None, ended=why)


def _finish(study: Study, trial: FrozenTrial, outcome: dict[str, Any]) -> None:
    """Ends a trial whose result is written."""
    from optuna.trial import TrialState

    states = {"done": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
    state = states.get(outcome["state"], TrialState.FAIL)
    value = outcome.get("measured_s") if outcome["state"] in states else None
    storage.finish(study, trial, state, value)


def run(study: Study, held: Held, measure: Measure, tell: Tell) -> Row:
    """Measures what is held and writes the result before the trial's state: a kill between them
    loses nothing.
    """
    steps: list[float] = []
    progress = _progress(study, held, steps, tell)
    try:
        with lease.heartbeat(
            lambda: storage.set_attribute(study, held.trial, "owner", lease.this_process())
        ):
            outcome, measurement = measure(held.candidate, progress)
    except Refused as fault:
        outcome = Outcome("crashed", None, str(fault))
        kept = result(outcome, None, 0.0, ()) | {"state": "illegal"}
    except KeyboardInterrupt:
        outcome = Outcome("interrupted", None, "stopped by the user")
        kept = result(outcome, None, 0.0, ())
    except BaseException:
        _abandon(study, held.trial, "interrupted")
        raise
    else:
        noise = noise_share(measurement.steps_s if measurement else steps)
        kept = result(outcome, measurement, noise, steps)
    storage.retried(lambda: storage.set_attribute(study, held.trial, "result", kept))
    if outcome.state == "interrupted":
        _abandon(study, held.trial, "interrupted")
    else:
        _finish(study, held.trial, kept)
    return row(storage.current(study, held.trial))


def _progress(study: Study, held: Held, steps: list[float], tell: Tell) -> Progress:
    """Reports timed steps to the storage, and asks the study's pruner."""
    trial = storage.reporter(study, held.trial)
    tell(row(storage.current(study, held.trial)), all_rows(study))

    def progress(line: dict[str, Any]) -> bool:
        step_s = timed(line)
        if step_s is None:
            return False
        steps.append(step_s)
        if len(steps) > MAX_REPORTS:
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
            tell(ended, all_rows(study))
            if ended.state == "interrupted":
                return True
    except KeyboardInterrupt:
        return True
    return False


def all_rows(study: Study) -> tuple[Row, ...]:
    """The trials of a study as rows, oldest first."""
    return rows(_trials(study))
