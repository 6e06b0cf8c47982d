"""Supervises the children of one run from their start to their end, under its limits; whatever
happens to them is an Outcome.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from planner.launch import failures
from planner.launch.children import (
    Children,
    Command,
    clean,
    last_words,
    listen,
    listen_until,
    reported,
    start,
    start_guard,
)
from planner.launch.outcome import Outcome, Progress, Work

Cancel = Callable[[], bool]
"""Asked many times a second; True ends the run as interrupted. `threading.Event().is_set` is one.
"""
LOOK_S = 0.05
GRACE_S = 2.0
"""After the first child failed the others have this long to end and say why."""
STUCK_S = 15.0
"""A child that spoke of too little memory and neither ends nor reports progress for so long will
not.
"""
STOPPED = "stopped by the user"


def supervise(
    work: Work,
    folder: Path,
    commands: Callable[[Children], Sequence[Command]],
    progress: Progress | None = None,
    cancel: Cancel | None = None,
    began: float | None = None,
    answers: bool = True,
) -> tuple[Outcome, bool]:
    """Runs the children in `folder`, which is removed in the end, and says whether they only found
    their port taken.

    commands: of the children to start; they read children.request and write children.result, and
    carry children.token as PPPLAN_RUN. answers: whether rank 0 is among them; without it there may
    be no result.
    """
    began = time.monotonic() if began is None else began
    children = Children(folder)
    try:
        children.request.write_text(json.dumps(work.request))
        start_guard(children)
        kills = failures.kernel_kills()
        for command in commands(children):
            start(children, command)
        outcome = _until_the_end(work, children, kills, progress, cancel, began)
        if (
            outcome.state == "crashed"
            and not answers
            and all(rank.code == 0 for rank in children.ended)
        ):
            outcome = replace(outcome, state="done", reason="")
        return outcome, outcome.state == "crashed" and failures.port_taken(children.ended)
    except KeyboardInterrupt:
        return Outcome("interrupted", None, STOPPED, seconds=time.monotonic() - began), False
    finally:
        clean(children)


def _until_the_end(
    work: Work,
    children: Children,
    kills: int | None,
    progress: Progress | None,
    cancel: Cancel | None,
    began: float,
) -> Outcome:
    while True:
        listen(children, LOOK_S)
        stopped, now = stop(children, progress, cancel, began), time.monotonic()
        if stopped is not None:
            return stopped
        codes = [rank.code for rank in children.ended]
        if any(codes) or (_short(children) and now - children.heard_at > STUCK_S):
            return _failed(children, kills, began)
        if all(code == 0 for code in codes):
            return _finished(children, began)
        passed = late(work, now - began, now - children.heard_at)
        if passed and _short(children):
            return _failed(children, kills, began)
        if passed:
            return _hung(children, passed, began)


def stop(
    children: Children, progress: Progress | None, cancel: Cancel | None, began: float
) -> Outcome | None:
    """The outcome of a run that its caller stops: pruned by what it reports, or cancelled."""
    pruned, seconds = reported(children, progress), time.monotonic() - began
    if pruned:
        reason = f"stopped as clearly behind after {last_words(children)}"
        return Outcome("pruned", None, reason, seconds=seconds)
    if cancel is not None and cancel():
        return Outcome("interrupted", None, STOPPED, seconds=seconds)
    return None


def _short(children: Children) -> bool:
    return any(rank.memory for rank in children.ended)


def late(work: Work, seconds: float, silent_s: float) -> str:
    """Which limit has passed, in words; empty while none has."""
    if seconds > work.limit_s:
        return f"the time limit of {work.limit_s:g} s passed"
    if work.silence_s is not None and silent_s > work.silence_s:
        return f"no progress for {work.silence_s:g} s"
    return ""


def _hung(children: Children, passed: str, began: float) -> Outcome:
    """The children still running are aborted, which makes Python write where each of them stood."""
    waiting = [rank.rank for rank in children.ended if rank.code is None]
    for rank in waiting:
        with contextlib.suppress(ProcessLookupError):
            children.processes[rank].send_signal(signal.SIGABRT)
    listen_until(children, 1.0)
    reason = (
        f"{passed} with rank {', '.join(map(str, waiting))} of {len(children.ended)} still running;"
        f" last heard: {last_words(children)}"
    )
    return Outcome(
        "timeout", None, reason, children.ended[waiting[0]].text, time.monotonic() - began
    )


def _failed(children: Children, kills: int | None, began: float) -> Outcome:
    listen_until(children, GRACE_S)
    state, reason, tail = failures.failure(children.ended, kills, failures.kernel_kills())
    return Outcome(state, None, reason, tail, time.monotonic() - began)


def _finished(children: Children, began: float) -> Outcome:
    seconds = time.monotonic() - began
    try:
        return Outcome(
            "done", json.loads(children.result.read_text()), "", children.ended[0].text, seconds
        )
    except (OSError, ValueError) as fault:
        reason = f"every rank ended with exit code 0, but rank 0 left no readable result: {fault}"
        return Outcome("crashed", None, reason, children.ended[0].text, seconds)
