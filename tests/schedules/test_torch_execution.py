"""The simulator against real execution: torch's own pipeline runtime on four gloo processes whose
stages sleep.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from planner.schedules import table
from planner.simulator import simulate

pytestmark = pytest.mark.process


pytest.importorskip("torch.distributed.pipelining")

WORKER = Path(__file__).with_name("sleeping_stages.py")
RANKS, MICROBATCHES, REPEATS = 4, 8, 1
FULL_STAGE_S = 0.08
"""Forward, input gradient and weight gradient each, of one full 1/p of the model: long against what
a busy machine adds.
"""
WITHIN = 0.15
ATTEMPTS = 5
LIMIT_S = 150
NO_NEW_ATTEMPT_AFTER_S = 150
NAMES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved-torch": "ScheduleInterleaved1F1B",
    "zbv": "ScheduleZBVZeroBubble",
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def measure(classes):
    """Best step in seconds of each schedule class; nothing where the processes fail or hang."""
    words = [
        str(word)
        for word in (RANKS, free_port(), FULL_STAGE_S, MICROBATCHES, REPEATS, ",".join(classes))
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    pipeline = subprocess.Popen(
        [sys.executable, str(WORKER), *words], env=environment, start_new_session=True, **pipes
    )
    try:
        said, error = pipeline.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return {}, f"no answer within {LIMIT_S} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pipeline.pid, signal.SIGKILL)
        pipeline.wait()
    if pipeline.returncode:
        return {}, error[-4000:]
    steps = json.loads(said.strip().splitlines()[-1])
    return {name: min(times) for name, times in steps.items()}, ""


def predicted_s(name):
    least = table.schedule(name).chunks[0]
    v = 2 if name == "interleaved-torch" else least
    order = table.order(name, RANKS, MICROBATCHES, v)
    times = np.tile(np.array([1.0, 2.0, 1.0, 1.0]) * FULL_STAGE_S / v, (order.stages, 1))
    times[0, 2:] = (
        0.0,
        times[0, 1],
    )  # when split, the runtime puts off stage 0's input gradient to its weight gradient
    return simulate(order, times).makespan


@pytest.fixture(scope="module")
def best():
    """Best measured step of each schedule over the attempts; what is not yet within the bound is
    tried again.
    """
    found, trouble = {}, []
    expected = {name: predicted_s(name) for name in NAMES}
    began = time.monotonic()
    for attempt in range(ATTEMPTS):
        late = [
            name for name in NAMES if not found.get(name, np.inf) <= expected[name] * (1 + WITHIN)
        ]
        if not late or (attempt and time.monotonic() - began > NO_NEW_ATTEMPT_AFTER_S):
            break
        steps, error = measure([NAMES[name] for name in late])
        trouble += [error] if error else []
        for name in late:
            found[name] = min(found.get(name, np.inf), steps.get(NAMES[name], np.inf))
    return found, expected, trouble


@pytest.mark.parametrize("name", NAMES)
def test_a_real_step_takes_what_the_simulator_says(best, name):
    found, expected, trouble = best
    assert found[name] / expected[name] == pytest.approx(1.0, abs=WITHIN), (
        found,
        expected,
        trouble,
    )


def test_the_zero_bubble_is_seen(best):
    found, expected, trouble = best
    assert (
        expected["zbv"]
        < expected["interleaved-torch"]
        < expected["1f1b"]
        == pytest.approx(expected["gpipe"])
    )
    assert found["zbv"] < found["1f1b"], (found, expected, trouble)
