"""In place of torchrun where a test starts many small runs: ranks forked from one process that has
imported torch and DeepSpeed.

Reads JSON lines (words: a script, or -m and a module, and its flags; ranks, env, out: a file for
what is printed); answers each with {"code": ...}.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
import traceback
from pathlib import Path
from typing import Any

# All that a run imports sooner or later; the compiler comes with the first optimizer and takes more
# than deepspeed itself.
import deepspeed.pipe
import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401
import torch._dynamo
import torch._inductor.compile_fx  # noqa: F401

import planner.tune.workers.turns  # noqa: F401

LIMIT_S = 300


def rank(case: dict[str, Any], number: int) -> None:
    """The script or module as __main__, with a rank's environment; never returns."""
    out = os.open(case["out"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    size = str(case["ranks"])
    os.environ.update(
        case["env"],
        RANK=str(number),
        LOCAL_RANK=str(number),
        WORLD_SIZE=size,
        LOCAL_WORLD_SIZE=size,
    )
    by_name = case["words"][0] == "-m"
    sys.argv, code = case["words"][by_name:], 0
    try:
        execute = runpy.run_module if by_name else runpy.run_path
        execute(sys.argv[0], run_name="__main__")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def start(case: dict[str, Any]) -> set[int]:
    processes = set()
    for number in range(case["ranks"]):
        child = os.fork()
        if not child:
            rank(case, number)
        processes.add(child)
    return processes


def run(case: dict[str, Any]) -> int:
    """The first exit code that is not 0; like torchrun, whoever still runs is ended then, and where
    the limit is over.
    """
    running, code, until = start(case), 0, time.monotonic() + LIMIT_S
    while running:
        done, status = os.waitpid(-1, os.WNOHANG)
        running.discard(done)
        code = code or (os.waitstatus_to_exitcode(status) if done else 0)
        if time.monotonic() > until:
            code = code or 124
        if code:
            for other in running:
                os.kill(other, 9)
                os.waitpid(other, 0)
            return code
        time.sleep(0 if done else 0.02)
    return 0


if __name__ == "__main__":
    answers = os.dup(1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        Path(request["out"]).touch()
        os.write(answers, (json.dumps({"code": run(request)}) + "\n").encode())
