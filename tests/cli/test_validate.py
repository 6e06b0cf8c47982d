"""`ppplan validate`: the contract's document, files, exit codes, bad input."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.accuracy.validate import PUBLISHED
from tests.published.runs import row, write

FIGURES = {
    "median_abs_error",
    "p90_abs_error",
    "bias",
    "kendall_tau",
    "regret",
    "regret_top3",
    "inside_range_share",
    "memory_median_abs_error",
    "oom",
}
OOM = {"true_oom", "true_fit", "false_oom", "false_fit", "in_band", "brier", "bins"}
Ppplan = Callable[..., Any]
FEW = str(PUBLISHED / "korthikanti2022.csv")


def test_json_is_the_contract(ppplan: Ppplan) -> None:
    ran = ppplan("validate", FEW, str(PUBLISHED / "nemo_automodel.csv"), "--json")
    found = json.loads(ran.out)
    assert ran.code == 0 and ran.err == ""
    assert set(found) == {"rows", "predicted", "skipped", "seconds", "overall", "groups"}
    assert found["rows"] == 29 == found["predicted"] + sum(found["skipped"].values())
    assert set(found["overall"]) == FIGURES and set(found["overall"]["oom"]) == OOM
    assert [group["source"] for group in found["groups"]] == ["korthikanti2022", "nemo_automodel"]
    assert all(
        set(group) == {"source", "hardware", "rows", "predicted", *FIGURES}
        for group in found["groups"]
    )
    assert all(
        set(step) == {"predicted", "observed", "rows"} for step in found["overall"]["oom"]["bins"]
    )
    assert found["overall"]["memory_median_abs_error"] is None


def test_source_and_where(ppplan: Ppplan) -> None:
    found = json.loads(
        ppplan(
            "validate",
            "--source",
            "narayanan_sc21",
            "--where",
            "tp == 8 and zero != zero",
            "--json",
        ).out
    )
    assert found["rows"] == 20 and len(found["groups"]) == 1
    none = ppplan("validate", FEW, "--where", "tp == 77", "--json")
    assert (
        none.code == 0
        and json.loads(none.out)["rows"] == 0
        and json.loads(none.out)["groups"] == []
    )


def test_text_for_a_person(ppplan: Ppplan) -> None:
    ran = ppplan("validate", FEW)
    assert ran.code == 0
    assert all(
        words in ran.out for words in ("korthikanti2022", "a100-80g-sxm", "14/14", "median", "tau")
    )
    assert max(map(len, ran.out.splitlines())) <= 100


def test_out_holds_the_rows_and_their_predictions(ppplan: Ppplan, tmp_path: Path) -> None:
    source = write(
        tmp_path / "in.csv",
        row(color="red"),
        row(hardware="abacus", color="blue"),
        row(mbs=None, color="red"),
    )
    out = tmp_path / "out.csv"
    assert ppplan("validate", source, "--out", out, "--json").code == 0
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert [one["color"] for one in rows] == ["red", "blue", "red"] and [
        one["gpus"] for one in rows
    ] == ["8"] * 3
    assert float(rows[0]["error"]) == pytest.approx(float(rows[0]["predicted_step_s"]) / 1.0 - 1)
    assert (
        float(rows[0]["predicted_memory_gib"]) > 0
        and 0 <= float(rows[0]["predicted_oom_probability"]) <= 1
    )
    assert (
        rows[1]["skipped"] == "unknown hardware: abacus"
        and rows[1]["predicted_step_s"] == ""
        and rows[0]["skipped"] == ""
    )
    assert "mbs" in rows[2]["assumed"]


def test_out_can_be_validated_again(ppplan: Ppplan, tmp_path: Path) -> None:
    out, again = tmp_path / "out.csv", tmp_path / "again.csv"
    first = json.loads(ppplan("validate", FEW, "--out", out, "--json").out)
    second = json.loads(ppplan("validate", out, "--out", again, "--json").out)
    assert {**first, "seconds": 0} == {**second, "seconds": 0}
    assert out.read_text() == again.read_text()


@pytest.mark.parametrize(
    ("name", "start"),
    [("plot.html", b"<!DOCTYPE html>"), ("plot.svg", b"<svg"), ("plot.png", b"\x89PNG")],
)
def test_plot(ppplan: Ppplan, tmp_path: Path, name: str, start: bytes) -> None:
    if name.endswith("png"):
        pytest.importorskip("PIL")
    path = tmp_path / name
    assert ppplan("validate", FEW, "--plot", path, "--json").code == 0
    data = path.read_bytes()
    assert data.startswith(start)
    if name != "plot.png":
        assert data.count(b"<circle") == 9 + 1 and b"http" not in data.replace(
            b"http://www.w3.org/2000/svg", b""
        )


def test_bound_asked_for(ppplan: Ppplan) -> None:
    assert ppplan("validate", FEW, "--max-error", "10", "--json").code == 0
    assert ppplan("validate", FEW, "--max-error", "0", "--json").code == 1
    assert ppplan("validate", FEW, "--where", "tp == 77", "--max-error", "10", "--json").code == 1


def test_a_file_of_the_user(ppplan: Ppplan, tmp_path: Path) -> None:
    minimal = {
        "model": "llama3-8b",
        "hardware": "h100",
        "gpus": 8,
        "tp": 1,
        "pp": 1,
        "seq": 8192,
        "gbs_sequences": 128,
    }
    minimal["tokens_per_s_per_gpu"] = 12_000
    found = json.loads(ppplan("validate", write(tmp_path / "mine.csv", minimal), "--json").out)
    assert found["predicted"] == 1 and found["groups"][0]["source"] == "mine"
    assert 0 < found["overall"]["median_abs_error"] < 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("nowhere.csv",),
        (FEW, "--where", "tp <"),
        (FEW, "--where", "tp"),
        (FEW, "--source", "nobody"),
        (FEW, "--plot", "x.gif"),
        (FEW, "--out", "/"),
        (FEW, "--max-error", "much"),
        (FEW, "--max-error", "nan"),
        (FEW, "--max-error", "-0.1"),
        (FEW, "--out", FEW),
        (FEW, "--where", "tp == 77", "--plot", "empty.html"),
        ("--nonsense",),
    ],
)
def test_bad_input_is_one_message(
    ppplan: Ppplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = ppplan("validate", *arguments)
    assert ran.code == 2 and ran.out == ""
    assert ran.err.startswith("ppplan: ") and ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
