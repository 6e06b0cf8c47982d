"""Every file is read by torchtitan's own parser: 0.3.0 the Python, 0.2.2 the TOML; and understood
as it was meant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.emit import table, torchtitan
from planner.errors import InputError
from planner.intake.read import read
from planner.layout import RECOMPUTE_CODE, SCHEDULE_CODE, Layout
from planner.rules.table import breaches
from planner.specs import resolve
from planner.specs.recipe import Recipe
from planner.specs.software_versions import SoftwareVersions
from planner.switch_gains import other_values
from tests import documents, recorder
from tests.judges import torchtitan_oracle, torchtitan_sweep
from tests.judges.torchtitan_oracle import NEWEST, OLDER, Case
from tests.judges.torchtitan_sweep import CALL, COPIES, FULL, case, files

TORCH = {"stack": "torch-fsdp", "framework": "torch", "framework_version": "2.13"}


def question(model: str = "llama3-70b", gpus: int = 64, **changes: Any) -> Recipe:
    return documents.recipe(model, gpus, **{**TORCH, **changes})


def layout(recipe: Recipe, **knobs: Any) -> Layout:
    named = {"schedule": SCHEDULE_CODE[knobs.pop("schedule")]} if "schedule" in knobs else {}
    return documents.layout(recipe, **{"zero": 3, **knobs, **named})


def check(seed: int, questions: int, version: str = NEWEST) -> int:
    """How many files were read as meant; all of them, or an AssertionError."""
    some = list(torchtitan_sweep.plans(seed, questions, 1, version))
    said = torchtitan_oracle.verdicts((case(*plan) for *plan, _ in some), version)
    wrong = (
        torchtitan_sweep.wrong_in_newest if version == NEWEST else torchtitan_sweep.wrong_in_older
    )
    found = [
        (one.named(), wrong(recipe, one, reply))
        for (recipe, one, _), reply in zip(some, said, strict=True)
    ]
    assert not (faults := [one for one in found if one[1]]), (
        f"{len(faults)} of {len(some)}, first: {faults[0]}"
    )
    return len(some)


@pytest.mark.parametrize(("version", "questions"), [(NEWEST, 20), (OLDER, 10)])
def test_sweep(version: str, questions: int) -> None:
    assert check(9, questions, version) >= questions * 3 / 4


def test_models_are_the_ones_that_torchtitan_builds() -> None:
    """Their parameters are those of the presets, by torch's count; partial recomputation wraps as
    many layers as it says.
    """
    some = [
        question(name, 8)
        for name in ("llama3-8b", "qwen3-0.6b", "qwen3-30b-a3b", "deepseek-v2-lite", "gpt-oss-20b")
    ]
    said = torchtitan_oracle.verdicts(
        case(recipe, layout(recipe, recompute=FULL, recompute_layers=3), build=True)
        for recipe in some
    )
    for recipe, reply in zip(some, said, strict=True):
        assert reply["accepted"], reply["message"]
        assert reply["wrapped"] == 3
        published = recipe.model.parameters
        assert published and abs(reply["parameters"] / published - 1) < 1e-4, (
            recipe.model.name,
            reply["parameters"],
            published,
        )


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a model that it does not build": ({"model": "falcon-40b"}, {}, "llama3-8b"),
    "half precision": ({"precision": "fp16"}, {}, "bf16"),
    "one factor a tensor": ({"precision": "fp8-tensorwise"}, {}, "fp8-rowwise"),
    "the scores in memory": ({"attention": "unfused"}, {}, "flash"),
    "another optimizer": ({"optimizer": "lion"}, {}, "adam"),
    "modules to recompute": ({}, {"recompute": RECOMPUTE_CODE["selective"]}, "full"),
    "stages of a string": ({}, {"pp": 2, "stage_layout": "Et*39|t*41L"}, "account-for"),
    "a schedule of Megatron's": ({}, {"pp": 2, "schedule": "zb-h1"}, "1f1b"),
    "one stage of a looped schedule": ({}, {"pp": 4, "schedule": "interleaved-zb"}, "v 2"),
    "rounds that are not equal": (
        {},
        {"pp": 4, "v": 2, "dp": 16, "m": 30, "schedule": "interleaved-torch"},
        "m 28",
    ),
    "layers that do not split": ({}, {"pp": 4, "v": 3, "schedule": "interleaved"}, "v 1"),
    "experts over tp": ({"model": "qwen3-30b-a3b"}, {"tp": 4, "ep": 1}, "ep 4"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_with_a_way_out(what: str) -> None:
    words, knobs, way_out = REFUSED[what]
    recipe = question(**words)
    with pytest.raises(InputError, match=way_out):
        torchtitan.program(recipe, layout(recipe, **knobs), ())


@pytest.mark.parametrize("m", [28, 30])
def test_equal_rounds_are_what_torch_asks(m: int) -> None:
    """torch's own schedule takes 28 micro-batches on 4 ranks, and refuses 30."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    if m == 28:
        assert get_schedule_ops("Interleaved1F1B", 4, m, 2)
    else:
        with pytest.raises(ValueError, match="microbatches"):
            get_schedule_ops("Interleaved1F1B", 4, m, 2)


@pytest.mark.parametrize(("schedule", "m"), [("1f1b", 3), ("1f1b", 4), ("gpipe", 3)])
def test_1f1b_has_a_micro_batch_a_stage_as_torch_asks(schedule: str, m: int) -> None:
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    recipe = question(global_batch_size=16 * m)
    found = breaches(recipe, layout(recipe, pp=4, m=m, schedule=schedule))
    if schedule == "1f1b" and m < 4:
        assert [one.rule for one in found] == ["1F1B has a micro-batch a stage"]
        with pytest.raises(ValueError, match="Number of microbatches"):
            get_schedule_ops("1F1B", 4, m, 1)
    else:
        assert not found and get_schedule_ops(torchtitan.NAMES[schedule], 4, m, 1)


def test_a_changed_word_is_found() -> None:
    """The oracle itself: a word that torchtitan does not have, a product that is not the number of
    GPUs.
    """
    recipe = question("llama3-8b", 8)
    text = files(recipe, layout(recipe))[torchtitan.SCRIPT]
    broken = [
        text.replace("tensor_parallel_degree", "tensor_parallel"),
        text.replace("shard_degree=8", "shard_degree=4"),
    ]
    said = torchtitan_oracle.verdicts(Case(one, CALL, 8) for one in broken)
    assert [reply["accepted"] for reply in said] == [False, False]
    assert "tensor_parallel" in said[0]["message"]


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_launched(launcher: str, tmp_path: Path) -> None:
    recipe = question()
    written = table.files(recipe, layout(recipe, tp=8, pp=2), None, launcher)
    name = table.LAUNCHERS[launcher][0]
    call = recorder.call(
        tmp_path, written[name], "--compile.no-enable", STEPS="7", ASSETS="/my models/llama"
    )
    assert call.world_size == 64 and call.entry.endswith(f"/{torchtitan.SCRIPT}")
    assert call.flags[:4] == CALL[:4] and call.flags[-1] == "--compile.no-enable"
    assert call.flags[call.flags.index("--hf_assets_path") + 1] == "/my models/llama"
    assert torchtitan.SCRIPT in written and torchtitan.TOML in written


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_launched_by_0_2(launcher: str, tmp_path: Path) -> None:
    """As run_train.sh of 0.2.2 does: its own module, with the TOML by --job.config_file."""
    recipe = resolve.recipe(
        api.question(
            model="llama3-8b",
            gpus=64,
            cluster="h100-sxm",
            software="torchtitan@0.2",
            switch=(f"{COPIES}=2",),
        )
    )
    written = table.files(recipe, layout(recipe), None, launcher)
    name = table.LAUNCHERS[launcher][0]
    assert written.keys() == {name, torchtitan.TOML}
    assert "bf16, torch 2.13, torchtitan 0.2;" in written[name]
    done, record = recorder.run(tmp_path, written[name], STEPS="7", FILES="/plan")
    assert done.returncode == 0
    words = record.with_suffix(".words").read_text().split("\0")
    at = words.index("--module")
    assert words[at + 1 : at + 4] == [
        "torchtitan.train",
        "--job.config_file",
        f"/plan/{torchtitan.TOML}",
    ]
    assert words[words.index("--training.steps") + 1] == "7"


def test_switches_of_0_3_are_refused_under_0_2() -> None:
    asked = {"model": "llama3-8b", "gpus": 8, "cluster": "h100-sxm", "software": "torchtitan@0.2"}
    with pytest.raises(InputError, match=r"cuda_graphs must be one that torchtitan 0\.2 has"):
        resolve.recipe(api.question(**asked, switch=("cuda_graphs=on",)))


def test_what_no_file_says_is_no_offer() -> None:
    """Liger is of scripts of transformers; no torchtitan has a key for it."""
    recipe = question("llama3-8b", 8)
    names = {gain.name for gain in other_values(recipe, layout(recipe))}
    assert "chunked_loss" in names and "liger_kernel" not in names
    older = recipe.model_copy(update={"versions": SoftwareVersions(torchtitan="0.2")})
    assert "chunked_loss" not in {gain.name for gain in other_values(older, layout(older))}


def test_check_reads_the_toml_back(tmp_path: Path) -> None:
    """By the reader of files that exist, which was written for others' files."""
    recipe = question()
    one = layout(recipe, tp=8, pp=2, mbs=2, zero=2, recompute=FULL)
    path = tmp_path / torchtitan.TOML
    path.write_text(files(recipe, one)[torchtitan.TOML])
    values = {name: value.value for name, value in read(path).values.items()}
    assert values["tensor_model_parallel_size"] == 8 and values["pipeline_model_parallel_size"] == 2
    assert (
        values["micro_batch_size"] == 2
        and values["global_batch_size"] == 512
        and values["seq_length"] == 8192
    )
    assert (
        values["recompute_granularity"] == "full"
        and values["torch_fsdp2_no_reshard_after_forward"] is True
    )
