"""Runs work under Slurm: a batch job a trial, or, inside an allocation, a step of it. Ranks are
tasks; nodes share the folder.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from planner.errors import InputError
from planner.launch import failures, slurm_status
from planner.launch.children import (
    Children,
    Command,
    clean,
    findable,
    last_words,
    start_guard,
    tell_guard,
)
from planner.launch.devices import ask
from planner.launch.outcome import Outcome, Progress, Work
from planner.launch.remote_settings import RemoteSettings, from_environment, nodes
from planner.launch.slurm_status import Job
from planner.launch.supervise import STOPPED, Cancel, late, stop, supervise

SPARE_S = 60.0
"""That Slurm's own limit leaves beyond ours."""
LOST_LOOKS = 5
"""Looks in a row at which nobody knew the job: then it is lost."""
_SCRIPT = """\
#!/bin/bash
if ((SLURM_NNODES > 1)); then
  MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
else
  MASTER_ADDR=127.0.0.1
fi
MASTER_PORT=$({python} -m planner.launch.rank_environment)
export MASTER_ADDR MASTER_PORT
exec srun --kill-on-bad-exit=1 --cpu-bind=none --output={folder}/task-%t.log {command}
"""


def run(
    work: Work,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
    settings: RemoteSettings | None = None,
) -> Outcome:
    """A step with srun inside an allocation, else a job with sbatch; the limit counts from the
    start of the job, not from its submission. InputError when Slurm takes no job."""
    settings = settings or from_environment()
    start = _step if os.environ.get("SLURM_JOB_ID") else _job
    return start(work, progress, cancel, settings)


def sizes(work: Work, settings: RemoteSettings) -> list[str]:
    """Nodes, tasks, GPUs, cores and the time limit as sbatch and srun take them."""
    count, each = nodes(work.ranks, settings)
    gpus = [f"--gpus-per-node={each}"] if work.device == "cuda" else []
    minutes = math.ceil((work.limit_s + SPARE_S) / 60)
    return [
        f"--nodes={count}",
        f"--ntasks={work.ranks}",
        f"--ntasks-per-node={each}",
        *gpus,
        f"--time={minutes}",
        *settings.words,
    ]


def _task(work: Work, children: Children) -> list[str]:
    return [
        sys.executable,
        "-m",
        "planner.launch.slurm_task",
        work.module,
        str(children.request),
        str(children.result),
    ]


def _variables(work: Work) -> dict[str, str]:
    device = {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"} if work.device == "cpu" else {}
    return findable(
        {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
            **device,
            **work.environment,
        }
    )


def _step(
    work: Work, progress: Progress | None, cancel: Cancel | None, settings: RemoteSettings
) -> Outcome:
    """srun is our child; a step that outlives it is cancelled by its name."""
    folder = Path(tempfile.mkdtemp(prefix="ppplan-run-", dir=settings.folder))
    host, _ = ask(
        ["scontrol", "show", "hostnames", os.environ.get("SLURM_JOB_NODELIST", "")],
        slurm_status.ANSWER_S,
    )
    alone = nodes(work.ranks, settings)[0] == 1
    meet = {
        "MASTER_ADDR": "127.0.0.1" if alone else (host.split() or ["127.0.0.1"])[0],
        "MASTER_PORT": str(15_000 + int.from_bytes(os.urandom(2), "big") % 15_000),
    }

    def commands(children: Children) -> list[Command]:
        tell_guard(children, [sys.executable, "-m", "planner.launch.slurm_step", children.token])
        words = [
            "srun",
            f"--job-name={children.token}",
            "--kill-on-bad-exit=1",
            "--cpu-bind=none",
            "--unbuffered",
            "--exact",
            *([] if alone else ["--relative=0"]),
            *sizes(work, settings),
            *_task(work, children),
        ]
        return [Command(words, {**_variables(work), **meet, "PPPLAN_RUN": children.token}, "srun")]

    return supervise(work, folder, commands, progress, cancel)[0]


def _job(
    work: Work, progress: Progress | None, cancel: Cancel | None, settings: RemoteSettings
) -> Outcome:
    began = time.monotonic()
    children = Children(Path(tempfile.mkdtemp(prefix="ppplan-run-", dir=settings.folder)))
    try:
        start_guard(children)
        number = _submit(work, children, settings)
        tell_guard(children, ["scancel", number])
        return _followed(work, children, number, progress, cancel, settings, began)
    except KeyboardInterrupt:
        return Outcome("interrupted", None, STOPPED, seconds=time.monotonic() - began)
    finally:
        clean(children)


def _submit(work: Work, children: Children, settings: RemoteSettings) -> str:
    """The job's number."""
    children.request.write_text(json.dumps(work.request))
    script = children.folder / "job.sh"
    python, folder = shlex.quote(sys.executable), shlex.quote(str(children.folder))
    script.write_text(
        _SCRIPT.format(python=python, folder=folder, command=shlex.join(_task(work, children)))
    )
    # Whole nodes: a neighbour's job would be part of what is measured.
    exclusive = ["--exclusive"] if work.device == "cuda" else []
    words = [
        "sbatch",
        "--parsable",
        "--job-name=ppplan",
        f"--output={children.folder}/job.log",
        f"--chdir={children.folder}",
        "--no-requeue",
        *exclusive,
        *sizes(work, settings),
        str(script),
    ]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, env=_variables(work), stdin=subprocess.DEVNULL
        )
    except OSError:
        raise InputError(
            "--launcher slurm must find sbatch, but it is not there; `ppplan doctor` says what"
            " would work here"
        ) from None
    if done.returncode:
        message = " ".join(done.stderr.split())[-300:]
        raise InputError(
            f"sbatch must take the trial's job, but said: {message}; set PPPLAN_SBATCH for more"
            " options"
        )
    return done.stdout.strip().split(";")[0]


def _followed(
    work: Work,
    children: Children,
    number: str,
    progress: Progress | None,
    cancel: Cancel | None,
    settings: RemoteSettings,
    began: float,
) -> Outcome:
    started, lost = None, 0
    while True:
        time.sleep(settings.poll_s)
        job, now = slurm_status.job(number), time.monotonic()
        stopped = stop(children, progress, cancel, began)
        if stopped is not None:
            return stopped
        lost = lost + 1 if not job.state else 0
        if job.state in slurm_status.ENDED or lost >= LOST_LOOKS:
            return _judged(work, children, number, job, now - began)
        if job.state in slurm_status.RUNNING:
            started = started or now
            if passed := late(work, now - started, now - max(started, children.heard_at)):
                tail = slurm_status.tasks(children.folder, work.ranks)[0].text
                return Outcome(
                    "timeout",
                    None,
                    f"{passed} in job {number}; last heard: {last_words(children)}",
                    tail,
                    now - began,
                )


def _judged(work: Work, children: Children, number: str, job: Job, seconds: float) -> Outcome:
    ranks = slurm_status.tasks(children.folder, work.ranks)
    state = slurm_status.ENDED.get(job.state, "crashed")
    if state == "done" and children.result.exists():
        return Outcome("done", json.loads(children.result.read_text()), "", ranks[0].text, seconds)
    how = f"job {number} ended as {job.state or 'lost'}" + (
        f" ({job.reason})" if job.reason not in ("", "None") else ""
    )
    if state in ("oom", "timeout"):
        return Outcome(state, None, how, ranks[0].text, seconds)
    if any(rank.code or rank.memory for rank in ranks):
        state, why, tail = failures.failure(ranks, 0, 0)
        return Outcome(state, None, f"{why} ({how})", tail, seconds)
    log = children.folder / "job.log"
    tail = log.read_text(errors="replace")[-failures.TAIL_BYTES :] if log.exists() else ""
    return Outcome(
        "crashed",
        None,
        f"{how} without a result" if state == "done" else f"{how}, exit code {job.code}",
        tail,
        seconds,
    )
