"""The command line in this process: exit code, stdout, stderr."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from planner.cli import code


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def ppplan(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*arguments: str) -> Ran:
        result = code(list(map(str, arguments)))
        captured = capsys.readouterr()
        return Ran(result, captured.out, captured.err)

    return run
