"""The study in one process: what is launched, in what order, what is kept, and what goes on after
it was stopped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.launch.outcome import Outcome, Progress
from planner.tune.measurement import Measurement
from planner.tune.study import lease, storage
from planner.tune.study import study as studies
from planner.tune.study.prune import behind, noise_share
from planner.tune.study.space import MAX_OOM_PROBABILITY, Candidate, varied
from planner.tune.study.storage import opened
from planner.tune.study.study import Measure, Refused, Size
from planner.tune.study.trials import Row, best
from tests.tune.simulated import measured, question, real_s, simulated

pytestmark = pytest.mark.process


ASKED = {"model": "llama3-8b", "gpus": 8}


@pytest.fixture(scope="module", params=["sqlite", "journal"])
def empty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """One storage a kind for the whole module: its tables take seconds to make; each test has a
    study of its own.
    """
    folder = tmp_path_factory.mktemp("storage")
    return (
        f"sqlite:///{folder}/study.db"
        if request.param == "sqlite"
        else f"journal:{folder}/study.journal"
    )


@pytest.fixture
def url(empty: str) -> str:
    return empty


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def quiet(row: Row, rows: tuple[Row, ...]) -> None:
    return None


def refined(
    url: str, name: str, measure: Measure, size: Size, resume: bool = False
) -> tuple[tuple[Row, ...], bool]:
    _, space = question()
    study = studies.create(opened(url), name, ASKED, resume, space, size)
    return studies.all_rows(study), studies.refine(study, space, measure, size, quiet)


def rows(url: str, name: str) -> tuple[Row, ...]:
    _, space = question()
    return studies.all_rows(studies.create(opened(url), name, ASKED, True, space, Size(1, 1)))


def test_the_plan_comes_first_then_the_fastest_by_prediction_and_nothing_twice(
    url: str, name: str
) -> None:
    _, space = question()
    refined(url, name, simulated, Size(10, 5))
    found = rows(url, name)
    assert [one.key for one in found[:5]] == [one.key for one in space.candidates[:5]]
    assert len({one.key for one in found}) == len(found) == 10
    assert best(found).measured_s == min(real_s(one) for one in space.candidates)
    assert {one.state for one in found} <= {"done", "pruned"}


def test_a_failure_is_a_result(url: str, name: str) -> None:
    states = iter(["oom", "crashed", "timeout"])

    def fails(candidate: Candidate, progress: Progress) -> tuple[Outcome, Measurement | None]:
        state = next(states, None)
        return (
            (Outcome(state, None, f"why {state}", "the tail"), None)
            if state
            else simulated(candidate, progress)
        )  # type: ignore[arg-type]

    refined(url, name, fails, Size(5, 2))
    found = rows(url, name)
    assert [one.state for one in found[:3]] == ["oom", "crashed", "timeout"]
    assert [(one.reason, one.stderr_tail) for one in found[:3]] == [
        (f"why {s}", "the tail") for s in ("oom", "crashed", "timeout")
    ]
    assert len(found) == 5 and found[4].measured_s


def test_what_the_runner_refuses_is_noted_and_costs_no_trial(url: str, name: str) -> None:
    refusals = iter([True, True])

    def refuses(candidate: Candidate, progress: Progress) -> tuple[Outcome, Measurement | None]:
        if next(refusals, False):
            raise Refused("the runner cannot")
        return simulated(candidate, progress)

    refined(url, name, refuses, Size(3, 2))
    found = rows(url, name)
    assert [one.state for one in found[:2]] == ["illegal", "illegal"] and found[
        0
    ].reason == "the runner cannot"
    assert sum(one.state in ("done", "pruned") for one in found) == 3


def test_what_keeps_every_layout_from_running_ends_the_study(url: str, name: str) -> None:
    def cannot(candidate: Candidate, progress: Progress) -> tuple[Outcome, Measurement | None]:
        raise InputError("no image for the pods")

    with pytest.raises(InputError, match="no image"):
        refined(url, name, cannot, Size(3, 2))
    assert [one.state for one in rows(url, name)] == ["interrupted"]
    refined(url, name, simulated, Size(3, 2), resume=True)
    assert len(rows(url, name)) == 3


@pytest.mark.parametrize("stop", ["exception", "outcome"])
def test_ctrl_c_keeps_the_best_so_far_and_the_layout_is_tried_again(
    url: str, name: str, stop: str
) -> None:
    calls: list[str] = []

    def stopped(candidate: Candidate, progress: Progress) -> tuple[Outcome, Measurement | None]:
        calls.append(candidate.key)
        if len(calls) == 3 and stop == "exception":
            raise KeyboardInterrupt
        return (
            (Outcome("interrupted", None, "stopped by the user"), None)
            if len(calls) == 3
            else simulated(candidate, progress)
        )

    _, interrupted = refined(url, name, stopped, Size(5, 5))
    before = rows(url, name)
    assert (
        interrupted
        and [one.state for one in before] == ["done", "done", "interrupted"]
        and best(before)
    )
    refined(url, name, stopped, Size(5, 5), resume=True)
    assert calls[3] == calls[2] and len(calls) == 6
    assert [one.state for one in rows(url, name)].count("interrupted") == 0


def test_a_study_of_something_else_is_refused(url: str, name: str) -> None:
    _, space = question()
    refined(url, name, simulated, Size(1, 1))
    with pytest.raises(InputError, match=r"another: gpus was 8, now 16; --study NAME"):
        studies.create(opened(url), name, ASKED | {"gpus": 16}, True, space, Size(1, 1))
    with pytest.raises(InputError, match=r"has 1 trials; --resume"):
        studies.create(opened(url), name, ASKED, False, space, Size(1, 1))


THIS_PROCESS = lease.this_process


def dead() -> lease.Owner:
    """A process of this machine that is gone."""
    child = subprocess.Popen(["true"])
    child.wait()
    return THIS_PROCESS() | {"pid": child.pid, "start": "1"}


def held_by(
    url: str, name: str, who: Callable[[], lease.Owner], monkeypatch: pytest.MonkeyPatch
) -> str:
    """A trial that such an owner has begun; returns its layout."""
    _, space = question()
    study = studies.create(opened(url), name, ASKED, True, space, Size(5, 5))
    with monkeypatch.context() as patched:
        patched.setattr(lease, "this_process", who)
        held = studies.claim(study, space, Size(5, 5))
    assert held is not None
    return held.candidate.key


def test_what_a_killed_tuner_held_is_tried_again_first(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = held_by(url, name, dead, monkeypatch)
    calls: list[str] = []

    def notes(candidate: Candidate, progress: Progress) -> tuple[Outcome, Measurement | None]:
        calls.append(candidate.key)
        return simulated(candidate, progress)

    refined(url, name, notes, Size(3, 3), resume=True)
    assert calls[0] == first and len(calls) == 3
    assert [one.state for one in rows(url, name)].count("done") >= 2 and len(rows(url, name)) == 3


def test_what_another_holds_is_left_to_it(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine a process counts as alive as long as it gave a sign of life of late."""
    away = {"machine": "elsewhere", "host": "elsewhere", "pid": 1, "start": "1"}
    held = held_by(url, name, lambda: away | {"time": lease.time.time()}, monkeypatch)
    lost = held_by(
        url, name, lambda: away | {"time": lease.time.time() - 2 * lease.EXPIRY_S}, monkeypatch
    )
    calls: list[str] = []

    def notes(candidate: Candidate, progress: Progress) -> tuple[Outcome, Measurement | None]:
        calls.append(candidate.key)
        return simulated(candidate, progress)

    refined(url, name, notes, Size(4, 4), resume=True)
    assert held not in calls and lost in calls and len(calls) == 3


def test_a_result_that_was_written_before_the_kill_counts(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, space = question()
    held_by(url, name, dead, monkeypatch)
    study = studies.create(opened(url), name, ASKED, True, space, Size(5, 5))
    trial = study.get_trials()[0]
    storage.set_attribute(
        study, trial, "result", {"state": "done", "measured_s": 1.25, "reason": ""}
    )
    studies.reclaim(study)
    (only,) = studies.all_rows(study)
    assert (only.state, only.measured_s, study.best_value) == ("done", 1.25, 1.25)


def test_a_result_that_was_written_while_others_were_looked_at_counts(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that writes its result and dies after the trials were listed: the list is old."""
    _, space = question()
    held_by(url, name, dead, monkeypatch)
    study = studies.create(opened(url), name, ASKED, True, space, Size(5, 5))
    trial = study.get_trials()[0]

    def dies_after_writing(owner: object) -> bool:
        storage.set_attribute(
            study, trial, "result", {"state": "done", "measured_s": 1.25, "reason": ""}
        )
        return False

    monkeypatch.setattr(lease, "is_alive", dies_after_writing)
    studies.reclaim(study)
    (only,) = studies.all_rows(study)
    assert (only.state, only.measured_s) == ("done", 1.25)


def test_a_layout_that_takes_its_tuner_down_three_times_is_given_up(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {held_by(url, name, dead, monkeypatch) for _ in range(3)}
    assert len(keys) == 1
    refined(url, name, simulated, Size(3, 3), resume=True)
    found = rows(url, name)
    assert [one.state for one in found if one.key in keys] == [
        "crashed"
    ] and "killed 3 times" in found[0].reason
    assert sum(one.state in ("done", "pruned") for one in found) == 3


def test_rivals_run_again_in_turns_and_their_medians_decide(url: str, name: str) -> None:
    """Two layouts 1% apart on a machine with 3% of noise: one lucky run must not win."""
    _, space = question()
    times = {
        space.candidates[0].key: [1.00, 1.06, 1.05],
        space.candidates[1].key: [1.01, 1.02, 1.00],
        space.candidates[2].key: [1.5],
    }
    calls: list[int] = []

    def noisy(candidate: Candidate, progress: Progress) -> tuple[Outcome, Measurement | None]:
        index = next(i for i, one in enumerate(space.candidates) if one.key == candidate.key)
        calls.append(index)
        return Outcome("done", {}), replace(
            measured(times[candidate.key].pop(0)), steps_s=(1.0, 1.03, 0.97, 1.0, 1.03)
        )

    refined(url, name, noisy, Size(3, 3, repeats=2))
    assert calls == [0, 1, 2, 0, 1, 1, 0] or calls == [0, 1, 2, 0, 1, 0, 1]
    fastest = best(rows(url, name))
    assert (
        fastest is not None
        and fastest.key == space.candidates[1].key
        and fastest.measured_s == 1.01
    )


def test_no_candidate_is_certain_to_run_out_of_memory_and_parameters_tell_candidates_apart() -> (
    None
):
    from planner.tune.study.space import parameters

    _, space = question()
    assert space.certain_oom > 0
    assert max(one.oom_probability for one in space.candidates) <= MAX_OOM_PROBABILITY
    names = varied(space.candidates)
    assert len({str(parameters(one.layout, names)) for one in space.candidates}) == len(
        space.candidates
    )


def test_pruning_waits_for_three_steps_and_never_goes_below_the_noise() -> None:
    assert not behind([9.0, 9.0], 1.0, 0.0)
    assert behind([1.2, 1.3, 1.25], 1.0, 0.0)
    assert not behind([1.05, 1.3, 1.5], 1.0, 0.0)
    assert not behind([1.2, 1.3, 1.25], 1.0, 0.1)
    assert not behind([9.0, 9.0, 9.0], None, 0.0)


def test_noise_is_the_deviation_of_a_normal_and_blind_to_one_outlier() -> None:
    import numpy as np

    steps = np.random.default_rng(0).normal(2.0, 0.1, 20_001)
    assert noise_share(steps.tolist()) == pytest.approx(0.05, rel=0.03)
    assert noise_share([1.0, 1.01, 0.99, 1.0, 50.0]) < 0.02


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("study.db", "sqlite:///study.db"),
        ("postgresql://me:secret@nowhere/x", "postgresql://"),
        ("nonsense://x", "nonsense://x"),
        ("sqlite:////proc/none/x.db", "must be a file that can be written"),
        ("journal:/proc/none/x", "must be a journal"),
    ],
)
def test_a_storage_that_cannot_be_is_one_message(url: str, says: str) -> None:
    with pytest.raises(InputError, match=r"storage must be") as caught:
        opened(url)
    assert says in str(caught.value) and "secret" not in str(caught.value)


def test_a_journal_whose_last_line_was_torn_goes_on(tmp_path: Path) -> None:
    url = f"journal:{tmp_path}/torn.journal"
    refined(url, "torn", simulated, Size(2, 2))
    whole = (tmp_path / "torn.journal").read_bytes()
    (tmp_path / "torn.journal").write_bytes(whole + b'{"op_code":4,"work')
    refined(url, "torn", simulated, Size(3, 3), resume=True)
    assert len(rows(url, "torn")) == 3
