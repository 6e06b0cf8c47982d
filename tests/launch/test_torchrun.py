"""One run over two "hosts": this one, and a follower that sees the same folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.launch import torchrun
from planner.launch.outcome import Work
from planner.launch.rank_environment import free_port
from planner.launch.remote_settings import RemoteSettings

pytestmark = pytest.mark.process


@pytest.fixture
def two(tmp_path: Path) -> Iterator[RemoteSettings]:
    """The settings of a run over two hosts of a rank each, with the second one following."""
    over = threading.Event()
    follower = threading.Thread(target=torchrun.follow, args=(tmp_path, over.is_set))
    follower.start()
    yield RemoteSettings(tmp_path, ranks_per_node=1, endpoint=f"127.0.0.1:{free_port()}")
    over.set()
    follower.join(timeout=60)
    assert not follower.is_alive() and not list(tmp_path.iterdir())


def work(do: str, ranks: int = 2, limit_s: float = 90, **changes: Any) -> Work:
    return Work("tests.launch.evil", {"do": do, **changes}, ranks, limit_s)


def test_ranks_of_two_hosts_make_one_world(two: RemoteSettings) -> None:
    done = torchrun.run(work("works"), settings=two)
    assert done.state == "done" and done.result is not None, done
    seen = done.result["seen"]
    assert [
        (one["RANK"], one["LOCAL_RANK"], one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"]) for one in seen
    ] == [("0", "0", "2", "1"), ("1", "0", "2", "1")]
    assert len({(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in seen}) == 1


def test_a_hang_ends_on_both_hosts(two: RemoteSettings) -> None:
    """Of the follower none of it is left either: the folder's fixture waits for it."""
    done = torchrun.run(work("hangs", limit_s=6), settings=two)
    assert done.state == "timeout" and "limit of 6 s" in done.reason


def test_one_host_alone(tmp_path: Path) -> None:
    done = torchrun.run(
        work("fails", ranks=1, code=3, says="no tokens\n"), settings=RemoteSettings(tmp_path)
    )
    assert (
        done.state == "crashed"
        and done.reason.startswith("torchrun ended with exit code 1")
        and "no tokens" in done.stderr_tail
    )
    assert not list(tmp_path.iterdir())


def test_where_to_meet_must_be_said(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"needs 2 hosts for 16 ranks: set PPPLAN_ENDPOINT, HOST:PORT"
    ):
        torchrun.run(work("works", ranks=16), settings=RemoteSettings(tmp_path))
