"""`ppplan tune` from a saved plan to its files, on simulated devices; once for real on two gloo
processes.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml

from planner import api
from planner.cli import code
from planner.launch.outcome import Outcome, Progress
from planner.specs import library, resolve
from planner.specs import plan as plans
from planner.specs.recipe import Recipe
from planner.tune.measurement import Measurement
from planner.tune.runners import table
from planner.tune.runners.table import Bench
from planner.tune.study.space import Candidate
from planner.tune.study.switches import offers
from tests.tune.simulated import real_s, simulated

pytestmark = pytest.mark.process


TINY = """name: tiny
family: llama
hidden_size: 32
ffn_size: 64
num_layers: 4
num_heads: 4
num_kv_heads: 4
head_dim: 8
vocab_size: 64
max_seq_length: 64
gated_mlp: true
activation: silu
tied_embeddings: false
norm: rmsnorm
position: rope
source: "of the test"
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Of the machine that tests.tune.simulated runs on."""
    asked = api.question(
        model="llama3-8b", gpus=8, cluster="a100-80g-sxm", seq_length=4096, global_batch_size=64
    )
    answer = api.recommend(asked, top=1, out=tmp_path / "plan")
    assert answer.files
    return tmp_path / "plan" / "plan.yaml"


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(
        recipe: Recipe, bench: Bench, candidate: Candidate, progress: Progress
    ) -> tuple[Outcome, Measurement | None]:
        return simulated(candidate, progress)

    monkeypatch.setattr(table, "measure", measure)


def out_of(command: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict, str]:
    status = code([*command, "--json"])
    captured = capsys.readouterr()
    return status, json.loads(captured.out) if captured.out else {}, captured.err


@pytest.mark.usefixtures("devices")
def test_the_document_the_table_and_the_refined_plan(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = f"journal:{plan.parent}/study.journal"
    status, said, errors = out_of(
        ["tune", str(plan), "--trials", "6", "--storage", journal, "--study", "mine"], capsys
    )
    assert status == 0 and said["study"] == "mine" and said["storage"] == journal
    trials = said["trials"]
    assert trials[0]["layout"] == yaml.safe_load(plan.read_text())["layout"]
    assert {one["state"] for one in trials} <= {"done", "pruned"}
    fastest = min(one["measured_s"] for one in trials if one["state"] == "done")
    assert said["best"]["measured_s"] == fastest
    assert said["speedup_over_first"] == pytest.approx(trials[0]["measured_s"] / fastest)
    assert "#0: tp*pp*dp*cp" in errors and "best so far" in errors and "left" in errors
    files = {Path(name).name: Path(name) for name in said["files"]}
    rows = list(csv.DictReader(files["trials.csv"].read_text().splitlines()))
    assert [float(row["measured_s"]) for row in rows] == [one["measured_s"] for one in trials]
    refined = yaml.safe_load(files["plan.yaml"].read_text())
    assert refined["layout"] == said["best"]["layout"] and refined["measured"][
        "step_s"
    ] == pytest.approx(fastest, rel=1e-5)
    assert refined["estimate"]["step_s"] != refined["measured"]["step_s"]
    drawn = json.loads(files["study.json"].read_text())
    assert min(one["best_s"] for one in drawn["history"]) == fastest
    assert library.hardware(str(files["a100-80g-sxm-tuned.yaml"])).name == said["overlay"]["name"]
    assert (
        said["overlay"]["error_after"] < said["overlay"]["error_before"] == said["median_abs_error"]
        and said["overlay_reason"] is None
    )
    assert code(["explain", str(files["plan.yaml"]), "--no-formulas"]) == 0  # a plan like any other


@pytest.mark.usefixtures("devices")
def test_a_study_goes_on_with_resume_alone(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "tune",
        str(plan),
        "--storage",
        f"journal:{plan.parent}/study.journal",
        "--repeats",
        "0",
    ]
    assert out_of([*command, "--trials", "2"], capsys)[0] == 0
    status, _, errors = out_of([*command, "--trials", "4"], capsys)
    assert status == 2 and "--resume" in errors
    status, said, _ = out_of([*command, "--trials", "4", "--resume"], capsys)
    assert status == 0 and len(said["trials"]) == 4
    assert code([*command, "--trials", "4", "--resume"]) == 0
    assert "Best: #" in capsys.readouterr().out


@pytest.mark.usefixtures("devices")
def test_the_switches_of_a_refined_plan_are_where_tune_begins(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, layout = resolve.recipe_and_layout(plans.read_layout(plan))
    word, values = next(iter(offers(recipe, "torch", 8)(layout, {}).items()))
    plan.write_text(
        yaml.safe_dump(
            yaml.safe_load(plan.read_text())
            | {"switches": {word: values[1], "overlap_comm": False}}
        )
    )
    command = [
        "tune",
        str(plan),
        "--trials",
        "1",
        "--repeats",
        "0",
        "--switches",
        "1",
        "--devices",
        "8",
        "--storage",
        f"journal:{plan.parent}/j",
    ]
    status, said, _ = out_of(command, capsys)
    assert status == 0 and [one["switches"] for one in said["trials"]] == [{}, {word: values[1]}]


def test_when_all_fail_the_answer_is_no_with_their_reasons(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crashes(
        recipe: Recipe, bench: Bench, candidate: Candidate, progress: Progress
    ) -> tuple[Outcome, Measurement | None]:
        return Outcome("crashed", None, "rank 1 exited with code 3", "its last words"), None

    monkeypatch.setattr(table, "measure", crashes)
    status, said, _ = out_of(
        ["tune", str(plan), "--trials", "2", "--storage", f"journal:{plan.parent}/j"], capsys
    )
    assert (
        status == 1
        and said["best"] is None
        and said["overlay"] is None
        and said["speedup_over_first"] is None
    )
    assert [(one["state"], one["reason"], one["stderr_tail"]) for one in said["trials"]] == [
        ("crashed", "rank 1 exited with code 3", "its last words")
    ] * 2
    assert not (plan.parent / "plan-tuned" / "plan.yaml").exists()


def test_ctrl_c_prints_the_best_so_far(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[float] = []

    def stopped(
        recipe: Recipe, bench: Bench, candidate: Candidate, progress: Progress
    ) -> tuple[Outcome, Measurement | None]:
        calls.append(real_s(candidate))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return simulated(candidate, progress)

    monkeypatch.setattr(table, "measure", stopped)
    status, said, _ = out_of(
        ["tune", str(plan), "--trials", "5", "--storage", f"journal:{plan.parent}/j"], capsys
    )
    assert status == 0 and said["interrupted"] and said["best"]["measured_s"] == min(calls[:2])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--trials", "0"], "trials must be from 1"),
        (["--repeats", "-1"], "repeats must be"),
        (["--limit-s", "0"], "limit-s must be above 0"),
        (["--devices", "0"], "devices must be from 1"),
        (["--storage", "x.db"], "sqlite:///x.db"),
        (["--study", "a/b"], "study must be a name"),
        (["--runner", "tourch"], "did you mean torch"),
        (["--launcher", "slrum"], "did you mean slurm"),
        (["--runner", "megatron"], "--megatron-path DIR"),
        (["--runner", "deepspeed"], "--runner deepspeed measures plans of DeepSpeed"),
    ],
)
def test_wrong_input_is_one_message(
    plan: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(["tune", str(plan), *words]) == 2
    captured = capsys.readouterr()
    assert says in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_a_recipe_is_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recipe.yaml").write_text("model: llama3-8b\ngpus: 8\n")
    assert code(["tune", str(tmp_path / "recipe.yaml")]) == 2
    assert "ppplan recommend" in capsys.readouterr().err


def test_for_real_on_two_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """recommend, tune, recommend with the overlay: torch's own training steps over gloo."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "cpu.yaml").write_text(
        "extends: a100-40g-pcie\nname: cpu\ngpu: {architecture: cpu}\n"
    )
    asked = [
        "--model",
        str(tmp_path / "tiny.yaml"),
        "--gpus",
        "2",
        "--seq-length",
        "32",
        "--gbs",
        "4",
        "--precision",
        "fp32",
        "--framework",
        "torch",
        "--pp",
        "1",
        "--cp",
        "1",
    ]
    assert (
        code(
            [
                "recommend",
                *asked,
                "--cluster",
                str(tmp_path / "cpu.yaml"),
                "--out",
                str(tmp_path / "plan"),
            ]
        )
        == 0
    )
    capsys.readouterr()
    command = [
        "tune",
        str(tmp_path / "plan" / "plan.yaml"),
        "--trials",
        "2",
        "--repeats",
        "0",
        "--switches",
        "0",
        "--limit-s",
        "120",
        "--storage",
        f"journal:{tmp_path}/j",
    ]
    status, said, _ = out_of(command, capsys)
    assert status == 0, said
    assert said["device"] == "cpu" and said["devices"] == 2
    assert all(one["state"] in ("done", "pruned") for one in said["trials"]), [
        one["reason"] for one in said["trials"]
    ]
    assert (
        said["best"]["measured_s"] > 0
        and said["best"]["memory_gib"] > 0
        and len(said["best"]["steps_s"]) == table.STEPS
    )
    overlay = next(name for name in said["files"] if name.endswith("cpu-tuned.yaml"))
    status, again, _ = out_of(["recommend", *asked, "--cluster", overlay], capsys)
    assert status == 0 and again["plans"]
