"""Wrong input: one message on stderr, nothing on stdout, exit code 2, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from planner.errors import InputError
from planner.files import write_folder

R = ("recommend", "--model", "llama3-70b", "--cluster", "h100-sxm")
E = ("explain", "--model", "llama3-70b", "--cluster", "h100-sxm")

WRONG = [
    (("recommend", "--model", "llama3-7b", "--gpus", "8"), "llama3-70b"),
    (("recommend", "--model", "llama3-70b", "--gpus", "8", "--cluster", "h100sxm5"), "h100-sxm"),
    ((*R, "--gpus", "32", "--stack", "megatrn"), "megatron"),
    ((*R, "--gpus", "32", "--framework", "megatrom"), "megatron"),
    ((*R, "--gpus", "32", "--framework-version", "9.9"), "0.19"),
    ((*R, "--gpus", "32", "--precision", "bf61"), "bf16"),
    ((*R, "--gpus", "32", "--precision", "nvfp4"), "H100"),
    ((*R, "--gpus", "32", "--attention", "flush"), "flash"),
    ((*R, "--gpus", "32", "--schedule", "1f1c"), "1f1b"),
    ((*R, "--gpus", "32", "--recompute", "ful"), "full"),
    ((*R, "--gpus", "32", "--launcher", "torchrum"), "torchrun"),
    ((*R, "--gpus", "32", "--set", "fabric.nick=1"), "fabric.nic"),
    ((*R, "--gpus", "32", "--set", "fabric.nic_gbytes_per_s=nan"), "nic_gbytes_per_s"),
    ((*R, "--gpus", "32", "--set", "fabric.nic_gbytes_per_s"), "FIELD=VALUE"),
    ((*R, "--gpus", "32", "--out", ""), "out must be a folder"),
    ((*R, "--gpus", "32", "--out", "a\0b"), "null byte"),
    ((*R, "--gpus", "32", "--stack", ""), "stack must be stated"),
    ((*R, "--gpus", "32", "--framework-version", " "), "framework_version must be stated"),
    (
        ("recommend", "--model", "llama3-70b", "--gpus", "32", "--cluster", ""),
        "cluster must be stated",
    ),
    ((*R, "--gpus", "32", "--set", "max_gpus=16"), "at most the 16"),
    ((*E, "--gpus", "32", "--pp", "4", "--stage-layout", ""), "stage_layout must be stated"),
    (("models", ""), "model must be a name"),
    (("clusters", ""), "cluster must be a name"),
    (("stacks", " "), "stack must be a name"),
    (R, "gpus"),
    (("recommend", "--gpus", "8"), "model"),
    ((*R, "--gpus", "0"), "gpus must be at least 1"),
    ((*R, "--gpus", "-8"), "gpus must be at least 1"),
    ((*R, "--gpus", "3.5"), "3.5"),
    ((*R, "--gpus", "many"), "many"),
    ((*R, "--gpus", "999999999999"), "gpus must be at most"),
    ((*R, "--gpus", "32", "--seq-length", "0"), "seq_length"),
    ((*R, "--gpus", "32", "--gbs", "-1"), "global_batch_size"),
    ((*R, "--gpus", "32", "--gbs", "8", "--global-batch-tokens", "9"), "leave one out"),
    ((*R, "--gpus", "32", "--tp", "0"), "tp must be"),
    ((*R, "--gpus", "32", "--tp", "8..4"), "1..8"),
    ((*R, "--gpus", "32", "--pp", "1.5"), "pp must be"),
    ((*R, "--gpus", "32", "--zero", "4"), "zero must be"),
    ((*R, "--gpus", "32", "--max-memory-gib", "nan"), "max_memory_gib"),
    ((*R, "--gpus", "32", "--max-memory-gib", "-3"), "max_memory_gib"),
    ((*R, "--gpus", "32", "--top", "0"), "top must be"),
    ((*R, "--gpus", "32", "--no-recompute", "--recompute", "full"), "stated once"),
    ((*R, "--gpus", "32", "--tpp", "3"), "--tp"),
    (("recomend",), "recommend"),
    ((*R, "--gpus", "32", "--seq-length", "1099511627776"), "seq_length must be at most"),
    ((*R, "--gpus", "32", "--gbs", "1099511627776"), "global_batch_size must be at most"),
    ((*R, "--gpus", "32", "--m", "1099511627776"), "m must be"),
    ((*E, "--gpus", "32", "--pp", "4", "--first-layers", "200"), "layers"),
    ((*E, "--gpus", "32", "--tp", "1..8"), "--sweep"),
    ((*E, "--gpus", "32", "--tp", "5"), "try 30 GPUs"),
    ((*E, "--gpus", "32", "--tp", "8", "--dp", "2"), "leave out"),
    ((*E, "--gpus", "32", "--tp", "8", "--gbs", "7"), "try 4"),
    ((*E, "--gpus", "32", "--recompute-modules", "core_atn"), "core_attn"),
    ((*E, "--gpus", "32", "--sweep", "vv=1,2"), "v"),
    ((*E, "--gpus", "32", "--sweep", "v"), "WORD=VALUE"),
    ((*E, "--gpus", "32", "--sweep", "m=1..1500", "--sweep", "v=1,2"), "2,000"),
    (
        (*R, "--gpus", "32", "--recompute-layers", "3", "--no-recompute"),
        "recompute_layers must go with recompute full",
    ),
    (
        (*R, "--gpus", "32", "--recompute-modules", "mlp", "--recompute", "full"),
        "recompute_modules must go with recompute selective",
    ),
    (
        (*E, "--gpus", "32", "--recompute-layers", "3", "--recompute", "none"),
        "recompute_layers must go with recompute full",
    ),
    (
        (*E, "--gpus", "32", "--tp", "8", "--pp", "4", "--group", "4"),
        "group must go with virtual stages",
    ),
    ((*R, "--gpus", "\uff19"), "whole number"),
    ((*R, "--gpus", "9" * 40), "at most 30 digits"),
    ((*R, "--gpus", "32", "--set", "gpu.hbm_gbytes_per_s=1e-300"), "hbm_gbytes_per_s must be"),
    ((*R, "--gpus", "32", "--set", "node.gpus=100000000000000000000"), "node.gpus must be"),
    ((*R, "--gpus", "32", "--stage-layout", "Et*2|"), "explain"),
    (("recommend", "."), "directory"),
    (("recommend", "--model", ".", "--gpus", "8"), "config.json"),
    (("emit",), "PLAN"),
    (("emit", "nowhere.yaml"), "nowhere.yaml"),
    (("explain", "nowhere.yaml"), "nowhere.yaml"),
    (("models", "llama3-71b"), "llama3-70b"),
    (("schedules", "1f1bb"), "1f1b"),
    ((*R, "--gpus", "8", "--gpus", "16"), "--gpus must be stated once"),
    ((*E, "--gpus", "8", "--sp", "--no-sp"), "--sp or --no-sp must be stated once"),
    (
        (*R, "--gpus", "8", "--set", "gpu.tdp_w=1", "--set", "gpu.tdp_w=2"),
        "must state gpu.tdp_w once",
    ),
    ((*E, "--gpus", "32", "--sweep", "tp=1,2", "--tp", "4"), "it is swept and tp 4 is stated too"),
    (
        (*E, "--gpus", "32", "--sweep", "recompute=none,full", "--no-recompute"),
        "it is swept and recompute none is stated too",
    ),
    ((*E, "--gpus", "32", "--sweep", "tp=1..2,1"), "each value once, but got 1 twice"),
    (("simulate", "--pp", "4", "--microbatches", "8", "--m", "16"), "must be stated once"),
    (("check", "m.sh", "--set", "FOO=1", "--set", "--FOO=2"), "must state FOO once"),
]


def is_one_message(ran) -> None:
    assert ran.code == 2 and ran.out == ""
    assert (
        ran.err.startswith("ppplan: ") and ran.err.count("\n") == 1 and "Traceback" not in ran.err
    )


@pytest.mark.parametrize(
    ("arguments", "says"), WRONG, ids=lambda x: " ".join(x[-2:]) if isinstance(x, tuple) else ""
)
def test_one_message(ppplan, arguments: tuple[str, ...], says: str) -> None:
    ran = ppplan(*arguments)
    is_one_message(ran)
    assert says.lower() in ran.err.lower()
    assert (
        ppplan(*arguments, *(("--json",) if arguments[0] in ("recommend", "explain") else ())).out
        == ""
    )


def test_what_may_be_repeated(ppplan) -> None:
    many = ("--set", "gpu.tdp_w=500", "--set", "node.gpus=4", "--json", "--json")
    assert ppplan(*E, "--gpus", "8", "--tp", "4", "--pp", "2", *many).code == 0


DOCUMENTS = {
    "malformed.yaml": (b"model: [llama3-70b\ngpus: 8", "YAML"),
    "list.yaml": (b"- model\n- gpus\n", "fields"),
    "empty.yaml": (b"", "fields"),
    "types.yaml": (b"model: llama3-70b\ngpus: eight\nseq_length: 1.5\n", "gpus"),
    "unknown.yaml": (b"model: llama3-70b\ngpu: 8\n", "did you mean gpus"),
    "nan.yaml": (b"model: llama3-70b\ngpus: 8\nmax_memory_gib: .nan\n", "max_memory_gib"),
    "true.yaml": (b"model: llama3-70b\ngpus: true\n", "gpus"),
    "binary.yaml": (bytes(range(256)), "text"),
    "nested.yaml": (b"model: " + b"[" * 3000, "nest"),
    "twice.yaml": (b"model: llama3-70b\ngpus: 8\ngpus: 16\n", "'gpus' is stated twice"),
    "digits.json": (
        b'{"model": "llama3-70b", "gpus": 1' + b"0" * 5000 + b"}",
        "a whole number of more than 4,300 digits",
    ),
    "digits.yaml": (
        b"model: llama3-70b\ngpus: 1" + b"0" * 5000,
        "a whole number of more than 4,300 digits",
    ),
    "twice.json": (b'{"model": "llama3-70b", "gpus": 8, "gpus": 16}', "'gpus' is stated twice"),
    "malformed.json": (b'{"model": "llama3-70b", "gpus": }', "JSON"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("command", ["recommend", "explain"])
def test_documents(ppplan, tmp_path: Path, command: str, name: str) -> None:
    content, says = DOCUMENTS[name]
    (tmp_path / name).write_bytes(content)
    ran = ppplan(command, tmp_path / name)
    is_one_message(ran)
    assert says in ran.err and name in ran.err


def test_plan_that_is_not_one(ppplan, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        "question: {model: llama3-70b}\nlayout: {tp: 8, pp: x}\nestimate: 3\n"
    )
    ran = ppplan("emit", tmp_path / "plan.yaml")
    is_one_message(ran)
    assert "estimate" in ran.err and "versions" in ran.err


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tpp": 8}, "did you mean tp"),
        ({"tp": None}, "must state tp"),
        ({"m": None, "schedule": None}, "must state m, schedule"),
        ({"gbs": 7}, "layout.gbs must be dp x mbs x m = 512"),
        ({"recompute_modules": ["mlp"]}, "recompute selective"),
        ({"recompute_modules": 1.5}, "recompute_modules must be a list"),
        ({"recompute_layers": 3}, "recompute full"),
        ({"v": 0}, "v must be"),
    ],
)
def test_a_plan_states_its_whole_layout(
    ppplan, tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    ppplan(
        "recommend",
        "--model",
        "llama3-8b",
        "--gpus",
        "8",
        "--cluster",
        "h100-sxm",
        "--no-recompute",
        "--out",
        tmp_path,
    )
    saved = yaml.safe_load((tmp_path / "plan.yaml").read_text())
    assert ppplan("explain", tmp_path / "plan.yaml").code == 0
    saved["layout"] = {
        word: value for word, value in (saved["layout"] | changes).items() if value is not None
    }
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(saved))
    for command in ("explain", "emit"):
        ran = ppplan(command, tmp_path / "plan.yaml")
        is_one_message(ran)
        assert says in ran.err


def test_folders_that_cannot_be_written(ppplan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    for out in (tmp_path / "file", tmp_path / "file" / "deeper", Path("/proc/ppplan/plan")):
        ran = ppplan(*R, "--gpus", "32", "--out", out)
        is_one_message(ran)
        assert str(out) in ran.err
    assert (tmp_path / "file").read_text() == "here" and os.listdir(tmp_path) == ["file"]


def test_no_half_written_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        write_folder(tmp_path / "new", {"a.txt": "first", "deep/b.txt": "", "a.txt/c.txt": ""})
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.txt").write_text("before")
    with pytest.raises(InputError):
        write_folder(tmp_path / "old", {"a.txt": "after", "deep/b.txt": "", "a.txt/c.txt": ""})
    assert os.listdir(tmp_path) == ["old"] and os.listdir(tmp_path / "old") == ["a.txt"]
    assert (tmp_path / "old" / "a.txt").read_text() == "before"


@pytest.mark.parametrize(
    "words",
    [
        ("recommend", "--model", "llama3-8b", "--gpus", "8", "--report", "new/deep/x.html"),
        ("compare", "--model", "llama3-8b", "--gpus", "8,16", "--csv", "new/deep/x.csv"),
        ("simulate", "--schedule", "1f1b", "--pp", "4", "--m", "8", "--gantt", "new/deep/x.svg"),
    ],
)
def test_folders_of_files_are_made(
    ppplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ppplan(*words).code == 0
    assert Path(words[-1]).stat().st_size


def test_unexpected_exceptions_are_not_swallowed(ppplan, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr("planner.api.models", broken)
    with pytest.raises(ZeroDivisionError):
        ppplan("models")


def test_interrupt_is_clean(ppplan, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.api.models", interrupted)
    ran = ppplan("models")
    assert (ran.code, ran.out, ran.err) == (130, "", "ppplan: interrupted\n")


def test_a_closed_pipe_is_clean() -> None:
    command = (
        f"{sys.executable} -m planner explain --model llama3-8b --tp 2 --cluster h100-sxm | head -n"
        " 1; echo ${PIPESTATUS[0]}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == "" and done.stdout.splitlines()[-1] == "0"
