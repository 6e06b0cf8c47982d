"""`ppplan check` on the command line: exit codes, the JSON contract, the text, wrong input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.accuracy.csvfile import read as read_rows
from tests.conftest import Ran

CASES = Path(__file__).parent.parent / "data" / "cases"
KEYS = {
    "file",
    "framework",
    "framework_version",
    "model",
    "layout",
    "values",
    "unresolved",
    "findings",
    "estimate",
    "best",
    "measured",
    "oom",
    "verdict",
}

SCRIPT = """#!/bin/bash
torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 \
--pipeline-model-parallel-size 2 --num-layers 24 \\
  --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \
--vocab-size 50304 --bf16 \\
  --micro-batch-size 1 --global-batch-size 64
"""
LINE = (
    " iteration {:8}/ 100 | elapsed time per iteration (ms): 4000.0 | global batch size:    64 | lm"
    " loss: 2.0E+00 |\n"
)


def test_json_holds_the_contract(ppplan: Callable[..., Ran]) -> None:
    words = ("--cluster", "v100-32g-sxm2", "--oom", "Tried to allocate 786.00 MiB", "--json")
    ran = ppplan("check", CASES / "megatron-lm-525/launch.sh", *words)
    said = json.loads(ran.out)
    assert ran.code == 1 and not ran.err and said.keys() >= KEYS
    assert said["values"]["micro_batch_size"] == {
        "value": 4,
        "from": "flag",
        "where": said["values"]["micro_batch_size"]["where"],
    }
    assert said["values"]["context_parallel_size"]["from"] == "default"
    assert {"severity", "rule", "message", "fix", "gain"} <= said["findings"][0].keys()
    assert (
        said["layout"]["mbs"] == 4
        and said["verdict"] == "oom"
        and said["estimate"]["fits"] is False
    )
    assert said["oom"]["matches"][0]["bytes"] == 1024 * 4 * 50304 * 4


@pytest.mark.parametrize(
    ("file", "options", "code"),
    [
        ("megatron-lm-1304/launch.sh", (), 1),
        ("bridge-3107/launch.sh", ("--cluster", "h100-sxm", "--set", "fp8_param_gather=true"), 0),
        ("starcoder-41/ds_config.json", ("--gpus", "8"), 0),
        ("starcoder-41/ds_config.json", ("--gpus", "1"), 1),
    ],
)
def test_exit_code_is_the_verdict(
    ppplan: Callable[..., Ran], file: str, options: tuple[str, ...], code: int
) -> None:
    ran = ppplan("check", CASES / file, *options)
    assert ran.code == code and ran.out and not ran.err


def test_text_says_verdict_first_and_no_line_is_wider_than_100(ppplan: Callable[..., Ran]) -> None:
    ran = ppplan("check", CASES / "megatron-lm-1304/launch.sh")
    assert ran.out.startswith("It will not run")
    assert (
        "error: layers split over stages." in ran.out
        and "fix: --decoder-last-pipeline-num-layers 6" in ran.out
    )
    assert max(map(len, ran.out.splitlines())) <= 100


def test_fix_writes_a_file_and_shows_the_difference(
    ppplan: Callable[..., Ran], tmp_path: Path
) -> None:
    out = tmp_path / "fixed.sh"
    ran = ppplan("check", CASES / "megatron-lm-1304/launch.sh", "--fix", out)
    assert "+" in ran.out and "--decoder-last-pipeline-num-layers 6" in out.read_text()
    assert ppplan("check", out).code == 0


def test_the_difference_is_a_patch(ppplan: Callable[..., Ran], tmp_path: Path) -> None:
    """Lines of any width and tabs stand as they are. The script is short enough to be one hunk: its
    lines are both files.
    """
    text = (
        (CASES / "megatron-lm-1304/launch.sh").read_text().replace("\\\n", " ")
        + "\techo "
        + "done " * 60
        + "\n"
    )
    script, out = tmp_path / "launch.sh", tmp_path / "fixed.sh"
    script.write_text(text)
    said = ppplan("check", script, "--fix", out).out
    _, hunk, *lines = said[said.index(f"+++ {script} ") :].splitlines()
    assert hunk.startswith("@@ -1,") and max(map(len, lines)) > 200
    assert [line[1:] for line in lines if line[0] in " -"] == text.splitlines()
    assert [line[1:] for line in lines if line[0] in " +"] == out.read_text().splitlines()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere.sh",), "nowhere.sh"),
        (
            (CASES / "megatron-lm-1304/launch.sh", "--cluster", "h999"),
            "cluster must be a known name",
        ),
        ((CASES / "megatron-lm-1304/launch.sh", "--model", "gpt-99"), "model must be a known name"),
        ((CASES / "megatron-lm-1304/launch.sh", "--set", "NNODES"), "NAME=VALUE"),
        ((CASES / "megatron-lm-1304/launch.sh", "--oom", "fine"), "--oom must be the message"),
        (
            (CASES / "megatron-lm-1304/launch.sh", "--fix", CASES / "megatron-lm-1304/launch.sh"),
            "another file",
        ),
    ],
)
def test_wrong_input_is_one_message(
    ppplan: Callable[..., Ran], words: tuple[object, ...], message: str
) -> None:
    ran = ppplan("check", *words)
    assert ran.code == 2 and not ran.out and message in ran.err and "Traceback" not in ran.err


def test_a_log_beside_a_script_becomes_a_row_of_validate(
    ppplan: Callable[..., Ran], tmp_path: Path
) -> None:
    """Layout and shape of the script, time of the log."""
    script, log, row = tmp_path / "launch.sh", tmp_path / "launch.log", tmp_path / "row.csv"
    script.write_text(SCRIPT)
    assert (
        ppplan("check", script, "--cluster", "h100-sxm", "--csv", row).code == 2
        and not row.exists()
    )
    log.write_text("".join(LINE.format(step) for step in range(1, 12)))
    assert ppplan("check", script, "--cluster", "h100-sxm", "--csv", row).code == 0
    read = read_rows(row).iloc[0]
    stated = {
        "hardware": "h100-sxm",
        "gpus": 8,
        "tp": 2,
        "pp": 2,
        "mbs": 1,
        "gbs_sequences": 64,
        "seq": 2048,
        "layers": 24,
        "hidden": 2048,
        "heads": 16,
        "precision": "bf16",
        "step_time_s": 4.0,
    }
    assert {name: read[name] for name in stated} == stated
    assert ppplan("validate", row).code == 0
    ran = ppplan("check", log, "--gpus", "8", "--csv", tmp_path / "other.csv")
    assert ran.code == 2 and "must have the layout" in ran.err
