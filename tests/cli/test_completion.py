"""What a shell completes, asked as bash, zsh and fish ask; and the example of every --help, read by
the command's own parser.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
import typer

from planner.cli import COMMANDS, app
from planner.cli.complete import cluster, framework, launcher, model, precision, stack

CASES = [
    ("ppplan co", {"compare"}),
    ("ppplan recommend --model mixtral", {"mixtral-8x22b", "mixtral-8x7b"}),
    ("ppplan compare --cluster gb", {"gb200-nvl72", "gb300-nvl72"}),
    ("ppplan simulate --schedule al", {"all"}),
    ("ppplan explain --schedule zb-", {"zb-h1", "zb-h2", "zb-1p", "zb-2p"}),
    ("ppplan schedules dual", {"dualpipe", "dualpipev"}),
]


@pytest.mark.parametrize(("line", "names"), CASES)
def test_bash(line: str, names: set[str]) -> None:
    asked = {
        "_PPPLAN_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    assert set(said(asked).split()) == names


def test_zsh_and_fish() -> None:
    line = {
        "_TYPER_COMPLETE_ARGS": "ppplan models gpt-oss",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    assert re.findall(r'"(gpt-[^"]*)"', said({"_PPPLAN_COMPLETE": "complete_zsh", **line})) == [
        "gpt-oss-120b",
        "gpt-oss-20b",
    ]
    assert said({"_PPPLAN_COMPLETE": "complete_fish", **line}).split() == [
        "gpt-oss-120b",
        "gpt-oss-20b",
    ]


def test_other_names() -> None:
    assert stack("megatron-f") == ["megatron-fsdp2"] and framework("") == [
        "megatron",
        "deepspeed",
        "torch",
    ]
    assert (
        launcher("sl") == ["slurm"]
        and precision("mx") == ["mxfp8"]
        and cluster("h800") == ["h800-sxm"]
        and model("no") == []
    )


def said(environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "planner"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_of_help_is_read_by_the_parser(command: str) -> None:
    text = " ".join(
        (getattr(import_module(f"planner.cli.{command}"), command).__doc__ or "").split()
    )
    examples = re.findall(r"ppplan [^:,]+", text.split("Example: ", 1)[1])
    assert examples[0].split()[1] == command
    group: Any = typer.main.get_command(app())
    for example in examples:
        words = shlex.split(example)[1:]
        group.commands[words[0]].make_context(words[0], words[1:])
