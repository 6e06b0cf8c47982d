"""Whatever a rank does, run() answers, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from planner.launch import failures, local
from planner.launch.outcome import Outcome, Work
from planner.launch.process_guard import alive, started_at

pytestmark = pytest.mark.process


EVIL = "tests.launch.evil"
ROOT = Path(__file__).parents[2]


def work(do: str, ranks: int = 1, limit_s: float = 60, **changes: Any) -> Work:
    """`changes` of the request."""
    return Work(EVIL, {"do": do, **changes}, ranks, limit_s)


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """After each test: no folder of a run, no process with a run's token."""
    folder = tmp_path / "folders"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert not list(folder.iterdir())
    assert not carriers(str(folder))


def carriers(mark: str) -> list[int]:
    """Processes whose environment has our folder for temporary files, but for this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            held = (entry / "environ").read_bytes()
        except OSError:
            continue
        if f"TMPDIR={mark}".encode() in held and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def test_ranks_find_torchruns_variables() -> None:
    done = local.run(Work(EVIL, {"do": "works", "x": [1, None]}, 3, 60, environment={"MARK": "5"}))
    assert done.state == "done" and done.result is not None and not done.reason
    assert done.result["echo"] == {"do": "works", "x": [1, None]}
    seen = done.result["seen"]
    assert [
        (one["RANK"], one["LOCAL_RANK"], one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"], one["MARK"])
        for one in seen
    ] == [(str(rank), str(rank), "3", "3", "5") for rank in range(3)]
    assert len({one["MASTER_PORT"] for one in seen}) == 1 and seen[0]["MASTER_ADDR"] == "127.0.0.1"
    assert {one["CUDA_VISIBLE_DEVICES"] for one in seen} == {""}


def test_progress_arrives_line_by_line_and_prunes() -> None:
    lines: list[dict[str, Any]] = []
    done = local.run(work("progresses", steps=4), lambda line: bool(lines.append(line)))
    assert done.state == "done" and lines == [{"step": step, "step_s": 0.01} for step in range(4)]
    pruned = local.run(
        work("progresses", steps=10_000, step_s=0.01), lambda line: line["step"] >= 3
    )
    assert pruned.state == "pruned" and "step 3" in pruned.reason and pruned.seconds < 60


def test_exit_code_of_the_rank_that_failed() -> None:
    done = local.run(work("fails", ranks=2, rank=1, code=3, says="no such file: tokens.bin\n"))
    assert done.state == "crashed" and done.result is None
    assert done.reason == "rank 1 of 2 ended with exit code 3: no such file: tokens.bin"
    assert done.stderr_tail == "no such file: tokens.bin\n"


def test_exception_is_told() -> None:
    done = local.run(work("raises", got=7))
    assert (
        done.state == "crashed"
        and done.reason
        == "rank 0 of 1 ended with exit code 1: ValueError: heads must divide, but got 7"
    )
    assert "Traceback" in done.stderr_tail


def test_success_without_a_result_is_a_crash() -> None:
    done = local.run(work("fails", code=0))
    assert done.state == "crashed" and "no readable result" in done.reason


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS", "SIGKILL"])
def test_signals(name: str) -> None:
    """SIGKILL without the kernel's count of killed processes rising is not a matter of memory."""
    done = local.run(work("signals", signal=name))
    assert done.state == "crashed" and done.reason == f"rank 0 of 1 was ended by {name}"


def test_sigkill_by_the_kernel_is_out_of_memory() -> None:
    ranks = [
        failures.Ended(0, -signal.SIGTERM, order=1),
        failures.Ended(1, -signal.SIGKILL, order=0),
    ]
    state, reason, _ = failures.failure(ranks, 4, 5)
    assert state == "oom" and "rank 1 of 2" in reason and "memory" in reason
    assert failures.failure(ranks, 4, 4)[0] == "crashed"
    assert failures.failure(ranks, None, None)[0] == "oom"


def test_hang_ends_at_the_limit_and_says_where() -> None:
    done = local.run(work("hangs", ranks=2, limit_s=4))
    assert done.state == "timeout" and 4 <= done.seconds < 30
    assert "limit of 4 s" in done.reason and "rank 0, 1 of 2" in done.reason
    assert "in hangs" in done.stderr_tail  # each rank was made to write its stack


def test_silence_is_a_hang() -> None:
    silent = Work(EVIL, {"do": "progresses", "steps": 3, "step_s": 30}, 1, 60, silence_s=4)
    done = local.run(silent)
    assert (
        done.state == "timeout" and "no progress for 4 s" in done.reason and "step 0" in done.reason
    )


def test_much_chatter_is_read_and_cut() -> None:
    done = local.run(work("chatters", megabytes=100, code=5))
    assert done.state == "crashed" and done.reason.endswith("exit code 5: the last word")
    assert len(done.stderr_tail) <= 16_384 and done.stderr_tail.endswith("the last word\n")


def test_out_of_memory_of_torch_on_the_host() -> None:
    done = local.run(work("exhausts", bytes=64 << 30))
    assert (
        done.state == "oom"
        and "asking for 64.00 GiB" in done.reason
        and "DefaultCPUAllocator" in done.reason
    )


GPU = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total"
    " capacity of 79.11 GiB of which 1.06 GiB is free. Including non-PyTorch memory, this process"
    " has 78.04 GiB memory in use.\n"
)


def test_out_of_memory_of_a_device_wins_over_the_ranks_that_lost_it() -> None:
    """The line is as torch 2.x prints it; much may follow, and peers that complain may have ended
    before.
    """
    one, other = failures.Ended(0, 1, order=0), failures.Ended(1, 1, order=1)
    failures.hear(
        one,
        b"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by"
        b" peer [127.0.0.1]:2\n",
    )
    for start in range(0, len(GPU), 37):  # in pieces
        failures.hear(other, GPU[start : start + 37].encode())
    failures.hear(other, b"more lines\n" * 10_000)
    state, reason, tail = failures.failure([one, other], 0, 0)
    assert (
        state == "oom"
        and reason.startswith("rank 1 of 2 ran out of memory, asking for 2.50 GiB: ")
        and "more lines" in tail
    )


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: out of memory",
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total"
            " capacity; 14.56 GiB already allocated)"
        ),
        "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        (
            "ncclUnhandledCudaError: Call to CUDA function failed. Last error: Cuda failure 2 'out"
            " of memory'"
        ),
        "MemoryError",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "OSError: [Errno 12] Cannot allocate memory",
    ],
)
def test_words_for_too_little_memory(line: str) -> None:
    ended = failures.Ended(0, 1)
    failures.hear(ended, f"Traceback (most recent call last):\n{line}\n".encode())
    assert failures.failure([ended], 0, 0)[0] == "oom"


@pytest.mark.parametrize(
    "line",
    [
        "memory allocated: 3 GiB",
        "the allocator keeps memory",
        "segments that grow avoid being out of memory",
    ],
)
def test_words_that_only_speak_of_memory(line: str) -> None:
    ended = failures.Ended(0, 1)
    failures.hear(ended, f"{line}\n".encode())
    assert failures.failure([ended], 0, 0)[0] == "crashed"


@pytest.mark.parametrize(
    ("line", "channel"),
    [
        (
            (
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2356,"
                " internal error"
            ),
            "NCCL",
        ),
        (
            (
                "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534]"
                " Connection closed by peer"
            ),
            "gloo",
        ),
        (
            (
                "torch.distributed.DistStoreError: wait timeout after 1000ms, keys:"
                " /default_pg/0//cpu//0"
            ),
            "rendezvous",
        ),
    ],
)
def test_errors_of_communication(line: str, channel: str) -> None:
    ended = failures.Ended(0, 1)
    failures.hear(ended, f"Traceback (most recent call last):\n{line}\n".encode())
    state, reason, _ = failures.failure([ended], 0, 0)
    assert state == "crashed" and f"failed in communication ({channel}): {line}" in reason


def test_gloo_that_loses_a_peer() -> None:
    """The rank that left is to blame, not the one that noticed."""
    done = local.run(work("loses_a_peer", ranks=2, code=9))
    assert done.state == "crashed" and done.reason.startswith("rank 1 of 2 ended with exit code 9")


def test_gloo_that_waits_in_vain() -> None:
    done = local.run(work("waits_in_vain", ranks=2))
    assert done.state == "crashed" and done.reason.startswith(
        "rank 1 of 2 failed in communication (gloo): RuntimeError: "
    )


def test_a_port_that_was_taken_is_tried_again(tmp_path: Path) -> None:
    count = tmp_path / "count"
    done = local.run(work("takes_the_port", count=str(count), times=1))
    assert done.state == "done" and done.result == {"tried": 2}
    count.unlink()
    done = local.run(work("takes_the_port", count=str(count), times=9))
    assert done.state == "crashed" and count.read_text() == "3" and "EADDRINUSE" in done.reason


@pytest.mark.parametrize("stays", [False, True])
def test_grandchildren_end_with_the_run(stays: bool, tmp_path: Path) -> None:
    """Whether the rank ends by itself or at the limit; its children have our pipe open, one left
    the session.
    """
    pids = tmp_path / "pids"
    done = local.run(work("litters", limit_s=5 if stays else 60, pids=str(pids), stays=stays))
    assert done.state == ("timeout" if stays else "done") and done.seconds < 30
    assert not any(alive(pid) for pid in json.loads(pids.read_text()))


def test_cancel() -> None:
    event = threading.Event()
    threading.Timer(0.7, event.set).start()
    done = local.run(work("hangs", ranks=2), cancel=event.is_set)
    assert (
        done == Outcome("interrupted", None, "stopped by the user", seconds=done.seconds)
        and done.seconds < 30
    )


TUNER = """
import signal
import sys
from planner.launch import local
from planner.launch.outcome import Work
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts with &, \
tests included
done = local.run(Work("tests.launch.evil", {"do": "litters", "pids": sys.argv[1], "stays": True}, \
1, 60))
print(done.state, done.reason)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_the_tuner_is_stopped(name: str, tmp_path: Path) -> None:
    """By Ctrl-C, which is an outcome; by kill -9, after which rank, grandchildren, guard and folder
    are gone all the same.
    """
    pids = tmp_path / "pids"
    tuner = subprocess.Popen(
        [sys.executable, "-c", TUNER, str(pids)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 60
    while not (pids.exists() and pids.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    children = json.loads(pids.read_text())
    assert all(alive(pid) for pid in children)
    tuner.send_signal(getattr(signal, name))
    said, _ = tuner.communicate(timeout=60)
    assert said == ("interrupted stopped by the user\n" if name == "SIGINT" else "")
    until = time.monotonic() + 30
    while carriers(os.environ["TMPDIR"]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in children)


def test_what_a_killed_tuner_and_guard_left_is_removed() -> None:
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.wait()
    names = f"{gone.pid}-77-abc", f"{os.getpid()}-{started_at(os.getpid())}-abc"
    folders = [Path(tempfile.gettempdir()) / f"ppplan-run-{name}" for name in names]
    for folder in folders:
        folder.mkdir()
    variables = {
        **os.environ,
        "PPPLAN_RUN": "x",
        "PPPLAN_PARENT": str(gone.pid),
        "PPPLAN_PARENT_STARTED": "77",
    }
    orphan = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(600)"],
        env=variables,
        start_new_session=True,
    )
    assert local.run(work("progresses", steps=0)).state == "done"
    assert [folder.exists() for folder in folders] == [False, True] and orphan.wait(
        30
    ) == -signal.SIGKILL
    folders[1].rmdir()


def test_a_pid_that_another_process_got_is_not_the_parent() -> None:
    own = os.getpid()
    assert alive(own) and alive(own, started_at(own)) and not alive(own, "1")
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.wait()
    assert not alive(gone.pid)


def test_a_rank_whose_parent_is_gone_ends_itself(tmp_path: Path) -> None:
    """Also where no guard is left to end it."""
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.wait()
    request = tmp_path / "request.json"
    request.write_text('{"do": "hangs"}')
    env = {**os.environ, "PPPLAN_PARENT": str(gone.pid), "PPPLAN_PARENT_STARTED": "1"}
    orphan = subprocess.run(
        [sys.executable, "-m", EVIL, str(request), str(tmp_path / "r")],
        cwd=ROOT,
        env=env,
        timeout=60,
    )
    assert orphan.returncode == 1
