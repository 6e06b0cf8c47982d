"""Without torch and optuna: commands that need them say so in one message, and brackets of a text
stay.
"""

from __future__ import annotations

import sys

import pytest

from planner import api
from planner.cli import code
from planner.cli.show import print_text
from planner.errors import InputError
from planner.report.text.parts import bullets


@pytest.mark.parametrize(
    ("words", "module"),
    [(["tune", "plan.yaml"], "optuna"), (["calibrate", "--out", "here.yaml"], "torch")],
)
def test_says_what_to_install(
    words: list[str],
    module: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert code(words) == 2
    said = capsys.readouterr()
    assert (
        not said.out
        and said.err.count("\n") == 1
        and f"must find {module}" in said.err
        and "pip install '.[tune]'" in said.err
    )


def test_from_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match="must find optuna"):
        api.tune("plan.yaml")


def test_brackets_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_text(bullets(["pip install 'ppplan[tune]' :x: [bold]"]))
    assert "pip install 'ppplan[tune]' :x: [bold]" in capsys.readouterr().out
