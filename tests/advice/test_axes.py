"""Software as an axis: rows of `compare` and points of a sweep are what the words give alone."""

from __future__ import annotations

import pytest
import typer

from planner import api
from planner.cli.compare import _switches
from planner.errors import InputError
from planner.report.text.explain import switch_rows
from planner.specs.sweep import at, sweeps

EXPERTS = {"model": "qwen3-30b-a3b", "gpus": 32, "cluster": "h100-sxm"}
LAYOUT = {"model": "llama3-8b", "gpus": 8, "cluster": "h100-sxm", "dp": 8, "mbs": 1, "zero": 1}


def test_a_switch_is_swept() -> None:
    over = sweeps(["cuda_graph=none,attn"])
    assert over == {"cuda_graph": ["none", "attn"]}
    rows = api.sweep(over=over, **LAYOUT, switch=("expandable_segments=off",)).rows
    for row in rows:
        words = (f"cuda_graph={row.words['cuda_graph']}", "expandable_segments=off")
        alone = api.explain(**LAYOUT, switch=words)
        assert row.estimate is not None
        assert row.estimate.step_s == alone.estimate.step_s
        assert row.estimate.memory_bytes == alone.estimate.memory_bytes
    assert rows[0].estimate.memory_bytes < rows[1].estimate.memory_bytes  # type: ignore[union-attr]


def test_a_version_is_swept() -> None:
    """Megatron-LM refuses Transformer Engine's loss since 0.19, so that NeMo's plans lose it."""
    rows = api.sweep(over={"framework_version": ["0.17", "0.19"]}, **LAYOUT, stack="nemo").rows
    early, late = (row.estimate.time.head_s for row in rows if row.estimate)
    assert early < late


def test_rows_are_what_recommend_answers() -> None:
    over = {"moe_dispatcher": ["alltoall", "hybridep"]}
    rows = api.compare(over=over, **EXPERTS, switch=("moe_permute_fusion=off",)).rows
    assert [row.name for row in rows] == ["moe_dispatcher alltoall", "moe_dispatcher hybridep"]
    for row in rows:
        words = (f"moe_dispatcher={row.words['moe_dispatcher']}", "moe_permute_fusion=off")
        alone = api.recommend(**EXPERTS, switch=words, top=1)
        assert alone.best is not None and row.layout == alone.best.layout
        assert row.estimate is not None
        assert row.estimate.step_s == alone.best.estimate.step_s
    assert rows[0].estimate.step_s > rows[1].estimate.step_s  # type: ignore[union-attr]


def test_a_version_without_the_switch_is_a_row_without_a_plan() -> None:
    rows = api.compare(
        over={"framework_version": ["0.15", "0.19"]}, **EXPERTS, switch=("moe_dispatcher=hybridep",)
    ).rows
    assert "megatron 0.15" in rows[0].fault and rows[0].layout is None
    assert rows[1].name == "version 0.19" and rows[1].layout is not None


def test_what_is_stated_holds_under_every_software() -> None:
    asked = api.question(**EXPERTS, switch=("moe_permute_fusion=off",), framework_version="0.17")
    question = at(asked, {"stack": "nemo", "cuda_graph": "attn"})
    assert question.switch == ("moe_permute_fusion=off", "cuda_graph=attn")
    assert (question.stack, question.framework_version) == ("nemo", "0.17")


def test_switches_of_the_line() -> None:
    options = ["cuda_graph=none,attn", "moe_dispatcher=deepep", "cuda-graph=layers"]
    assert _switches(options) == {
        "cuda_graph": ["none", "attn", "layers"],
        "moe_dispatcher": ["deepep"],
    }
    for wrong in ("none", "cuda_grph=none"):
        with pytest.raises((InputError, typer.BadParameter)):
            _switches([wrong])
    with pytest.raises(InputError, match="swept and cuda_graph=attn is stated too"):
        api.compare(over={"cuda_graph": ["none", "attn"]}, **EXPERTS, switch=("cuda_graph=attn",))


def test_explain_says_what_a_switch_is_worth() -> None:
    answer = api.explain(**LAYOUT)
    rows = {name: (value, worth) for name, value, worth in switch_rows(answer)}
    off = api.explain(**LAYOUT, switch=("overlap_grad_reduce=off",))
    saved = float(off.estimate.step_s - answer.estimate.step_s)
    assert rows["overlap_grad_reduce"] == ("on", f"saves {saved:.2g} s")
    assert "moe_dispatcher" not in rows and "tp_comm_overlap" not in rows


def test_software_by_version_is_an_axis() -> None:
    """NeMo's loss again, by the name of the software below it."""
    over = {"software": ["megatron-core@0.17", "megatron-core@0.19"]}
    rows = api.compare(over=over, model="llama3-8b", gpus=8, cluster="h100-sxm", stack="nemo").rows
    assert [row.name for row in rows] == over["software"]
    early, late = (row.recipe for row in rows)
    assert early is not None and late is not None
    assert early.software.name == late.software.name == "nemo"
    assert early.software.traffic.loss_bytes < late.software.traffic.loss_bytes
