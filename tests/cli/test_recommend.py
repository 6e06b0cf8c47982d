"""`ppplan recommend`: the contract of its JSON, its text, its files, its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from math import prod
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow


QUESTION = ("recommend", "--model", "llama3-70b", "--gpus", "32", "--cluster", "h100-sxm")
ESTIMATE = {
    "step_s",
    "step_s_low",
    "step_s_high",
    "tokens_per_s_per_gpu",
    "model_tflops_per_gpu",
    "mfu",
    "mfu_full_attention",
    "bubble_share",
    "memory_gib",
    "memory_allocated_gib",
    "memory_reserved_gib",
    "memory_limit_gib",
    "fits",
    "oom_probability",
    "time",
    "memory",
    "p2p",
    "stages",
    "assumed",
}
LAYOUT = {
    "tp",
    "pp",
    "dp",
    "cp",
    "ep",
    "etp",
    "v",
    "mbs",
    "m",
    "gbs",
    "sp",
    "zero",
    "schedule",
    "recompute",
    "recompute_layers",
    "recompute_modules",
}


def test_json_holds_the_contract(ppplan) -> None:
    ran = ppplan(*QUESTION, "--json", "--top", "3")
    assert (ran.code, ran.err) == (0, "")
    answer = json.loads(ran.out)
    assert {
        "model",
        "cluster",
        "gpus",
        "seq_length",
        "global_batch_size",
        "precision",
        "framework",
        "framework_version",
        "stack",
    } <= answer["question"].keys()
    assert (
        answer["question"]["gpus"],
        answer["question"]["seq_length"],
        answer["question"]["global_batch_size"],
    ) == (32, 8192, 512)
    searched = answer["search"]
    ruled_out = sum(searched["removed"].values()) + searched["too_large"] + searched["slower"]
    assert searched["covered"] == ruled_out + searched["computed"] > 1_000_000
    assert searched["computed"] >= searched["simulated"] >= 3 and searched["proved"]
    assert answer["nearest"] is None and answer["min_gpus"] is None and answer["files"] == []
    assert [plan["rank"] for plan in answer["plans"]] == [1, 2, 3]


def test_json_adds_up(ppplan) -> None:
    plans = json.loads(ppplan(*QUESTION, "--json").out)["plans"]
    for plan in plans:
        layout, said = plan["layout"], plan["estimate"]
        assert layout.keys() >= LAYOUT and said.keys() >= ESTIMATE
        assert prod(layout[name] for name in ("tp", "pp", "dp", "cp")) == 32
        assert prod(layout[name] for name in ("dp", "mbs", "m")) == layout["gbs"] == 512
        assert sum(said["time"].values()) == pytest.approx(said["step_s"], rel=1e-9)
        assert sum(said["memory"].values()) == pytest.approx(said["memory_gib"], rel=1e-9)
        assert said["step_s_low"] <= said["step_s"] <= said["step_s_high"]
        assert (
            said["fits"]
            and said["oom_probability"] < 0.1
            and said["memory_gib"] < said["memory_limit_gib"]
        )
        assert said["tokens_per_s_per_gpu"] == pytest.approx(
            512 * 8192 / said["step_s"] / 32, rel=1e-9
        )
        assert sum(stage["layers"] for stage in said["stages"]) == 80
        assert plan["why"]
    best, *others = [plan["estimate"]["step_s"] for plan in plans]
    assert best <= min(others) * 1.02


def test_text_shows_the_arithmetic_on_100_columns(ppplan) -> None:
    ran = ppplan(*QUESTION)
    assert ran.code == 0 and "32 = tp x pp x dp" in ran.out and "512 = dp x mbs x m" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100
    assert "…" not in ran.out
    assert "Why plan 1" in ran.out and "Assumed:" in ran.out and "cannot fit" in ran.out


def test_text_with_context_parallelism_keeps_to_the_width(ppplan) -> None:
    ran = ppplan(
        "recommend",
        "--model",
        "llama3-8b",
        "--gpus",
        "16384",
        "--cluster",
        "h100-sxm",
        "--cp",
        "2",
        "--gbs",
        "8192",
    )
    assert ran.code == 0 and "16,384 = tp*pp*dp*cp" in ran.out and "8,192 = dp*mbs*m" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100 and "…" not in ran.out


@pytest.mark.parametrize(
    ("options", "holds"),
    [
        (("--tp", "4"), lambda layout: layout["tp"] == 4),
        (("--pp", "1..2"), lambda layout: layout["pp"] <= 2),
        (("--no-recompute",), lambda layout: layout["recompute"] == "none"),
        (("--recompute", "full"), lambda layout: layout["recompute"] == "full"),
        (("--schedule", "1f1b"), lambda layout: layout["schedule"] == "1f1b" and layout["v"] == 1),
        (("--mbs", "2", "--dp", "2"), lambda layout: (layout["mbs"], layout["dp"]) == (2, 2)),
    ],
)
def test_knobs_are_fixed_and_bounded(ppplan, options, holds) -> None:
    ran = ppplan(*QUESTION, "--json", *options)
    plans = json.loads(ran.out)["plans"]
    assert plans and all(holds(plan["layout"]) for plan in plans)


def test_less_memory_is_never_exceeded(ppplan) -> None:
    answer = json.loads(ppplan(*QUESTION, "--json", "--max-memory-gib", "60").out)
    assert answer["plans"] and all(
        plan["estimate"]["memory_gib"] < 60 == plan["estimate"]["memory_limit_gib"]
        for plan in answer["plans"]
    )


def test_nothing_fits_is_an_answer(ppplan) -> None:
    ran = ppplan(
        "recommend", "--model", "llama3-405b", "--gpus", "8", "--cluster", "h100-sxm", "--json"
    )
    answer = json.loads(ran.out)
    assert ran.code == 1 and answer["plans"] == [] and answer["nearest"] and answer["min_gpus"] > 8
    for near in answer["nearest"]:
        assert near["change"] and near["estimate"]["fits"]
    text = ppplan("recommend", "--model", "llama3-405b", "--gpus", "8", "--cluster", "h100-sxm")
    assert text.code == 1 and f"{answer['min_gpus']} GPUs" in text.out


def test_min_gpus_is_the_edge(ppplan) -> None:
    question = ("recommend", "--model", "llama3-70b", "--cluster", "h100-sxm", "--json")
    fewest = json.loads(ppplan(*question, "--min-gpus").out)
    assert fewest["question"]["gpus"] == fewest["min_gpus"] and fewest["plans"]
    assert ppplan(*question, "--gpus", str(fewest["min_gpus"])).code == 0
    assert ppplan(*question, "--gpus", str(fewest["min_gpus"] - 1)).code == 1


def test_prime_number_of_gpus_answers_no(ppplan) -> None:
    ran = ppplan(
        "recommend", "--model", "llama3-70b", "--gpus", "1009", "--cluster", "h100-sxm", "--json"
    )
    assert ran.code == 1 and json.loads(ran.out)["plans"] == []


def test_files_are_written_and_read_back(ppplan, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "plan"
    ran = ppplan(*QUESTION, "--json", "--out", out, "--launcher", "slurm")
    answer = json.loads(ran.out)
    assert sorted(map(os.path.basename, answer["files"])) == sorted(
        os.listdir(out)
    ) and "plan.yaml" in os.listdir(out)
    saved = yaml.safe_load((out / "plan.yaml").read_text())
    assert saved["layout"] == answer["plans"][0]["layout"]
    assert (
        saved["question"]["cluster"] == "h100-sxm"
        and saved["profile"]["name"] == "h100-sxm"
        and saved["versions"]["megatron"]
    )
    script = next(out / name for name in os.listdir(out) if name != "plan.yaml")
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert f"--tensor-model-parallel-size {saved['layout']['tp']}" in script.read_text()


def test_recipe_file_and_options_that_restate_it(ppplan, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(
        "model: llama3-8b\ngpus: 8\ncluster: h100-sxm\ntp: 1..2\n"
    )
    answer = json.loads(ppplan("recommend", tmp_path / "recipe.yaml", "--json").out)
    assert answer["question"]["model"] == "llama3-8b" and {
        plan["layout"]["tp"] for plan in answer["plans"]
    } <= {1, 2}
    answer = json.loads(
        ppplan("recommend", tmp_path / "recipe.yaml", "--gpus", "16", "--tp", "4", "--json").out
    )
    assert answer["question"]["gpus"] == 16 and {
        plan["layout"]["tp"] for plan in answer["plans"]
    } == {4}


def test_set_changes_a_figure_of_the_cluster(ppplan) -> None:
    question = (
        "recommend",
        "--model",
        "llama3-8b",
        "--gpus",
        "32",
        "--cluster",
        "h100-sxm",
        "--pp",
        "1",
        "--json",
    )
    fast, slow = (
        json.loads(ppplan(*question, *more).out)
        for more in ((), ("--set", "fabric.nic_gbytes_per_s=1"))
    )
    assert slow["plans"][0]["estimate"]["step_s"] > fast["plans"][0]["estimate"]["step_s"]


@pytest.mark.parametrize(
    ("options", "knob", "value"),
    [
        (("--recompute-modules", "core_attn"), "recompute_modules", ["core_attn"]),
        (("--recompute-modules", "core_attn,mlp"), "recompute_modules", ["core_attn", "mlp"]),
        (("--recompute-layers", "3"), "recompute_layers", 3),
        (("--group", "8"), "schedule", "interleaved"),
        (("--sp",), "sp", True),
        (
            (
                "--recompute",
                "selective",
                "--stack",
                "megatron-2022",
                "--own-switches",
                "--top",
                "2",
            ),
            "recompute_modules",
            ["core_attn"],
        ),
    ],
)
def test_what_is_stated_is_searched(ppplan, options, knob, value) -> None:
    """Modules, layers and groups that the search would not try by itself; each implies what it goes
    with.
    """
    ran = ppplan(
        "recommend",
        "--model",
        "llama3-8b",
        "--gpus",
        "16",
        "--cluster",
        "h100-sxm",
        *options,
        "--json",
    )
    plans = json.loads(ran.out)["plans"]
    assert ran.code == 0 and plans and all(plan["layout"][knob] == value for plan in plans)


def test_fp32_where_there_is_no_bf16(ppplan) -> None:
    """V100: MFU is over its fp16 peak, 125 TFLOP/s."""
    ran = ppplan(
        "explain",
        "--model",
        "llama3-8b",
        "--tp",
        "8",
        "--cluster",
        "v100-32g-sxm2",
        "--precision",
        "fp32",
        "--json",
    )
    said = json.loads(ran.out)["estimate"]
    assert said["model_tflops_per_gpu"] / said["mfu"] == pytest.approx(125, rel=0.01)


def test_modules_that_the_model_lacks_answer_no(ppplan) -> None:
    ran = ppplan(
        "recommend",
        "--model",
        "llama3-8b",
        "--gpus",
        "16",
        "--cluster",
        "h100-sxm",
        "--recompute-modules",
        "moe",
        "--json",
    )
    answer = json.loads(ran.out)
    assert ran.code == 1 and answer["search"]["removed"]["recompute modules fit the model"] > 0


def test_a_plan_is_not_lost_when_its_launch_files_cannot_be_written(ppplan, tmp_path: Path) -> None:
    ran = ppplan(
        "recommend",
        "--model",
        "mpt-7b",
        "--gpus",
        "8",
        "--cluster",
        "h100-sxm",
        "--out",
        str(tmp_path),
        "--json",
    )
    answer = json.loads(ran.out)
    assert (ran.code, answer["files"], answer["plans"][0]["rank"]) == (
        0,
        [str(tmp_path / "plan.yaml")],
        1,
    )
    assert "alibi" in answer["refused"]
    assert ppplan("explain", str(tmp_path / "plan.yaml"), "--json").code == 0


def test_options_of_launch_files_without_files_are_not_ignored(ppplan) -> None:
    ran = ppplan(*QUESTION, "--launcher", "slurm")
    assert (ran.code, ran.out) == (2, "") and "--out" in ran.err
