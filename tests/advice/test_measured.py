"""A log beside the prediction: figures of the lines, errors by hand arithmetic, memory that ran
out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import api
from planner.advice.check import check_reading
from planner.advice.measured import log_beside, log_of
from planner.errors import InputError
from planner.intake.logs import read_log
from planner.report.json.check import document
from planner.report.text.check import _verdict
from tests.advice.by_hand import GPT, megatron

FLAGS = (
    GPT + "--bf16 --use-distributed-optimizer --micro-batch-size 1 --global-batch-size 64"
    " --tensor-model-parallel-size 8"
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB. GPU 0 has a total"
    " capacity of 79.11 GiB"
)


def lines(milliseconds: float, count: int = 12) -> str:
    return "".join(
        f" iteration {step:8}/ 100 | consumed samples: {step * 64} | elapsed time per iteration"
        f" (ms): {milliseconds} | learning rate: 1.0E-04 | global batch size:    64 | lm loss:"
        " 2.0E+00 | number of nan iterations: 0 |\n"
        for step in range(1, count + 1)
    )


def log(path: Path, text: str) -> read_log.Log:
    path.write_text(text)
    return read_log.read(path)


def test_step_time_beside_the_prediction(tmp_path: Path) -> None:
    answer = check_reading(megatron(FLAGS), "h100-sxm", log=log(tmp_path / "a.log", lines(8000.0)))
    assert answer.measured is not None and answer.estimate is not None
    assert answer.measured["step_s"] == pytest.approx(8.0)
    assert answer.measured["error"]["step_s"] == pytest.approx(answer.estimate.step_s / 8.0 - 1)
    assert answer.measured["row"]["step_time_s"] == pytest.approx(8.0)


def test_a_step_far_from_the_prediction_is_a_warning(tmp_path: Path) -> None:
    far, near = (
        check_reading(megatron(FLAGS), "h100-sxm", log=log(tmp_path / "a.log", lines(ms)))
        for ms in (60000.0, 0.0)
    )
    assert [one.severity for one in far.findings if one.rule == "measured"] == ["warning"]
    assert [one for one in near.findings if one.rule == "measured"] == []


def test_memory_that_ran_out_is_the_verdict(tmp_path: Path) -> None:
    answer = check_reading(
        megatron(FLAGS), "h100-sxm", log=log(tmp_path / "a.log", lines(8000.0) + OOM + "\n")
    )
    assert answer.verdict == "oom" and answer.oom is not None
    assert answer.oom["requested_gib"] == pytest.approx(786 / 1024)


def test_what_is_a_log_and_what_lies_beside_a_script(tmp_path: Path) -> None:
    script = tmp_path / "launch.sh"
    script.write_text("#!/bin/bash\ntorchrun pretrain_gpt.py\n")
    assert log_of(script) is None and log_beside(script) is None
    (tmp_path / "launch.log").write_text(lines(500.0))
    found = log_beside(script)
    assert found is not None and found.step_s == pytest.approx(0.5)
    told = log_of(tmp_path / "launch.log")
    assert told is not None and told.reading.framework == "megatron"


def test_a_log_without_arguments_tells_its_batch_and_says_what_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(lines(8000.0))
    answer = api.check(tmp_path / "train.log", cluster="h100-sxm", gpus=8, model="llama3-8b")
    assert answer.recipe.global_batch_size == 64
    assert not {"fp32 training", "one micro-batch a step"} & {one.rule for one in answer.findings}
    assert any("prints no arguments" in note for note in answer.launch.reading.notes)


def test_a_log_without_arguments_predicts_nothing_of_a_layout_that_nobody_stated(
    tmp_path: Path,
) -> None:
    """8B parameters with 18 bytes each are 144 GB on every GPU of pure data parallelism: steps that
    ran prove another layout.
    """
    (tmp_path / "train.log").write_text(lines(8000.0))
    words = {"cluster": "h100-sxm", "gpus": 8, "model": "llama3-8b"}
    answer = api.check(tmp_path / "train.log", **words)
    assert answer.verdict == "fits" and answer.estimate is None and answer.best is None
    assert [(one.severity, one.rule) for one in answer.findings] == [
        ("warning", "layout not known")
    ]
    assert answer.measured is not None and answer.measured["step_s"] == pytest.approx(8.0)
    assert document(answer)["layout"] is None and "GPUs, layout not known" in str(_verdict(answer))
    stated = api.check(tmp_path / "train.log", **words, set=["tensor_model_parallel_size=1"])
    assert stated.verdict == "oom" and stated.estimate is not None
    with pytest.raises(InputError, match="log without arguments"):
        api.check(tmp_path / "train.log", **words, fix=tmp_path / "fixed.sh")


def test_memory_that_ran_out_in_a_log_without_arguments_is_evidence(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(lines(8000.0) + OOM + "\n")
    answer = api.check(tmp_path / "train.log", cluster="h100-sxm", gpus=8, model="llama3-8b")
    assert answer.verdict == "oom" and str(_verdict(answer)).startswith("It ran out of memory: ")
    assert [one.rule for one in answer.findings] == [
        "the log ran out of memory",
        "layout not known",
    ]
