"""`emit --prove`: the script, whose flags Megatron-LM's own parser judges, and the line that it
prints, which `check` and `validate` read.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.emit import prove
from planner.errors import InputError
from planner.intake.logs.proof import MARK, proofs
from planner.units import GIB
from tests.conftest import Ran
from tests.judges import prove_runs as runs
from tests.judges import torchtitan_oracle
from tests.judges.megatron_oracle import Case, verdicts

JUDGES = Path(__file__).parents[1] / "judges"
TINY = Path(__file__).parents[2] / "recipes" / "closed-loop" / "tiny.yaml"
LLAMA: dict[str, Any] = {
    "model": "llama3-8b",
    "gpus": 32,
    "cluster": "h100-sxm",
    "seq_length": 8192,
    "global_batch_size": 256,
    "tp": 2,
    "pp": 4,
    "v": 1,
    "zero": 1,
    "mbs": 1,
}
QWEN: dict[str, Any] = LLAMA | {
    "model": "qwen3-30b-a3b",
    "seq_length": 4096,
    "tp": 1,
    "pp": 2,
    "ep": 8,
    "etp": 1,
    "schedule": "1f1b",
    "switch": ("moe_dispatcher=deepep",),
}


def saved(folder: Path, **words: Any) -> Path:
    answer = api.recommend(api.question(**words), top=1, out=folder, own_switches=True)
    assert answer.best is not None, answer
    return folder / "plan.yaml"


def plan_of(script: str) -> dict[str, Any]:
    """What the script holds, as Python reads it."""
    for node in ast.parse(script).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PLAN":
            assert isinstance(node.value, ast.Call)
            plan: dict[str, Any] = json.loads(ast.literal_eval(node.value.args[0]))
            return plan
    raise AssertionError("no PLAN")


def case(name: str, plan: dict[str, Any], flags: list[str] | None = None) -> Case:
    world = int(plan["environment"]["WORLD_SIZE"])
    return Case(name, flags or plan["flags"], world, plan["environment"])


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    out = {}
    for name, words in (("dense", LLAMA), ("experts", QWEN)):
        path = saved(tmp_path_factory.mktemp(name), **words)
        out[name] = plan_of(api.emit(path, prove=True).texts["prove.py"])
    return out


@pytest.mark.parametrize("version", ["0.17.1", "0.19.2"])
def test_megatrons_parser_takes_the_flags(plans: dict[str, dict[str, Any]], version: str) -> None:
    answers = verdicts([case(name, plan) for name, plan in plans.items()], version)
    assert [answer["accepted"] for answer in answers] == [True, True], answers
    assert answers[1]["switches"]["moe_token_dispatcher_type"] == "alltoall"


TITAN: dict[str, Any] = LLAMA | {"framework": "torch", "zero": 3, "pp": 2, "mbs": 1}


def test_torchtitans_parser_takes_the_flags(tmp_path: Path) -> None:
    """Rank of the second stage: pp is the slowest of torchtitan's mesh; dp = 32 / (2 * 2). All 32
    micro-batches of 256 / 8 run: torch's pipelines hold a buffer for each.
    """
    path = saved(tmp_path, **TITAN, switch=("compile=on", "async_tensor_parallel=on"))
    plan = plan_of(api.emit(path, prove=True).texts["prove.py"])
    assert plan["stand_ins"] == {"async_tensor_parallel": ["on", "off"]}
    assert plan["environment"]["NGPU"] == "32" and plan["environment"]["RANK"] in ("0", "16")
    (answer,) = torchtitan_oracle.verdicts(
        [torchtitan_oracle.Case(plan["module"], plan["flags"], 32, capable=True)]
    )
    assert answer["accepted"], answer["message"]
    assert answer["m"] == [32] and answer["compile"] and not answer["async"]


def test_flex_is_refused_by_megatron_and_alltoall_stands_in(
    plans: dict[str, dict[str, Any]],
) -> None:
    plan = plans["experts"]
    flex = ["--moe-token-dispatcher-type", "flex", "--moe-flex-dispatcher-backend", "deepep"]
    (answer,) = verdicts([case("flex", plan, [*plan["flags"], *flex])])
    assert not answer["accepted"] and "not supported with flex" in answer["message"]
    assert plan["proof"]["instead"] == {"moe_dispatcher": "alltoall"}
    assert plans["dense"]["proof"]["instead"] == {}
    assert plan["stand_ins"] == {"moe_dispatcher": ["deepep", "alltoall"]}


def test_the_first_stage_is_the_fullest_and_runs_a_depth_and_one_more(
    plans: dict[str, dict[str, Any]],
) -> None:
    """1F1B of 4 stages holds 4 micro-batches on the first, which the fifth does not change;
    dp = 32 / (2 * 4)."""
    plan = plans["dense"]
    assert plan["environment"]["RANK"] == "0" and plan["environment"]["LOCAL_RANK"] == "0"
    assert plan["proof"]["micro_batches"] == 5
    assert plan["flags"][plan["flags"].index("--global-batch-size") + 1] == str(5 * 4)


def test_the_rank_of_a_later_stage_follows_megatrons_order() -> None:
    """tp-cp-ep-dp-pp: stages are the slowest to change."""
    from planner.specs import resolve

    recipe, layout = resolve.recipe_and_layout(api.question(**LLAMA))
    script = prove.text(recipe, layout, 3, {"question": {}})
    assert plan_of(script)["environment"]["RANK"] == str(3 * 8)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"framework": "deepspeed"}, "DeepSpeed has none"),
        ({"framework": "torch", "software": "torchtitan@0.2"}, "must have torchtitan 0.3"),
        ({"framework": "torch", "model": "qwen3-30b-a3b", "ep": 8}, "sends no counts of tokens"),
        ({"framework_version": "0.16"}, "must have Megatron-core 0.17 or later"),
    ],
)
def test_a_framework_without_a_fake_group_is_one_message(
    words: dict[str, Any], says: str, tmp_path: Path, ppplan: Callable[..., Ran]
) -> None:
    asked = {**LLAMA, **words}
    if "framework" in words:
        asked |= {"tp": 1, "pp": 1, "zero": 3}
    path = saved(tmp_path, **asked)
    ran = ppplan("emit", path, "--prove")
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1
    ran = ppplan("emit", path, "--prove", "--launcher", "slurm")
    assert ran.code == 2 and "leave them out" in ran.err


def test_without_a_gpu_the_script_says_so(tmp_path: Path) -> None:
    path = saved(tmp_path, **LLAMA)
    (script,) = api.emit(path, prove=True, out=tmp_path).files
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (
        ran.returncode == 2
        and ran.stderr == "prove.py must have a GPU, but torch finds none here\n"
    )


def proof(plan: dict[str, Any], **changes: Any) -> str:
    """The line as the script prints it."""
    line = {
        **plan["proof"],
        "allocated_bytes": 40 * GIB,
        "reserved_bytes": 44 * GIB,
        "steps_s": [9.0, 2.0, 1.0, 1.2, 1.1],
        "out_of_memory": "",
        "gpu": "NVIDIA H100 80GB HBM3",
        "versions": {"torch": "2.9.0"},
        **changes,
    }
    return MARK + json.dumps(line) + "\n"


def test_check_compares_a_proof_with_its_plan(
    plans: dict[str, dict[str, Any]], tmp_path: Path, ppplan: Callable[..., Ran]
) -> None:
    """The prediction is that of the plan's own words, with the dispatcher that it wants."""
    plan = plans["experts"]
    file = tmp_path / "sent.txt"
    file.write_text("[rank0] some line\n" + proof(plan) + "and more\n")
    answer = api.check(file)
    expected = api.explain(api.question(**plan["proof"]["question"]))
    assert answer.recipe.software.switches["moe_dispatcher"] == "deepep"
    assert answer.estimate is not None and answer.measured is not None
    ours = float(expected.estimate.memory.allocated_bytes)
    assert float(answer.estimate.memory.allocated_bytes) == pytest.approx(ours, rel=1e-9)
    assert plan["proof"]["predicted"]["allocated_bytes"] == pytest.approx(ours, rel=1e-9)
    assert answer.measured["memory_allocated_gib"] == 40.0
    error = answer.measured["error"]["memory_allocated_gib"]
    assert error == pytest.approx(ours / (40 * GIB) - 1)
    assert answer.measured["proof"]["rank_step_s"] == 1.1
    ran = ppplan("check", file)
    assert ran.code == 0 and "held 40.0 GiB" in ran.out
    assert "in place of the plan's switches ran moe_dispatcher alltoall" in " ".join(
        ran.out.split()
    )


def test_a_proof_that_ran_out_of_memory(
    plans: dict[str, dict[str, Any]], tmp_path: Path, ppplan: Callable[..., Ran]
) -> None:
    file = tmp_path / "sent.log"
    file.write_text(proof(plans["dense"], out_of_memory="CUDA out of memory. Tried to allocate"))
    answer = api.check(file)
    assert answer.verdict == "oom" and "ran out of memory" in answer.findings[0].message
    assert answer.ran_out and answer.oom_probability == 1
    ran = ppplan("check", file)
    assert ran.code == 1 and ran.out.startswith("It ran out of memory: ")
    assert "out_of_memory 1" in ran.out


def test_what_was_measured_decides_whether_it_fits(
    plans: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """Where what the allocator reserves at the mean, the context and NCCL's buffers fill the GPU
    to the byte, the chance to run out is one half; with as much as predicted it is the plan's own.
    """
    file = tmp_path / "sent.txt"
    file.write_text(proof(plans["dense"]))
    plan = api.check(file)
    assert plan.estimate is not None
    memory = plan.estimate.memory
    room = plan.estimate.memory_limit_bytes - memory.context_bytes - memory.nccl_bytes
    full = room / plan.recipe.software.allocator.reserved_share
    ours = float(memory.allocated_bytes)
    for measured, chance, verdict in (
        (full, 0.5, "marginal"),
        (ours, float(plan.estimate.oom_probability), "fits"),
    ):
        file.write_text(proof(plans["dense"], allocated_bytes=measured, reserved_bytes=measured))
        answer = api.check(file)
        assert answer.oom_probability == pytest.approx(chance, abs=1e-6)
        assert answer.verdict == verdict


def test_a_proof_of_another_version_says_so(
    plans: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    file = tmp_path / "sent.txt"
    planned = plans["dense"]["proof"]["question"]["framework_version"]
    said = {}
    for ran in (f"{planned}.2", "0.16.1", f"{planned}1"):
        file.write_text(proof(plans["dense"], versions={"megatron-core": ran}))
        said[ran] = [finding.message for finding in api.check(file).findings]
    assert not any("not the plan's" in message for message in said[f"{planned}.2"])
    assert any(f"0.16.1, not the plan's {planned}" in message for message in said["0.16.1"])
    assert any("not the plan's" in message for message in said[f"{planned}1"])


def test_validate_takes_proofs_as_rows_of_memory(
    plans: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    file = tmp_path / "sent.txt"
    file.write_text("".join(map(proof, plans.values())))
    rows = api.validate([file]).rows
    assert list(rows["model"]) == ["llama3-8b", "qwen3-30b-a3b"] and list(rows["gpus"]) == [32, 32]
    assert rows["skipped"].isna().all() and rows["error"].isna().all()
    for row, plan in zip(rows.to_dict("records"), plans.values(), strict=True):
        ours = plan["proof"]["predicted"]["allocated_bytes"]
        assert row["measured_memory_gib"] == 40.0
        assert row["memory_error"] == pytest.approx(ours / (40 * GIB) - 1, rel=1e-3)


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"question": 3}', "null"])
def test_a_line_that_is_cut_off_is_one_message(text: str, tmp_path: Path) -> None:
    file = tmp_path / "sent.txt"
    file.write_text(MARK + text)
    with pytest.raises(InputError, match=r"sent\.txt, line 1: a proof must be the whole line"):
        proofs(file)


def test_the_script_in_place_of_its_line_is_one_message(tmp_path: Path) -> None:
    file = tmp_path / "prove.py"
    file.write_text(files("planner.emit").joinpath("scripts", "prove.py").read_text())
    with pytest.raises(InputError, match=r"prove\.py is the script; run it on a GPU"):
        api.check(file)


@pytest.mark.parametrize(
    "faulty",
    [
        {"stage": 99},
        {"stage": True},
        {"stage": -1},
        {"micro_batches": 0},
        {"allocated_bytes": float("nan")},
        {"reserved_bytes": -1},
        {"allocated_bytes": "40"},
        {"steps_s": "123"},
        {"steps_s": [1.0, float("inf")]},
    ],
)
def test_a_line_of_impossible_figures_is_one_message(
    plans: dict[str, dict[str, Any]], faulty: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "sent.txt"
    file.write_text(proof(plans["dense"], **faulty))
    with pytest.raises(InputError, match=f"ValueError: {next(iter(faulty))} must be"):
        proofs(file)


@pytest.mark.slow
def test_megatrons_own_training_runs_the_script(tmp_path: Path) -> None:
    """The longer ones, fp16 and torchtitan's, are `python -m tests.bench.prove`."""
    runs.megatron("bf16", tmp_path)
