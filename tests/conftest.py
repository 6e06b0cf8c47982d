"""The command line in this process; what a test needs of the machine, as its mark; `--fast`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from xdist.scheduler import LoadFileScheduling

from planner.cli import code

MARKS = {
    "tests.judges": "judge",
    "tests.report.browser": "browser",
    "tests.launch.slurm_local": "slurm",
}
"""Modules of helpers, and the mark of every test in a file that imports from one of them."""
NOT_FAST = ("slow", "process", "judge", "browser", "slurm", "docs")
PROGRAMS = {"browser": "chromium", "slurm": "slurmctld"}
"""What a test of a mark needs installed; without it the test is skipped, under CI it fails."""
WARM = {"megatron_oracle": "megatron", "deepspeed_oracle": "ranks", "forks": "ranks"}
"""Helpers that keep a process warm, and the process: the files that name them run on one worker,
else each worker imports every version of Megatron-LM.
"""


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def ppplan(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs the command line in this process: exit code, stdout, stderr."""

    def run(*arguments: str) -> Ran:
        result = code(list(map(str, arguments)))
        captured = capsys.readouterr()
        return Ran(result, captured.out, captured.err)

    return run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast",
        action="store_true",
        help=f"Leaves out tests marked {', '.join(NOT_FAST)}: two minutes on two cores.",
    )


class ByWarmProcess(LoadFileScheduling):
    """As `--dist loadfile`, but files that share a warm process go to one worker together."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return _warm(self.config.rootpath / file) or file


@cache
def _warm(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return next((process for helper, process in WARM.items() if helper in text), "")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByWarmProcess | None:
    return ByWarmProcess(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for mark in marks_by_imports(getattr(item, "module", None)):
            item.add_marker(mark)
    long = {item.path for item in items if any(map(item.get_closest_marker, NOT_FAST))}
    # Long files first: else one worker is left with the last of them.
    items.sort(key=lambda item: item.path not in long)
    if config.getoption("--fast"):
        slow = [item for item in items if any(item.get_closest_marker(mark) for mark in NOT_FAST)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]
    for mark, program in PROGRAMS.items():
        if shutil.which(program) is None and not os.environ.get("CI"):
            for item in items:
                if item.get_closest_marker(mark):
                    item.add_marker(pytest.mark.skip(reason=f"{program} is not installed"))


@lru_cache(maxsize=1)
def marks_by_imports(module: Any) -> set[str]:
    """Marks that follow from what a file of tests imports; its tests come one after another."""
    names = set()
    for value in vars(module).values():
        names.add(str(getattr(value, "__module__", None) or getattr(value, "__name__", "")))
    return {
        mark
        for prefix, mark in MARKS.items()
        if any(name.startswith(prefix) for name in names if isinstance(name, str))
    }
