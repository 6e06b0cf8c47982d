"""`ppplan compare`: its rows are recommend's answers, its sums hand arithmetic, its bad input one
message.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


BASE = ("compare", "--model", "llama3-8b")


def rows(ppplan: Any, *more: str) -> list[dict[str, Any]]:
    ran = ppplan(*BASE, *more, "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["rows"]


def test_each_row_is_what_recommend_answers(ppplan: Any) -> None:
    for row in rows(ppplan, "--gpus", "16", "--cluster", "h100-sxm,a100-80g-pcie"):
        alone = json.loads(
            ppplan(
                "recommend",
                "--model",
                "llama3-8b",
                "--gpus",
                "16",
                "--cluster",
                row["cluster"],
                "--json",
            ).out
        )
        assert (
            row["layout"] == alone["plans"][0]["layout"]
            and row["estimate"]["step_s"] == alone["plans"][0]["estimate"]["step_s"]
        )
        assert row["limits"] == alone["limits"]


def test_days_dollars_and_energy_by_hand(ppplan: Any) -> None:
    """A trillion tokens at so many tokens a second; 700 W of an H100 times 1.5 for the node."""
    for row in rows(ppplan, "--gpus", "8,16", "--cluster", "h100-sxm", "--price", "2.5"):
        seconds = 1e12 / (row["estimate"]["tokens_per_s_per_gpu"] * row["gpus"])
        assert row["days_per_trillion_tokens"] == pytest.approx(seconds / 86400)
        assert row["cost_per_trillion_tokens"] == pytest.approx(seconds / 3600 * row["gpus"] * 2.5)
        assert row["energy_mwh_per_trillion_tokens"] == pytest.approx(
            seconds / 3600 * row["gpus"] * 700 * 1.5 / 1e6
        )


def test_the_profiles_own_price_and_its_day_are_named(ppplan: Any) -> None:
    ran = json.loads(
        ppplan(*BASE, "--gpus", "8", "--cluster", "aws-p5", "--cluster", "h100-sxm", "--json").out
    )
    assert [row["price_usd_per_gpu_hour"] for row in ran["rows"]] == [6.88, None] and ran["rows"][
        1
    ]["cost_per_trillion_tokens"] is None
    assert any("aws-p5: $6.88" in one for one in ran["assumed"])


def test_failures_make_a_run_longer(ppplan: Any) -> None:
    question = ("--gpus", "256,1024", "--cluster", "h100-sxm")
    failed = rows(ppplan, *question, "--mtbf-hours", "50000", "--checkpoint-s", "60")
    for plain, failing in zip(rows(ppplan, *question), failed, strict=True):
        share = failing["goodput"]["goodput_share"]
        assert share < 1 and failing["days_per_trillion_tokens"] == pytest.approx(
            plain["days_per_trillion_tokens"] / share
        )


def test_scaling_is_against_the_fewest_gpus(ppplan: Any) -> None:
    found = rows(ppplan, "--gpus", "64,8,256", "--cluster", "h100-sxm")
    rate = {row["gpus"]: row["estimate"]["tokens_per_s_per_gpu"] for row in found}
    assert [row["scaling_efficiency"] for row in found] == [
        pytest.approx(rate[n] / rate[8]) for n in (64, 8, 256)
    ]


def test_nvlink_against_pcie_says_which_term_grew(ppplan: Any) -> None:
    """Without NVLink tensor parallelism of 8 crosses PCIe: its layout's tp communication grows
    most, and the best layout has less of it.
    """
    first, second = json.loads(
        ppplan(
            "compare",
            "--model",
            "llama3-70b",
            "--gpus",
            "64",
            "--cluster",
            "a100-80g-sxm",
            "--cluster",
            "a100-80g-pcie",
            "--own-switches",
            "--json",
        ).out
    )["rows"]
    assert first["changes"] == [] and second["layout"]["tp"] < first["layout"]["tp"]
    kept = [
        word
        for knob in ("tp", "pp", "v", "mbs", "zero", "recompute")
        for word in (f"--{knob}", str(first["layout"][knob]))
    ]
    question = (
        "explain",
        "--model",
        "llama3-70b",
        "--gpus",
        "64",
        "--cluster",
        "a100-80g-pcie",
        "--gbs",
        str(first["global_batch_size"]),
    )
    there = json.loads(ppplan(*question, *kept, "--json").out)["estimate"]
    grew = max(
        there["time"], key=lambda term: there["time"][term] - first["estimate"]["time"][term]
    )
    assert grew == "tp_comm_s"
    assert (
        f"{first['estimate']['time'][grew]:,.2f} s -> {there['time'][grew]:,.2f} s"
        in second["changes"][1]
    )


def test_a_question_without_an_answer_is_a_row(ppplan: Any) -> None:
    ran = ppplan(
        "compare", "--model", "llama3-405b", "--gpus", "8,1024", "--cluster", "h100-sxm", "--json"
    )
    few, many = json.loads(ran.out)["rows"]
    assert (
        ran.code == 0 and few["layout"] is None and "GPUs" in few["fault"] and many["fault"] is None
    )
    assert (
        ppplan("compare", "--model", "llama3-405b", "--gpus", "8,16", "--cluster", "h100-sxm").code
        == 1
    )


def test_saved_plans_are_compared_as_they_are(ppplan: Any, tmp_path: Path) -> None:
    for gpus in ("8", "16"):
        ppplan(
            "recommend",
            "--model",
            "llama3-8b",
            "--gpus",
            gpus,
            "--cluster",
            "h100-sxm",
            "--out",
            str(tmp_path / gpus),
        )
    ran = ppplan(
        "compare", str(tmp_path / "8" / "plan.yaml"), str(tmp_path / "16" / "plan.yaml"), "--json"
    )
    assert [row["gpus"] for row in json.loads(ran.out)["rows"]] == [8, 16]


def test_csv_and_text(ppplan: Any, tmp_path: Path) -> None:
    ran = ppplan(
        *BASE,
        "--gpus",
        "8",
        "--cluster",
        "h100-sxm",
        "--precision",
        "bf16,fp8-tensorwise",
        "--csv",
        str(tmp_path / "t.csv"),
    )
    table = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert [row["precision"] for row in table] == ["bf16", "fp8-tensorwise"] and float(
        table[1]["step_s"]
    ) < float(table[0]["step_s"])
    assert max(map(len, ran.out.splitlines())) <= 100 and "days/T" in ran.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*BASE, "--gpus", "8", "--cluster", "h100-sxm"), "2 to 200"),
        ((*BASE, "--gpus", "8,x"), "whole number"),
        ((*BASE, "--gpus", "8,16", "--cluster", "h100-smx"), "h100-sxm"),
        ((*BASE, "--gpus", "8,16", "--price", "-1"), "price"),
        (("compare", "--gpus", "8,16"), "model"),
        (("compare", "none.yaml", "two.yaml"), "none.yaml"),
    ],
)
def test_bad_input_is_one_message(ppplan: Any, words: tuple[str, ...], says: str) -> None:
    ran = ppplan(*words)
    assert (ran.code, ran.out) == (2, "") and says in ran.err and ran.err.count("\n") == 1


def test_a_run_that_makes_no_progress_never_ends(ppplan: Any) -> None:
    """8 GPUs of 10 hours are interrupted every 75 minutes; a checkpoint of 44 such times is
    finished once in exp(44) tries.
    """
    words = (
        *BASE,
        "--gpus",
        "8,16",
        "--cluster",
        "h100-sxm",
        "--price",
        "2",
        "--mtbf-hours",
        "10",
        "--checkpoint-s",
        "200000",
    )
    ran = ppplan(*words)
    assert ran.code == 0 and ran.out.count(" never ") == 2
    found = json.loads(
        ppplan(*words, "--json").out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON")
    )
    assert [row["goodput"]["goodput_share"] < 1e-9 for row in found["rows"]] == [True, True]


@pytest.mark.parametrize(
    "words, says",
    [
        (("--mtbf-hours", "1e-9"), "mtbf_hours must be at least"),
        (
            ("--mtbf-hours", "0.1"),
            (
                "must leave 60 s between interruptions of a run, but 8 GPUs of 0.1 hours each leave"
                " 45 s"
            ),
        ),
        (
            ("--mtbf-hours", "1", "--checkpoint-s", "45001"),
            "checkpoint_s must be at most 100 times",
        ),
        (("--mtbf-hours", "1", "--restart-s", "45001"), "restart_s must be at most 100 times"),
        (("--mtbf-hours", "1e300"), "mtbf_hours must be at most"),
        (("--restart-s", "1e300"), "restart_s must be at most"),
        (("--precision", "bf16,fp9"), "precision must be a known name, but got 'fp9'"),
        (("--switch", "moe_dispatcher=alltoall,foo"), "switch moe_dispatcher must be alltoall"),
        (("--switch", "use_sharp=off,on"), "use_sharp of megatron is not"),
    ],
)
def test_words_that_no_row_could_take_are_no_rows(
    ppplan: Any, words: tuple[str, ...], says: str
) -> None:
    ran = ppplan(*BASE, "--gpus", "8,16", "--cluster", "h100-sxm", *words)
    assert ran.code == 2 and says in ran.err and not ran.out


def test_options_beside_saved_plans_are_not_dropped_in_silence(ppplan: Any, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    ran = ppplan("compare", str(plan), str(plan), "--cluster", "h100-sxm", "--gbs", "7")
    assert (
        ran.code == 2 and "compared as they are, but got --cluster, --global-batch-size" in ran.err
    )
