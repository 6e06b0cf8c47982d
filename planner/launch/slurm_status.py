"""The state of a job by Slurm's commands: scontrol and sacct of its state, srun of the tasks that
failed.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from planner.launch import failures
from planner.launch.devices import ask
from planner.launch.failures import Ended
from planner.launch.outcome import State

ANSWER_S = 30.0
"""A busy controller may take its time."""
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
RUNNING = ("RUNNING", "COMPLETING", "STAGE_OUT", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING")
ENDED: dict[str, State] = {
    "COMPLETED": "done",
    "FAILED": "crashed",
    "OUT_OF_MEMORY": "oom",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "NODE_FAIL": "crashed",
    "BOOT_FAIL": "crashed",
    "PREEMPTED": "crashed",
    "CANCELLED": "crashed",
    "REVOKED": "crashed",
    "LAUNCH_FAILED": "crashed",
}
_FIELD = re.compile(r"(?:^|\s)(JobState|Reason|ExitCode)=(\S+)")
_TASKS = re.compile(r"srun: error: \S+: tasks? ([\d,\-]+): (.+)")
_CODE = re.compile(r"Exited with exit code (\d+)")
_WORDS = {
    "Segmentation fault": signal.SIGSEGV,
    "Killed": signal.SIGKILL,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Terminated": signal.SIGTERM,
    "Floating point exception": signal.SIGFPE,
}


@dataclass(frozen=True, slots=True)
class Job:
    """One look at a job."""

    state: str
    """Slurm's word; empty when nobody knows the job."""
    reason: str = ""
    code: str = ""
    """Exit code and signal: "1:0"."""


def job(number: str) -> Job:
    """The controller's word; of a job that it has forgotten, the accounting's."""
    text, fault = ask(["scontrol", "show", "job", "-o", number], ANSWER_S)
    if not fault:
        return from_scontrol(text)
    listed, _ = ask(["sacct", "-n", "-X", "-P", "-j", number, "-o", "State,ExitCode"], ANSWER_S)
    return from_sacct(listed) if listed.strip() else Job("", fault)


def from_scontrol(line: str) -> Job:
    fields = dict(_FIELD.findall(line))
    return Job(fields.get("JobState", ""), fields.get("Reason", ""), fields.get("ExitCode", ""))


def from_sacct(text: str) -> Job:
    """ "CANCELLED by 1000|0:15" and the like."""
    state, _, code = text.strip().splitlines()[0].partition("|")
    return Job(state.split()[0].rstrip("+") if state.split() else "", "", code)


def tasks(folder: Path, count: int) -> list[Ended]:
    """The ranks as their logs and srun's complaints in the job's log tell."""
    ranks = [Ended(rank, 0, order=count) for rank in range(count)]
    for ended in ranks:
        _read(folder / f"task-{ended.rank}.log", ended)
    log = folder / "job.log"
    complaints = _TASKS.findall(log.read_text(errors="replace")) if log.exists() else []
    for order, (numbers, what) in enumerate(complaints):
        code = _code(what)
        if order and "Killed" in what:  # after a failure srun ends the others
            code = -signal.SIGTERM
        for rank in numbered(numbers):
            if rank < count and not ranks[rank].code:
                ranks[rank].code, ranks[rank].order = code, order
                if "Out Of Memory" in what and not ranks[rank].memory:
                    ranks[rank].memory = what
    return ranks


def _read(path: Path, rank: Ended) -> None:
    if path.exists():
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                failures.hear(rank, chunk)


def numbered(text: str) -> list[int]:
    """0,2-4 is 0, 2, 3, 4."""
    out: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        out += range(int(first), int(last or first) + 1)
    return out


def _code(what: str) -> int:
    match = _CODE.search(what)
    if match:
        return int(match.group(1))
    return next((-number for word, number in _WORDS.items() if word in what), 1)
