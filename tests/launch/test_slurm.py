"""Work under a real Slurm of one node: batch jobs, steps inside an allocation, and what their ends
are taken for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.launch import remote_settings, slurm, slurm_status, slurm_step, slurm_task
from planner.launch.outcome import Work
from planner.launch.remote_settings import RemoteSettings
from tests.launch import slurm_local

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with slurm_local.slurm(tmp_path_factory.mktemp("slurm")) as conf:
        yield conf


def work(do: str, ranks: int = 2, limit_s: float = 60, **changes: Any) -> Work:
    return Work("tests.launch.evil", {"do": do, **changes}, ranks, limit_s)


def where(folder: Path, *words: str) -> RemoteSettings:
    return RemoteSettings(folder, words=words, poll_s=0.2)


def jobs() -> list[str]:
    """States of the jobs that are not over; an ended one may be completing for a moment."""
    done = subprocess.run(["squeue", "-h", "-o", "%T"], capture_output=True, text=True, check=True)
    return [state for state in done.stdout.split() if state != "COMPLETING"]


def test_a_job_runs_its_ranks(controller: Path, tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []
    done = slurm.run(work("works"), lambda line: bool(lines.append(line)), settings=where(tmp_path))
    assert done.state == "done" and done.result is not None, done
    seen = done.result["seen"]
    assert [
        (one["RANK"], one["LOCAL_RANK"], one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"]) for one in seen
    ] == [("0", "0", "2", "2"), ("1", "1", "2", "2")]
    assert {one["MASTER_ADDR"] for one in seen} == {"127.0.0.1"} and len(
        {one["MASTER_PORT"] for one in seen}
    ) == 1
    assert not list(tmp_path.iterdir())


def test_the_rank_that_failed_is_told(controller: Path, tmp_path: Path) -> None:
    done = slurm.run(work("fails", rank=1, code=3, says="no tokens\n"), settings=where(tmp_path))
    assert done.state == "crashed" and done.reason.startswith(
        "rank 1 of 2 ended with exit code 3: no tokens (job "
    ), done


def test_pruned_by_its_progress(controller: Path, tmp_path: Path) -> None:
    done = slurm.run(
        work("progresses", ranks=1, steps=1000, step_s=0.02),
        lambda line: line["step"] > 2,
        settings=where(tmp_path),
    )
    assert done.state == "pruned" and "step 3" in done.reason


def test_time_limit(controller: Path, tmp_path: Path) -> None:
    done = slurm.run(work("hangs", ranks=1, limit_s=1), settings=where(tmp_path))
    assert done.state == "timeout" and "limit of 1 s" in done.reason and not jobs()


def test_a_job_that_waits_can_be_cancelled(controller: Path, tmp_path: Path) -> None:
    """Its time does not count before it starts: the partition's node is down."""
    until = time.monotonic() + 1.5
    waits = slurm.run(
        work("works", limit_s=0.5),
        cancel=lambda: time.monotonic() > until,
        settings=where(tmp_path, "--partition=down"),
    )
    assert (
        waits.state == "interrupted"
        and waits.seconds >= 1.5
        and not jobs()
        and not list(tmp_path.iterdir())
    )


def test_cancelled_by_another(controller: Path, tmp_path: Path) -> None:
    once: list[int] = []

    def scancel() -> bool:
        if not once and jobs() == ["RUNNING"]:
            once.append(subprocess.run(["scancel", "--user=root"]).returncode)
        return False

    done = slurm.run(work("hangs", ranks=1), cancel=scancel, settings=where(tmp_path))
    assert done.state == "crashed" and "ended as CANCELLED" in done.reason


def test_what_slurm_does_not_take(controller: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"sbatch must take the trial's job, but said: .*partition.*PPPLAN_SBATCH"
    ):
        slurm.run(work("works"), settings=where(tmp_path, "--partition=nowhere"))
    assert not list(tmp_path.iterdir())


TUNER = """
import signal
import sys
from pathlib import Path
from planner.launch import slurm
from planner.launch.outcome import Work
from planner.launch.remote_settings import RemoteSettings
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts with &, \
tests included
done = slurm.run(Work("tests.launch.evil", {"do": sys.argv[2]}, 2, 60), \
settings=RemoteSettings(Path(sys.argv[1]), poll_s=0.2))
print(done.state, len(done.result["seen"]) if done.result else done.reason)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_a_tuner_that_is_stopped_cancels_its_job(
    name: str, controller: Path, tmp_path: Path
) -> None:
    tuner = subprocess.Popen(
        [sys.executable, "-c", TUNER, str(tmp_path), "hangs"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    while jobs() != ["RUNNING"] and time.monotonic() < until:
        time.sleep(0.1)
    tuner.send_signal(getattr(signal, name))
    said, _ = tuner.communicate(timeout=60)
    assert said == ("interrupted stopped by the user\n" if name == "SIGINT" else "")
    until = time.monotonic() + 30
    while (jobs() or list(tmp_path.iterdir())) and time.monotonic() < until:
        time.sleep(0.1)
    assert not jobs() and not list(tmp_path.iterdir())


def test_a_step_inside_an_allocation(controller: Path, tmp_path: Path) -> None:
    words = ["salloc", "-Q", "--ntasks=2", sys.executable, "-c", TUNER, str(tmp_path), "works"]
    done = subprocess.run(
        words,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "done 2\n", done
    assert not list(tmp_path.iterdir())


def test_words_of_scontrol_and_sacct() -> None:
    """Lines as Slurm prints them."""
    line = (
        "JobId=7 JobName=ppplan UserId=ann(1000) Priority=1 JobState=OUT_OF_MEMORY"
        " Reason=OutOfMemory Dependency=(null) Requeue=0 ExitCode=0:125 RunTime=00:00:08"
    )
    assert slurm_status.from_scontrol(line) == slurm_status.Job(
        "OUT_OF_MEMORY", "OutOfMemory", "0:125"
    )
    assert slurm_status.from_sacct("CANCELLED by 1000|0:15\n") == slurm_status.Job(
        "CANCELLED", "", "0:15"
    )
    assert {slurm_status.ENDED[one] for one in ("TIMEOUT", "DEADLINE")} == {
        "timeout"
    } and slurm_status.ENDED["OUT_OF_MEMORY"] == "oom"
    assert slurm_status.numbered("0,2-4") == [0, 2, 3, 4]
    assert slurm_step.steps("12.0 aa\n12.1 bb\n13.0 aa\n", "aa") == ["12.0", "13.0"]


def test_tasks_that_the_kernel_killed(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(
        "srun: error: n1: task 3: Out Of Memory\nsrun: Terminating StepId=7.0\nsrun: error: n0:"
        " tasks 0-2: Killed\n"
    )
    ranks = slurm_status.tasks(tmp_path, 4)
    assert [bool(one.memory) for one in ranks] == [False, False, False, True] and [
        one.code for one in ranks
    ] == [-15, -15, -15, 1]


def test_tasks_of_many_nodes_as_ranks() -> None:
    given = {
        "SLURM_PROCID": "11",
        "SLURM_LOCALID": "3",
        "SLURM_NTASKS": "16",
        "SLURM_NODEID": "1",
        "SLURM_TASKS_PER_NODE": "8(x2)",
    }
    assert slurm_task.variables(given) == {
        "RANK": "11",
        "LOCAL_RANK": "3",
        "WORLD_SIZE": "16",
        "GROUP_RANK": "1",
        "LOCAL_WORLD_SIZE": "8",
    }


def test_sizes(tmp_path: Path) -> None:
    asked = Work("m", {}, 32, 600, device="cuda")
    assert slurm.sizes(asked, RemoteSettings(tmp_path, 8, ("--partition=gpu",))) == [
        "--nodes=4",
        "--ntasks=32",
        "--ntasks-per-node=8",
        "--gpus-per-node=8",
        "--time=11",
        "--partition=gpu",
    ]
    with pytest.raises(InputError, match="12 ranks and 8 a node"):
        remote_settings.nodes(12, RemoteSettings(tmp_path))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PPPLAN_RANKS_PER_NODE", "many"),
        ("PPPLAN_SHARED_DIR", "/no/such/folder"),
        ("PPPLAN_SBATCH", "--comment='open"),
        ("PPPLAN_KUBERNETES_KIND", "Pod"),
    ],
)
def test_a_place_that_cannot_be(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=name):
        remote_settings.from_environment()


def test_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PPPLAN_SHARED_DIR", str(tmp_path))
    monkeypatch.setenv("PPPLAN_SBATCH", "--partition=gpu --comment='two words'")
    assert remote_settings.from_environment() == RemoteSettings(
        tmp_path, 8, ("--partition=gpu", "--comment=two words")
    )
