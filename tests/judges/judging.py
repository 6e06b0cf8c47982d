"""Judges that stay warm: a process that has imported another project answers case after case, in
place of an import a question.

A judge reads JSON lines and answers each with one line. At most four are kept: each holds some
hundred MB.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any

KEPT = 4


@dataclass(frozen=True)
class Judge:
    process: subprocess.Popen[str]
    errors: IO[bytes]


_WARM: dict[tuple[str, ...], Judge] = {}


def verdicts(
    words: list[str], env: dict[str, str], cases: Iterable[dict[str, Any]], mark: str = ""
) -> list[dict[str, Any]]:
    """The answers in order, each behind `mark` on its line (other lines are chatter); RuntimeError
    with its last words if it dies.
    """
    judge = _judge(words, env)
    return [_answer(judge, case, mark) for case in cases]


def _judge(words: list[str], env: dict[str, str]) -> Judge:
    key = (*words, env.get("PYTHONPATH", ""))
    judge = _WARM.pop(key, None)
    if judge is None or judge.process.poll() is not None:
        while len(_WARM) >= KEPT:
            _leave(_WARM.pop(next(iter(_WARM))))
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the judge
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env, text=True
        )
        judge = Judge(process, errors)
    _WARM[key] = judge
    return judge


def _answer(judge: Judge, case: dict[str, Any], mark: str) -> dict[str, Any]:
    assert judge.process.stdin and judge.process.stdout
    judge.process.stdin.write(json.dumps(case) + "\n")
    judge.process.stdin.flush()
    for line in judge.process.stdout:
        if line.startswith(mark + "{"):
            return dict(json.loads(line.removeprefix(mark)))
    judge.process.wait()
    judge.errors.seek(0)
    raise RuntimeError(judge.errors.read().decode(errors="replace")[-3000:])


def _leave(judge: Judge) -> None:
    """Its input ends, so it does."""
    assert judge.process.stdin and judge.process.stdout
    judge.process.stdin.close()
    judge.process.stdout.close()
    judge.process.wait()
    judge.errors.close()


@atexit.register
def _leave_all() -> None:
    for judge in _WARM.values():
        _leave(judge)
