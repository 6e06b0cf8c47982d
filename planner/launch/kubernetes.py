"""Runs work in Kubernetes: kubectl applies a trial's objects, tells of its pods and their logs, and
deletes them in the end.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from planner.errors import InputError
from planner.launch.children import Children, clean, start_guard, tell_guard
from planner.launch.devices import ask
from planner.launch.kubernetes_manifest import LABEL, documents
from planner.launch.outcome import Outcome, Progress, Work
from planner.launch.pod import OUTCOME, PROGRESS
from planner.launch.remote_settings import VARIABLES, RemoteSettings, from_environment, nodes
from planner.launch.supervise import STOPPED, Cancel

ANSWER_S = 60.0
LOST_LOOKS = 30
"""Looks in a row at which kubectl did not answer, or at which pods that had been there were gone.
"""
_HOPELESS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
)
_WORST = ("oom", "crashed", "timeout", "interrupted", "done")
"""Of several pods the state that says most about the run."""


def run(
    work: Work,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
    settings: RemoteSettings | None = None,
) -> Outcome:
    """The limit counts from the first pod that runs; waiting for room does not. InputError without
    an image, or when the cluster does not take the objects."""
    settings = settings or from_environment()
    if not settings.image:
        raise InputError(
            f"--launcher kubernetes must know PPPLAN_IMAGE, {VARIABLES['PPPLAN_IMAGE']}, but it is"
            " not set"
        )
    began, name = time.monotonic(), f"ppplan-{secrets.token_hex(4)}"
    children = Children(Path(tempfile.mkdtemp(prefix="ppplan-run-")))
    try:
        start_guard(children)
        manifest = children.folder / "trial.yaml"
        manifest.write_text(yaml.safe_dump_all(documents(name, work, settings), sort_keys=False))
        tell_guard(
            children,
            ["kubectl", "delete", "-f", str(manifest), "--ignore-not-found", "--wait=false"],
        )
        _apply(manifest)
        return _followed(name, work, settings, progress, cancel, began)
    except KeyboardInterrupt:
        return Outcome("interrupted", None, STOPPED, seconds=time.monotonic() - began)
    finally:
        clean(children)


def _apply(manifest: Path) -> None:
    try:
        done = subprocess.run(
            ["kubectl", "apply", "-f", str(manifest)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
    except OSError:
        raise InputError(
            "--launcher kubernetes must find kubectl, but it is not there; `ppplan doctor` says"
            " what works here"
        ) from None
    if done.returncode:
        raise InputError(
            "the cluster must take the trial's objects, but kubectl said:"
            f" {' '.join(done.stderr.split())[-300:]}"
        )


def pods(name: str, settings: RemoteSettings) -> list[dict[str, Any]] | None:
    """As the cluster has them, in the order of their names; None when it does not answer."""
    space = ["-n", settings.namespace] if settings.namespace else []
    listing, fault = ask(
        ["kubectl", "get", "pods", *space, "-l", f"{LABEL}={name}", "-o", "json"], ANSWER_S
    )
    if fault:
        return None
    return sorted(json.loads(listing)["items"], key=lambda pod: str(pod["metadata"]["name"]))


def _logs(pod: dict[str, Any], settings: RemoteSettings) -> list[str]:
    space = ["-n", settings.namespace] if settings.namespace else []
    return ask(["kubectl", "logs", *space, pod["metadata"]["name"]], ANSWER_S)[0].splitlines()


def _followed(
    name: str,
    work: Work,
    settings: RemoteSettings,
    progress: Progress | None,
    cancel: Cancel | None,
    began: float,
) -> Outcome:
    heard, lost, seen = 0, 0, False
    started: float | None = None
    while True:
        time.sleep(settings.poll_s)
        present, now = pods(name, settings), time.monotonic()
        if cancel is not None and cancel():
            return Outcome("interrupted", None, STOPPED, seconds=now - began)
        seen = seen or bool(present)
        lost = lost + 1 if present is None or (seen and not present) else 0
        if lost > LOST_LOOKS:
            return Outcome("crashed", None, f"the pods of {name} were lost", seconds=now - began)
        present = present or []
        over = judged(present, nodes(work.ranks, settings)[0], now - began)
        if over is not None and over.state != "done":
            return over
        logs = [_logs(pod, settings) for pod in present]
        if over is not None:
            return _answered(logs, now - began)
        if any(_phase(pod) == "Running" for pod in present):
            started = started or now
            lines = _messages(logs, PROGRESS)
            new, heard = lines[heard:], len(lines)
            if progress is not None and any(progress(line) for line in new):
                return Outcome(
                    "pruned", None, f"stopped as clearly behind after {new}", seconds=now - began
                )
        if (
            started is not None and now - started > work.limit_s + 30
        ):  # the pods keep the limit themselves, and say more
            return Outcome(
                "timeout",
                None,
                f"the time limit of {work.limit_s:g} s passed in {name}",
                seconds=now - began,
            )


def _phase(pod: dict[str, Any]) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def judged(present: list[dict[str, Any]], count: int, seconds: float) -> Outcome | None:
    """None while the pods may still come to an end of their own; "done" when their logs have the
    answer.
    """
    for pod in present:
        status, name = pod.get("status", {}), pod["metadata"]["name"]
        for container in status.get("containerStatuses", ()):
            state = container.get("state", {})
            if state.get("waiting", {}).get("reason") in _HOPELESS:
                why = f"{state['waiting']['reason']}: {state['waiting'].get('message', '')}"
                return Outcome(
                    "crashed", None, f"pod {name} cannot start: {why}"[:400], seconds=seconds
                )
            if state.get("terminated", {}).get("reason") == "OOMKilled":
                return Outcome(
                    "oom",
                    None,
                    f"pod {name} was killed, as its host memory ran out (OOMKilled)",
                    seconds=seconds,
                )
        if _phase(pod) == "Failed" and status.get("reason"):
            why = f"{status['reason']} {status.get('message', '')}".strip()
            return Outcome("crashed", None, f"pod {name} failed: {why}"[:400], seconds=seconds)
    over = [pod for pod in present if _phase(pod) in ("Succeeded", "Failed")]
    failed = any(_phase(pod) == "Failed" for pod in over)
    if failed or (over and len(over) >= count):
        return Outcome("done", None, seconds=seconds)
    return None


def _messages(logs: list[list[str]], prefix: str) -> list[Any]:
    """The JSON of the log lines that begin with `prefix`."""
    lines = (line for log in logs for line in log)
    return [json.loads(line.removeprefix(prefix)) for line in lines if line.startswith(prefix)]


def _answered(logs: list[list[str]], seconds: float) -> Outcome:
    """Of the outcomes that the pods wrote, the worst; else the first that has a result."""
    outcomes = _messages(logs, OUTCOME)
    if not outcomes:
        tail = "\n".join(logs[0][-100:]) if logs else ""
        return Outcome("crashed", None, "a pod failed and left no word of why", tail, seconds)
    worst = min(
        outcomes, key=lambda outcome: (_WORST.index(outcome["state"]), outcome["result"] is None)
    )
    return Outcome(worst["state"], worst["result"], worst["reason"], worst["stderr_tail"], seconds)
