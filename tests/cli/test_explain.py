"""`ppplan explain`, `emit` and the lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.references import REFERENCES

GPT3 = (
    "explain",
    "--model",
    "gpt3-175b",
    "--gpus",
    "64",
    "--cluster",
    "a100-80g-sxm",
    "--seq-length",
    "2048",
    "--tp",
    "8",
    "--pp",
    "8",
    "--gbs",
    "64",
    "--stack",
    "megatron-2022",
    "--attention",
    "unfused",
    "--recompute",
    "selective",
)


def test_defaults_of_a_layout(ppplan) -> None:
    layout = json.loads(ppplan(*GPT3, "--json").out)["layout"]
    assert {
        k: layout[k]
        for k in (
            "tp",
            "pp",
            "dp",
            "cp",
            "v",
            "mbs",
            "m",
            "gbs",
            "sp",
            "zero",
            "schedule",
            "recompute_modules",
        )
    } == {
        "tp": 8,
        "pp": 8,
        "dp": 1,
        "cp": 1,
        "v": 1,
        "mbs": 1,
        "m": 64,
        "gbs": 64,
        "sp": True,
        "zero": 0,
        "schedule": "1f1b",
        "recompute_modules": ["core_attn"],
    }
    assert (
        json.loads(ppplan(*GPT3, "--json", "--no-sp", "--v", "3").out)["layout"]["schedule"]
        == "interleaved"
    )
    old = json.loads(ppplan(*GPT3[:-6], "--stack", "megatron-2021", "--json").out)["layout"]
    assert not old["sp"]


def test_in_flight_and_transfers_are_those_of_the_field(ppplan) -> None:
    """Activations of 1F1B are min(m, p) of a stage's, of GPipe m; a tensor is mbs s h 2 bytes / tp
    with sp.
    """
    answer = json.loads(ppplan(*GPT3, "--json").out)
    schedules = {one["schedule"]: one for one in answer["schedules"]["options"] if one["v"] == 1}
    held = {name: one["activations_gib"] for name, one in schedules.items()}
    assert held["gpipe"] == pytest.approx(held["1f1b"] * 64 / 8, rel=1e-6)
    assert (schedules["1f1b"]["in_flight"], schedules["gpipe"]["in_flight"]) == (8, 64)
    assert max(stage["in_flight"] for stage in answer["estimate"]["stages"]) == 8
    p2p = answer["estimate"]["p2p"]
    assert p2p["bytes_per_tensor"] == 2048 * 12288 * 2 / 8
    assert p2p["tensors_per_step"] == 2 * 64 * 7
    assert sum(stage["layers"] for stage in answer["estimate"]["stages"]) == 96


def test_text_names_terms_formulas_and_sources(ppplan) -> None:
    ran = ppplan(*GPT3)
    assert ran.code == 0 and max(map(len, ran.out.splitlines())) <= 100
    for words in (
        "gemm",
        "bubble",
        "tp_comm",
        "weights",
        "optimizer",
        "in flight",
        "min(64, 8) = 8",
        "Assumes:",
        "Source:",
    ):
        assert words in ran.out
    assert REFERENCES["korthikanti2022"][:40] in ran.out
    assert "Assumes:" not in ppplan(*GPT3, "--no-formulas").out


def test_breaches_are_named(ppplan) -> None:
    ran = ppplan(
        "explain",
        "--model",
        "llama3-70b",
        "--gpus",
        "24",
        "--tp",
        "8",
        "--pp",
        "3",
        "--cluster",
        "h100-sxm",
        "--json",
    )
    answer = json.loads(ran.out)
    assert any("80" in one["message"] and "3" in one["message"] for one in answer["breaches"])


def test_sweep_is_the_table_of_the_field(ppplan) -> None:
    """m and v at fixed tp and pp: with equal stages the bubble is (p-1)/(v m + p-1); v divides it,
    m shrinks it.
    """
    sweep = (
        "explain",
        "--model",
        "llama3-70b",
        "--gpus",
        "64",
        "--cluster",
        "h100-sxm",
        "--tp",
        "8",
        "--pp",
        "8",
        "--sweep",
        "v=1,2,5",
        "--sweep",
        "m=8,32,64",
    )
    rows = json.loads(ppplan(*sweep, "--json").out)["sweep"]
    assert [(row["layout"]["v"], row["layout"]["m"]) for row in rows] == [
        (v, m) for v in (1, 2, 5) for m in (8, 32, 64)
    ]
    for row in rows:
        v, m = row["layout"]["v"], row["layout"]["m"]
        assert row["layout"]["gbs"] == m and row["breaches"] == []
        assert row["estimate"]["bubble_share"] == pytest.approx(7 / (v * m + 7), abs=0.06)
    text = ppplan(*sweep)
    assert (
        text.code == 0
        and "bubble" in text.out
        and "MFU" in text.out
        and max(map(len, text.out.splitlines())) <= 100
    )


def test_other_schedules_are_named_within_the_width(ppplan) -> None:
    ran = ppplan(
        "explain",
        "--model",
        "llama3-70b",
        "--gpus",
        "32",
        "--cluster",
        "h100-sxm",
        "--tp",
        "8",
        "--pp",
        "4",
        "--schedule",
        "zbv",
        "--v",
        "2",
        "--no-formulas",
    )
    assert (
        ran.code == 0
        and "zbv" in ran.out
        and "…" not in ran.out
        and max(map(len, ran.out.splitlines())) <= 100
    )


def test_sweep_keeps_points_that_state_no_layout(ppplan) -> None:
    ran = ppplan(
        "explain",
        "--model",
        "llama3-8b",
        "--gpus",
        "8",
        "--cluster",
        "h100-sxm",
        "--sweep",
        "tp=1,3,8",
        "--json",
    )
    rows = json.loads(ran.out)["sweep"]
    assert [row["estimate"] is None for row in rows] == [False, True, False]
    assert "multiple of tp x pp x cp" in rows[1]["breaches"][0]["message"]


def test_plan_reads_back_the_same(ppplan, tmp_path: Path) -> None:
    question = (
        "--model",
        "llama2-13b",
        "--gpus",
        "16",
        "--cluster",
        "a100-80g-sxm",
        "--gbs",
        "128",
    )
    found = json.loads(ppplan("recommend", *question, "--json", "--out", tmp_path / "plan").out)[
        "plans"
    ][0]
    again = json.loads(ppplan("explain", tmp_path / "plan" / "plan.yaml", "--json").out)
    assert again["layout"] == found["layout"] and again["breaches"] == []
    assert again["estimate"]["step_s"] == pytest.approx(found["estimate"]["step_s"], rel=1e-12)
    other = json.loads(
        ppplan("explain", tmp_path / "plan" / "plan.yaml", "--mbs", "2", "--json").out
    )
    assert other["layout"]["mbs"] == 2 and other["layout"]["gbs"] == 128


def test_emit_prints_or_writes(ppplan, tmp_path: Path) -> None:
    ppplan(
        "recommend",
        "--model",
        "llama3-8b",
        "--gpus",
        "8",
        "--cluster",
        "h100-sxm",
        "--out",
        tmp_path,
    )
    plan = tmp_path / "plan.yaml"
    printed = ppplan("emit", plan)
    assert printed.code == 0 and printed.out == (tmp_path / "launch.sh").read_text()
    written = json.loads(
        ppplan("emit", plan, "--launcher", "slurm", "--out", tmp_path / "slurm", "--json").out
    )
    assert [Path(name).is_file() for name in written["files"]] == [True] and written[
        "script_needed"
    ] is None
    assert "#SBATCH" in Path(written["files"][0]).read_text()


def test_emit_refuses_what_the_framework_cannot_run(ppplan, tmp_path: Path) -> None:
    ppplan(
        "recommend",
        "--model",
        "llama3-70b",
        "--gpus",
        "32",
        "--cluster",
        "h100-sxm",
        "--out",
        tmp_path,
    )
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        plan.read_text()
        .replace("  sp: true", "  sp: true\n  group: 3", 1)
        .replace("  group: 0\n", "")
    )
    ran = ppplan("emit", plan)
    assert ran.code == 2 and "group" in ran.err and not ran.out


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("models", "llama3-70b"),
        ("clusters", "h100-sxm"),
        ("schedules", "1f1b"),
        ("stacks", "megatron"),
    ],
)
def test_lists(ppplan, command: str, name: str) -> None:
    names = {one["name"] for one in json.loads(ppplan(command, "--json").out)[command]}
    assert name in names
    text = ppplan(command)
    assert all(name in text.out for name in names) and max(map(len, text.out.splitlines())) <= 100
    one = json.loads(ppplan(command, name, "--json").out)
    assert one["name"] == name
    assert name in ppplan(command, name).out
    assert ppplan(command, name + "x").code == 2


def test_a_model_says_its_parameters_and_source(ppplan) -> None:
    """70,553,706,496 parameters: the checkpoint's own count (Hugging Face safetensors of
    meta-llama/Meta-Llama-3-70B).
    """
    one = json.loads(ppplan("models", "llama3-70b", "--json").out)
    assert one["parameters"] == 70_553_706_496 and one["source"]
