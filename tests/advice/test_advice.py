"""What is advised holds: it is legal by the same rules, fits, and gains as much as is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.advice.check import changes_to_fit, check_reading, fixed, pairs
from planner.advice.findings import Checked, Way
from planner.errors import InputError
from planner.intake.frameworks.detect import read as read_document
from planner.intake.reading import Reading, Value
from tests.advice.by_hand import GPT, LLAMA_70B, deepspeed, megatron

TIGHT = (
    LLAMA_70B + "--bf16 --micro-batch-size 1 --global-batch-size 32 --use-distributed-optimizer"
    " --tensor-model-parallel-size 8 --sequence-parallel"
)


def applied(reading: Reading, way: Way) -> Reading:
    """The reading with a way out taken."""
    values = {
        name: one for name, one in reading.values.items() if way.values.get(name, one) is not None
    }
    values |= {
        name: Value(value, "flag", "changed")
        for name, value in way.values.items()
        if value is not None
    }
    return Reading(reading.file, reading.kind, reading.framework, None, values)


def again(reading: Reading, way: Way, cluster: str) -> Checked:
    gpus = way.values.get("launch.gpus")
    return check_reading(applied(reading, way), cluster, gpus)


def test_every_way_to_fit_fits() -> None:
    reading = megatron(TIGHT, 8)
    answer = check_reading(reading, "h100-sxm")
    assert answer.verdict == "oom"
    said = next(one for one in answer.findings if one.rule == "memory fits the GPU")
    assert len(said.ways) >= 2
    for way in said.ways:
        assert again(reading, way, "h100-sxm").verdict == "fits", way


def test_every_way_to_be_legal_is_legal() -> None:
    reading = megatron(
        GPT.replace("32 --hidden", "30 --hidden")
        + "--bf16 --micro-batch-size 1 --global-batch-size 16 --pipeline-model-parallel-size 4",
        4,
    )
    said = next(
        one for one in check_reading(reading, "h100-sxm").findings if one.severity == "error"
    )
    for way in said.ways:
        assert again(reading, way, "h100-sxm").verdict != "invalid", way


def test_gains_are_what_the_estimate_says() -> None:
    flags = (
        "--bf16 --use-distributed-optimizer --micro-batch-size 1 --global-batch-size 64"
        " --tensor-model-parallel-size 8"
    )
    reading = megatron(GPT + flags)
    answer = check_reading(reading, "h100-sxm")
    faster = [one for one in answer.findings if one.rule == "faster"]
    assert 1 <= len(faster) <= 3 and answer.estimate is not None
    for one in faster:
        after = again(reading, one.ways[0], "h100-sxm")
        assert after.verdict == "fits" and after.estimate is not None and one.gain is not None
        assert answer.estimate.step_s - after.estimate.step_s == pytest.approx(
            one.gain["step_s_saved"], rel=0.05
        )


def test_the_best_plan_is_no_slower() -> None:
    answer = check_reading(
        megatron(
            TIGHT
            + " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            32,
        ),
        "h100-sxm",
    )
    assert answer.best is not None and answer.estimate is not None
    assert answer.best.estimate.step_s < answer.estimate.step_s and answer.best.estimate.fits


def test_more_gpus_where_nothing_else_is_enough() -> None:
    """epfLLM#6: 41.3e9 parameters, 18 bytes each, over 8 GPUs of 80 GB are 86.5 GiB; 16 fit."""
    flags = (
        "--tensor-model-parallel-size 8 --num-layers 60 --hidden-size 8192 --ffn-hidden-size 32768"
        " --num-attention-heads 128 --group-query-attention --num-query-groups 8 --kv-channels 64"
        " --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size"
        " 8 --bf16 --vocab-size 65024 --disable-bias-linear --use-rotary-position-embeddings"
        " --sequence-parallel"
    )
    said = next(
        one
        for one in check_reading(megatron(flags, 8), "a100-80g-sxm").findings
        if one.rule == "memory fits the GPU"
    )
    assert any(way.values.get("launch.gpus") == 16 for way in said.ways)


def test_a_configuration_is_written_again(tmp_path: Path) -> None:
    config = {
        "train_batch_size": 256,
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 1,
        "zero_optimization": {"stage": 3},
        "fp16": {"enabled": True},
    }
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(config, indent=2))
    answer = fixed(check_reading(read_document(path), "a100-80g-sxm", 8), tmp_path / "fixed.json")
    assert json.loads((tmp_path / "fixed.json").read_text()) == {
        **config,
        "gradient_accumulation_steps": 4,
    }
    assert json.loads(path.read_text()) == config
    assert (
        '+  "gradient_accumulation_steps": 4,' in answer.diff
        and '-  "gradient_accumulation_steps": 1,' in answer.diff
    )
    assert (
        check_reading(read_document(tmp_path / "fixed.json"), "a100-80g-sxm", 8).verdict == "fits"
    )


def test_nothing_to_fix_and_the_file_itself_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1}))
    with pytest.raises(InputError, match="must have something to change"):
        fixed(check_reading(read_document(path), gpus=8), tmp_path / "out.json")
    path.write_text(
        json.dumps(
            {
                "train_batch_size": 9,
                "train_micro_batch_size_per_gpu": 2,
                "gradient_accumulation_steps": 1,
            }
        )
    )
    with pytest.raises(InputError, match="another file"):
        fixed(check_reading(read_document(path), gpus=8), path)


@pytest.mark.parametrize("text", ["NNODES", "=4", ""])
def test_set_reads_name_and_value(text: str) -> None:
    with pytest.raises(InputError, match="NAME=VALUE"):
        pairs([text])


def test_what_is_not_known_leaves_the_rest_checked() -> None:
    config: dict[str, Any] = {
        "train_batch_size": 256,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 8,
    }
    fits, broken = (check_reading(deepspeed(config), "a100-80g-sxm", gpus) for gpus in (8, 1))
    assert (fits.verdict, broken.verdict) == ("fits", "invalid")
    assert fits.estimate is None and any(
        one.rule == "memory and time not known" for one in fits.findings
    )


def test_ways_out_of_rules_that_one_knob_breaks_stand_once() -> None:
    """tp 3 divides neither 8 GPUs nor 32 heads nor 16,384 columns; tp 2 mends all, and is listed
    with the first.
    """
    flags = (
        GPT + "--bf16 --tensor-model-parallel-size 3 --micro-batch-size 1 --global-batch-size 64"
    )
    errors = [
        one
        for one in check_reading(megatron(flags), "h100-sxm").findings
        if one.severity == "error"
    ]
    rules = [one.rule for one in errors]
    assert rules[0] == "gpus are tp * pp * dp * cp" and {
        "heads split over tp",
        "ffn splits over tp",
    } <= set(rules)
    assert ["Legal would be" in one.message for one in errors] == [True] + [False] * (
        len(errors) - 1
    )
    assert all(one.message.endswith(f"those of: {rules[0]}") for one in errors[1:])
    assert all(
        {"tensor_model_parallel_size": 2} in [way.values for way in one.ways] for one in errors
    )


@pytest.mark.parametrize(
    ("precision", "cluster"),
    [
        ("--bf16 --fp8-format hybrid", "a100-80g-sxm"),
        ("--bf16", "v100-16g-pcie"),
        ("--bf16 --fp4-format e2m1", "h100-sxm"),
    ],
)
def test_an_illegal_layout_in_a_precision_that_the_gpu_lacks(precision: str, cluster: str) -> None:
    """Only the rules judge: 6 of 8 GPUs, 32 layers on 3 stages. The ways out have no figures, and
    one of them keeps both rules.
    """
    flags = (
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 3 --micro-batch-size 1"
        f" --global-batch-size 64 {precision}"
    )
    answer = check_reading(megatron(GPT + flags), cluster)
    by_rule = {finding.rule: finding for finding in answer.findings}
    assert answer.verdict == "invalid"
    assert "memory and time not known" in by_rule and "GPU runs the precision" in by_rule
    ways = by_rule["gpus are tp * pp * dp * cp"].ways
    assert ways[0].values == {"pipeline_model_parallel_size": 1}
    assert not any(way.step_s for way in ways)
    assert changes_to_fit(answer)["pipeline_model_parallel_size"] == 1
    assert "decoder_last_pipeline_num_layers" not in changes_to_fit(answer)
